//! One command, from its start to the end of everything it started.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};
use trilogue_wire::agent_client::{CreateTerminalRequest, TerminalExitStatus};
use trilogue_wire::jsonrpc::ErrorObject;

use super::output::Output;
use super::{Grants, Place, refusal, tree};

/// How much is read at once, in bytes.
const PIECE_BYTES: usize = 64 * 1024;
/// The most that a pipe holds, in bytes: what a command said before it ended and was not read yet.
const MAX_PIPE_BYTES: usize = 1024 * 1024;
/// The times in a second that the rate of output is looked at.
const WINDOWS_PER_SECOND: u32 = 10;
/// What makes of a command's name a line for a shell.
const SHELL_CHARACTERS: [char; 19] = [
    ' ', '\t', '\n', '|', '&', ';', '<', '>', '(', ')', '$', '`', '"', '\'', '*', '?', '#', '~',
    '=',
];

/// A command that was started.
pub(super) struct Running {
    /// The leader of its process group.
    group: Pid,
    /// By which its processes are known, wherever they went.
    marker: String,
    output: Arc<Mutex<Output>>,
    ended: watch::Receiver<Option<TerminalExitStatus>>,
    tended: AbortHandle,
}

/// Reads what a command says and waits for its end.
struct Tender {
    pipe: pipe::Receiver,
    output: Arc<Mutex<Output>>,
    ended: watch::Sender<Option<TerminalExitStatus>>,
    rate: Rate,
}

/// How much was read lately.
struct Rate {
    /// The most in one window, in bytes.
    most: usize,
    taken: usize,
    until: Instant,
}

/// Starts what an agent asks for. Has to be called within a runtime.
pub(super) fn start(
    place: &Place,
    grants: &Grants,
    request: &CreateTerminalRequest,
) -> Result<Running, ErrorObject> {
    check(request, grants.limits.max_command_bytes)?;
    let folder = Folder::open(place, request.cwd.as_deref())?;
    let marker = format!("{}={}", tree::MARKER, uuid::Uuid::new_v4());
    let shown = request.command.chars().take(200).collect::<String>();
    let failed = |error: io::Error| {
        refusal::refused(format!("'{}' cannot be run: {error}", shown.escape_debug()))
    };
    let (reader, writer) = io::pipe().map_err(failed)?;
    let mut command = command_of(request);
    command
        .env_clear()
        .envs(grants.env.iter().map(|(name, value)| (name, value)))
        .env("PWD", &folder.path)
        .envs(request.env.iter().map(|it| (&it.name, &it.value)))
        .envs(marker.split_once('='))
        .current_dir(folder.entry())
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(failed)?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true);
    let child = command.spawn().map_err(failed)?;
    // The command holds the pipe's other end, which would keep it open.
    drop(command);
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let group = group.ok_or_else(refusal::lost)?;
    let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(failed)?;
    let asked = request.output_byte_limit.and_then(|it| usize::try_from(it).ok());
    let most = asked.unwrap_or(usize::MAX).min(grants.limits.max_output_bytes);
    let output = Arc::new(Mutex::new(Output::new(most)));
    let (ended, watched) = watch::channel(None);
    let rate = Rate::new(grants.limits.max_output_rate);
    let tender = Tender { pipe, output: Arc::clone(&output), ended, rate };
    let tended = tokio::spawn(tender.tend(child)).abort_handle();
    Ok(Running { group, marker, output, ended: watched, tended })
}

fn check(request: &CreateTerminalRequest, most: usize) -> Result<(), ErrorObject> {
    let texts = || {
        let variables = request.env.iter().flat_map(|it| [&it.name, &it.value]);
        request.args.iter().chain([&request.command]).chain(variables)
    };
    if request.command.is_empty() {
        return Err(refusal::refused("the command is empty"));
    }
    if texts().any(|text| text.contains('\0')) {
        return Err(refusal::refused("a command has no byte that is 0"));
    }
    if request.env.iter().any(|it| it.name.is_empty() || it.name.contains('=')) {
        return Err(refusal::refused("a variable's name is not empty and has no '='"));
    }
    if texts().map(String::len).sum::<usize>() > most {
        return Err(refusal::refused(format!(
            "the command, its arguments and variables have more than {most} bytes"
        )));
    }
    Ok(())
}

/// A command without arguments that could be no file's name is a line for the shell, as agents write them.
fn command_of(request: &CreateTerminalRequest) -> Command {
    if request.args.is_empty() && request.command.contains(SHELL_CHARACTERS) {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&request.command);
        return command;
    }
    let mut command = Command::new(&request.command);
    command.args(&request.args);
    command
}

/// Where a command runs.
struct Folder {
    dir: Dir,
    path: PathBuf,
}

// === impl Folder ===

