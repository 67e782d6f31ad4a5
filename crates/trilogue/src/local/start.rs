//! Finds a user's server, or starts one.

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

use super::user_server_dir::user;
use super::{LogFile, ServerRecord, UserServerDir};
use crate::local::checkout::Checkout;

const START_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long to wait for another server that a starting one has found.
const OTHER_LIMIT: Duration = Duration::from_secs(10);
/// The environment variables that a server inherits. An editor's environment has others that do not concern it.
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
/// Prefixes of further ones.
const ENVIRONMENT_FAMILIES: [&str; 2] = ["LC_", "XDG_"];

/// How to start a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starter {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Further environment variables that it inherits.
    pub inherit: Vec<String>,
}

/// Connects to a running server of the same user.
///
/// # Errors
/// When none listens, or one of another user.
pub async fn connect(dir: &UserServerDir) -> io::Result<UnixStream> {
    let recorded = ServerRecord::read(&dir.record()).map(|record| record.socket);
    let stream = UnixStream::connect(recorded.unwrap_or_else(|| dir.socket())).await?;
    if stream.peer_cred()?.uid() != user() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user listens on the socket",
        ));
    }
    Ok(stream)
}

/// The record of the running server. `None` if none runs.
#[must_use]
pub fn running(dir: &UserServerDir) -> Option<ServerRecord> {
    let record = ServerRecord::read(&dir.record())?;
    // The record and the socket of a killed server stay, but nothing listens.
    has_listener(&record.socket).then_some(record)
}

/// Whether the process behind this record has ended as the user's server, because it let go of the lock or another one has it.
#[must_use]
pub fn has_ended(dir: &UserServerDir, record: &ServerRecord) -> bool {
    let lock = OpenOptions::new().append(true).open(dir.lock());
    let is_free = lock.is_ok_and(|lock| lock.try_lock_shared().is_ok());
    is_free || ServerRecord::read(&dir.record()).is_some_and(|found| found.life != record.life)
}

/// Whether a server listens on a socket. Does not block: a server that is too busy to accept counts as listening.
fn has_listener(path: &Path) -> bool {
    let try_connect = || {
        let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        net::connect(&socket, &net::SocketAddrUnix::new(path)?)
    };
    matches!(try_connect(), Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS))
}

/// Connects to the server, and starts one if none runs. If several programs do so at once, one of them starts it.
///
/// # Errors
/// `peer_unavailable` when no server can be started, with the end of its log.
pub async fn connect_or_start(dir: &UserServerDir, starter: &Starter) -> Result<UnixStream> {
    let unusable = |error: io::Error| unusable_dir(dir, &error);
    dir.create().map_err(unusable)?;
    let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(dir.start_lock());
    let lock = lock.map_err(unusable)?;
    let deadline = Instant::now() + START_LIMIT;
    loop {
        if let Ok(stream) = connect(dir).await {
            return Ok(stream);
        }
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(Error::new(
                    Code::PeerUnavailable,
                    format!("the server that another program starts was not ready within {START_LIMIT:?}"),
                )
                .hint(format!("see {}", dir.log().display())));
            }
            Err(TryLockError::WouldBlock) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
    // Held until the server accepts connections, so that no other is started meanwhile.
    let _lock = lock;
    match connect(dir).await {
        Ok(stream) => Ok(stream),
        Err(_) => launch(dir, starter, deadline).await,
    }
}

