//! Finding a user's server, and starting one where none runs.

use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::{io::Errno, net};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use super::place::user;
use super::{LogFile, Place, Record};

/// How long a server may take until it can be connected to.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long to wait between two looks at a server that is being started.
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait for the server that a starting one has found.
const OTHER_LIMIT: Duration = Duration::from_secs(10);
/// The variables that a server is started with, where they are set. Whoever starts it has others that are none of its business.
const ENVIRONMENT: [&str; 12] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "SSH_AUTH_SOCK",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
];
/// The beginnings of further ones.
const ENVIRONMENT_FAMILIES: [&str; 2] = ["LC_", "XDG_"];

/// How a server is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starter {
    /// The program.
    pub program: PathBuf,
    /// What it is told.
    pub arguments: Vec<String>,
    /// The names of variables that it is started with beside the usual ones.
    pub inherit: Vec<String>,
}

/// Connects to the server of a place. Whoever answers is of the same user.
///
/// # Errors
/// When none listens there, or another user does.
pub async fn knock(place: &Place) -> io::Result<UnixStream> {
    let recorded = Record::read(&place.record()).map(|record| record.socket);
    let stream = UnixStream::connect(recorded.unwrap_or_else(|| place.socket())).await?;
    if stream.peer_cred()?.uid() != user() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user listens on the socket",
        ));
    }
    Ok(stream)
}

/// What the server of a place says of itself. `None` where none runs.
#[must_use]
pub fn running(place: &Place) -> Option<Record> {
    let record = Record::read(&place.record())?;
    // A record outlives a server that was killed, and its socket may, too; nobody listens there then.
    is_listened_to(&record.socket).then_some(record)
}

/// Whether somebody listens on a socket. It is not waited for: one that is too busy to take another connection listens.
fn is_listened_to(path: &Path) -> bool {
    let connect = || {
        let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        net::connect(&socket, &net::SocketAddrUnix::new(path)?)
    };
    matches!(connect(), Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS))
}

/// Connects to the server of a place, and starts one first where none runs. Of many that do so at once, one starts it.
///
/// # Errors
/// `peer_unavailable` when none can be started, with what it said.
pub async fn ensure(place: &Place, starter: &Starter) -> Result<UnixStream> {
    let in_place = |error: io::Error| no_place(place, &error);
    place.make().map_err(in_place)?;
    let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(place.start_lock());
    let lock = lock.map_err(in_place)?;
    let deadline = Instant::now() + START_LIMIT;
    loop {
        if let Ok(stream) = knock(place).await {
            return Ok(stream);
        }
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(in_place(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(Error::new(
                    Code::PeerUnavailable,
                    format!("the server that another program starts was not ready within {START_LIMIT:?}"),
                )
                .hint(format!("see {}", place.log().display())));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOK).await,
        }
    }
    // Held until the server can be connected to, so that nobody starts another meanwhile.
    let _lock = lock;
    match knock(place).await {
        Ok(stream) => Ok(stream),
        Err(_) => launch(place, starter, deadline).await,
    }
}

async fn launch(place: &Place, starter: &Starter, deadline: Instant) -> Result<UnixStream> {
    let log = LogFile::at(place.log());
    let from = log.len();
    let mut child = spawn(place, starter, &log).map_err(|error| {
        Error::new(Code::PeerUnavailable, format!("no server can be started: {error}"))
            .hint("start one yourself: trilogue demo")
    })?;
    let mut end = deadline;
    let mut ended = None;
    loop {
        if let Ok(stream) = knock(place).await {
            return Ok(stream);
        }
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
        {
            ended = Some(status);
            // It may have met another server that is about to be ready.
            let wait = if status.success() { OTHER_LIMIT } else { Duration::ZERO };
            end = end.min(Instant::now() + wait);
        }
        if Instant::now() >= end {
            return Err(not_started(place, &log, from, ended));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn spawn(place: &Place, starter: &Starter, log: &LogFile) -> io::Result<Child> {
    let file = log.open()?;
    let wanted = |name: &str| {
        ENVIRONMENT.contains(&name)
            || ENVIRONMENT_FAMILIES.iter().any(|family| name.starts_with(family))
            || starter.inherit.iter().any(|other| other == name)
    };
    let environment = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(wanted));
    Command::new(&starter.program)
        .args(&starter.arguments)
        .env_clear()
        .envs(environment)
        // Whoever starts it may be in a folder that is to be removed.
        .current_dir(place.folder())
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
}

/// This program, also where another version of it was put in its place.
///
/// # Errors
/// When the operating system does not say.
pub fn this_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    let text = path.to_string_lossy().into_owned();
    Ok(text.strip_suffix(" (deleted)").map_or(path, PathBuf::from))
}

/// Makes this process the leader of a session of its own: what ends the program that started it does not reach it.
pub fn detach() {
    // It fails where the process leads a group already, which serves as well.
    let _ = rustix::process::setsid();
}

/// The configuration of a server that is started on demand, where there is one.
#[must_use]
pub fn config_file() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    folder.map(|folder| folder.join("trilogue/trilogue.toml")).filter(|file| file.exists())
}

fn not_started(
    place: &Place,
    log: &LogFile,
    from: u64,
    ended: Option<std::process::ExitStatus>,
) -> Error {
    let said = log.tail(from);
    let what = match ended {
        Some(status) if status.success() => {
            let holder = Record::read(&place.record())
                .map_or_else(String::new, |record| format!(" (process {})", record.pid));
            format!(
                "another server of this user{holder} holds {}, and cannot be reached",
                place.lock().display()
            )
        }
        Some(status) => format!("the server ended with {status}"),
        None => format!("the server was not ready within {START_LIMIT:?}"),
    };
    let what = if said.is_empty() { what } else { format!("{what}:\n{said}") };
    Error::new(Code::PeerUnavailable, what).hint(format!("see {}", show(log.path())))
}

fn no_place(place: &Place, error: &io::Error) -> Error {
    Error::new(
        Code::InvalidRequest,
        format!("the folder {} cannot be used: {error}", place.folder().display()),
    )
    .hint("set XDG_STATE_HOME to a folder that only this user can read")
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_server_that_takes_no_connection_is_one_that_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert!(!is_listened_to(&path));
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_listened_to(&path));
        // As many as the system lets wait that nobody accepts; a blocking one would wait for ever then.
        rustix::net::listen(&listener, 0).unwrap();
        let waiting: Vec<UnixStream> = (0..8).map_while(|_| try_connect(&path)).collect();
        assert!(waiting.len() < 8 && is_listened_to(&path));
        drop((waiting, listener));
        assert!(!is_listened_to(&path));
    }

    /// A connection, unless it would have to wait.
    fn try_connect(path: &Path) -> Option<UnixStream> {
        let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None).ok()?;
        rustix::io::ioctl_fionbio(&socket, true).ok()?;
        net::connect(&socket, &net::SocketAddrUnix::new(path).ok()?).ok()?;
        Some(socket.into())
    }
}