impl Folder {
    fn open(place: &Place, cwd: Option<&str>) -> Result<Self, ErrorObject> {
        let Some(cwd) = cwd else {
            let dir = place.dir.try_clone().map_err(|error| refusal::of_file(".", &error))?;
            return Ok(Self { dir, path: place.real.clone() });
        };
        let relative = place.relative(cwd)?;
        let failed = |error: io::Error| refusal::of_file(cwd, &error);
        let dir = place.dir.open_dir(&relative).map_err(failed)?;
        let below = place.dir.canonicalize(&relative).map_err(failed)?;
        // Collecting leaves out `.`.
        Ok(Self { dir, path: place.real.join(below).components().collect() })
    }

    /// The folder that was opened, not what has its name by the time that the command starts.
    fn entry(&self) -> PathBuf {
        if cfg!(target_os = "linux") {
            Path::new("/proc/self/fd").join(self.dir.as_raw_fd().to_string())
        } else {
            self.path.clone()
        }
    }
}

// === impl Running ===

impl Running {
    /// What it said, and whether the beginning is gone.
    pub(super) fn output(&self) -> (String, bool) {
        let has_ended = self.ended.borrow().is_some();
        lock(&self.output).text(has_ended)
    }

    /// How it ended, if it did.
    pub(super) fn ended(&self) -> Option<TerminalExitStatus> {
        self.ended.borrow().clone()
    }

    /// Waits until it ended. `None` where nobody will ever know.
    pub(super) async fn wait(&self) -> Option<TerminalExitStatus> {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.ok()?;
        status.clone()
    }

    /// Ends it and all that it started: it is asked, and after the grace it is made to.
    pub(super) async fn end(&self, grace: Duration) {
        if self.ended().is_none() {
            self.signal(Signal::TERM);
            if timeout(grace, self.wait()).await.is_err() {
                self.signal(Signal::KILL);
                self.wait().await;
            }
        }
        tree::end(self.group, &self.marker).await;
    }

    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process_group(self.group, signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL);
        }
        self.tended.abort();
    }
}

// === impl Tender ===

impl Tender {
    /// Reads until nobody is left who could say something, and tells when the command itself has ended.
    async fn tend(mut self, mut child: Child) {
        let mut piece = vec![0; PIECE_BYTES];
        let (mut is_open, mut has_ended) = (true, false);
        while is_open || !has_ended {
            let pause = self.rate.pause();
            tokio::select! {
                read = self.pipe.read(&mut piece), if is_open && pause.is_none() => {
                    is_open = self.took(&piece, read);
                }
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
                status = child.wait(), if !has_ended => {
                    has_ended = true;
                    is_open = is_open && self.drain(&mut piece);
                    self.ended.send_replace(Some(status_of(status.ok())));
                }
            }
        }
    }

    /// Takes what is there already: the command's last words belong before its end.
    fn drain(&mut self, piece: &mut [u8]) -> bool {
        let mut left = MAX_PIPE_BYTES;
        while left > 0 {
            match self.pipe.try_read(piece) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Ok(count) if self.took(piece, Ok(count)) => left = left.saturating_sub(count),
                _ => return false,
            }
        }
        true
    }

    /// Keeps what was read. Returns whether there can be more.
    fn took(&mut self, piece: &[u8], read: io::Result<usize>) -> bool {
        let count = read.unwrap_or_default();
        let said = piece.get(..count).unwrap_or_default();
        self.rate.took(count);
        lock(&self.output).push(said);
        count > 0
    }
}

// === impl Rate ===

impl Rate {
    fn new(bytes_per_second: usize) -> Self {
        let most = (bytes_per_second / WINDOWS_PER_SECOND as usize).max(1);
        Self { most, taken: 0, until: Instant::now() }
    }

    fn took(&mut self, bytes: usize) {
        let now = Instant::now();
        if now >= self.until {
            self.taken = 0;
            self.until = now + Duration::from_secs(1) / WINDOWS_PER_SECOND;
        }
        self.taken += bytes;
    }

    /// Until when nothing is to be read.
    fn pause(&self) -> Option<Instant> {
        (self.taken >= self.most && Instant::now() < self.until).then_some(self.until)
    }
}

/// An end in the protocol's words. Nothing is said of one that nobody saw.
fn status_of(status: Option<std::process::ExitStatus>) -> TerminalExitStatus {
    use std::os::unix::process::ExitStatusExt as _;
    let mut ended = TerminalExitStatus::new();
    if let Some(status) = status {
        ended.exit_code = status.code().and_then(|code| u32::try_from(code).ok());
        ended.signal = status.signal().map(name_of);
    }
    ended
}

/// A signal's name.
fn name_of(number: i32) -> String {
    let named = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    let found = named.iter().find(|(signal, _)| signal.as_raw() == number);
    found.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