async fn launch(dir: &UserServerDir, starter: &Starter, deadline: Instant) -> Result<UnixStream> {
    let log = LogFile::at(dir.log());
    let from = log.len();
    let mut child = spawn(dir, starter, &log).map_err(|error| {
        Error::new(Code::PeerUnavailable, format!("no server can be started: {error}"))
            .hint("start one yourself: trilogue demo")
    })?;
    let mut end = deadline;
    let mut ended = None;
    loop {
        if let Ok(stream) = connect(dir).await {
            return Ok(stream);
        }
        if ended.is_none()
            && let Ok(Some(status)) = child.try_wait()
        {
            ended = Some(status);
            // The started process may have found another server that is almost ready.
            let wait = if status.success() { OTHER_LIMIT } else { Duration::ZERO };
            end = end.min(Instant::now() + wait);
        }
        if Instant::now() >= end {
            return Err(not_started(dir, &log, from, ended));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn spawn(dir: &UserServerDir, starter: &Starter, log: &LogFile) -> io::Result<Child> {
    let file = log.open()?;
    let wanted = |name: &str| {
        ENVIRONMENT.contains(&name)
            || ENVIRONMENT_FAMILIES.iter().any(|family| name.starts_with(family))
            || starter.inherit.iter().any(|other| other == name)
    };
    let environment = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(wanted));
    let mut command = Command::new(&starter.program);
    command.args(&starter.arguments).env_clear().envs(environment).env_remove("PATH");
    // The server outlives the work in this folder, and starts agents by name.
    let checkout = Checkout::around_here();
    if let Some(path) = checkout.outer_path_of_process() {
        command.env("PATH", path);
    }
    for name in checkout.loaded_of_process() {
        command.env_remove(name);
    }
    command
        // The current folder may be removed later.
        .current_dir(dir.folder())
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
}

/// The path of this program, even if another version has replaced it.
pub fn this_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    let text = path.to_string_lossy().into_owned();
    Ok(text.strip_suffix(" (deleted)").map_or(path, PathBuf::from))
}

/// Makes this process the leader of its own session, so that signals to the program that started it do not reach it.
pub fn detach() {
    // It fails if the process leads a group already, which serves the same purpose.
    let _ = rustix::process::setsid();
}

/// The configuration file of a server that is started on demand, if it exists.
#[must_use]
pub fn config_file() -> Option<PathBuf> {
    config_path().filter(|file| file.exists())
}

/// The place of this file.
#[must_use]
pub fn config_path() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    folder.map(|folder| folder.join("trilogue/trilogue.toml"))
}

fn not_started(
    dir: &UserServerDir,
    log: &LogFile,
    from: u64,
    ended: Option<std::process::ExitStatus>,
) -> Error {
    let said = log.tail(from);
    let what = match ended {
        Some(status) if status.success() => {
            let holder = ServerRecord::read(&dir.record())
                .map_or_else(String::new, |record| format!(", {record},"));
            format!(
                "another server of this user{holder} holds {}, and cannot be reached",
                dir.lock().display()
            )
        }
        Some(status) => format!("the server ended with {status}"),
        None => format!("the server was not ready within {START_LIMIT:?}"),
    };
    let what = if said.is_empty() { what } else { format!("{what}:\n{said}") };
    Error::new(Code::PeerUnavailable, what).hint(format!("see {}", show(log.path())))
}

fn unusable_dir(dir: &UserServerDir, error: &io::Error) -> Error {
    Error::new(
        Code::InvalidRequest,
        format!("the folder {} cannot be used: {error}", dir.folder().display()),
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
    fn a_busy_server_counts_as_listening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert!(!has_listener(&path));
        let listener = UnixListener::bind(&path).unwrap();
        assert!(has_listener(&path));
        // Fill the queue of connections: a blocking attempt would wait for ever then.
        rustix::net::listen(&listener, 0).unwrap();
        let waiting: Vec<UnixStream> = (0..8).map_while(|_| try_connect(&path)).collect();
        assert!(waiting.len() < 8 && has_listener(&path));
        drop((waiting, listener));
        assert!(!has_listener(&path));
    }

    /// A connection, unless it would have to wait.
    fn try_connect(path: &Path) -> Option<UnixStream> {
        let socket = net::socket(net::AddressFamily::UNIX, net::SocketType::STREAM, None).ok()?;
        rustix::io::ioctl_fionbio(&socket, true).ok()?;
        net::connect(&socket, &net::SocketAddrUnix::new(path).ok()?).ok()?;
        Some(socket.into())
    }
}
