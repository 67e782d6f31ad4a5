//! One command, from its start to the end of everything it started.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::lock;
use trilogue_wire::agent_client::{CreateTerminalRequest, TerminalExitStatus};
use trilogue_wire::jsonrpc::ErrorObject;

use super::output::Output;
use super::{Grants, Place, refusal};
use crate::child::tree::Tree;
use crate::child::{Leader, MARKER};

/// The variable by which the processes of one command are known.
const TERMINAL: &str = "TRILOGUE_TERMINAL";
/// How long a command that was killed may take to end: one that hangs in the system may not end at all.
const DYING: Duration = Duration::from_secs(2);
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

/// A command that was started. When it is dropped it is ended, with all that it started.
pub(super) struct Running {
    output: Arc<Mutex<Output>>,
    ended: watch::Receiver<Option<TerminalExitStatus>>,
    /// Asks for the end.
    stop: CancellationToken,
    /// Says that nothing is left.
    gone: CancellationToken,
}

/// Where commands belong to that are ended together.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    /// Asks all of them to end.
    pub(super) stop: CancellationToken,
    /// Those of which something is left.
    pub(super) tasks: TaskTracker,
}

/// Reads what a command says, and sees to its end.
struct Tender {
    leader: Leader,
    tree: Tree,
    reader: Reader,
    ended: watch::Sender<Option<TerminalExitStatus>>,
    stop: CancellationToken,
    grace: Duration,
}

/// Reads what a command says.
struct Reader {
    pipe: pipe::Receiver,
    /// Whether somebody is left who could say something.
    is_open: bool,
    piece: Vec<u8>,
    output: Arc<Mutex<Output>>,
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
    family: &Family,
    request: &CreateTerminalRequest,
) -> Result<Running, ErrorObject> {
    check(request, grants.limits.max_command_bytes)?;
    let folder = Folder::open(place, request.cwd.as_deref())?;
    let marker = uuid::Uuid::new_v4().to_string();
    let shown = request.command.chars().take(200).collect::<String>();
    let failed = |error: io::Error| {
        refusal::refused(format!("'{}' cannot be run: {error}", shown.escape_debug()))
    };
    let (reader, writer) = io::pipe().map_err(failed)?;
    let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(failed)?;
    let mut command = command_of(request);
    command
        .env_clear()
        .envs(grants.env.iter().map(|(name, value)| (name, value)))
        .env("PWD", &folder.path)
        .envs(request.env.iter().map(|it| (&it.name, &it.value)))
        // By these two it is found, so that they are nobody's to choose.
        .env_remove(MARKER)
        .envs(grants.env.iter().filter(|(name, _)| name == MARKER).cloned())
        .env(TERMINAL, &marker)
        .current_dir(folder.entry())
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(failed)?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true);
    let leader = command.spawn().and_then(Leader::of).map_err(failed)?;
    // The command holds the pipe's other end, which would keep it open.
    drop(command);
    let tree = Tree::default().with_variable(TERMINAL, &marker).with_group(leader.pid());
    let asked = request.output_byte_limit.and_then(|it| usize::try_from(it).ok());
    let most = asked.unwrap_or(usize::MAX).min(grants.limits.max_output_bytes);
    let output = Arc::new(Mutex::new(Output::new(most)));
    let (ended, watched) = watch::channel(None);
    let reader = Reader::new(pipe, Arc::clone(&output), grants.limits.max_output_rate);
    let (stop, gone) = (family.stop.child_token(), CancellationToken::new());
    let grace = grants.limits.kill_grace;
    let tender = Tender { leader, tree, reader, ended, stop: stop.clone(), grace };
    let is_gone = gone.clone().drop_guard();
    family.tasks.spawn(async move {
        tender.tend().await;
        drop(is_gone);
    });
    Ok(Running { output, ended: watched, stop, gone })
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

    /// Ends it and all that it started: it is asked, and after the grace it is made to. Returns when nothing is left.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.gone.cancelled().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

// === impl Tender ===

impl Tender {
    /// Reads what the command says, tells when it has ended, and ends what is left of it when that is asked for.
    async fn tend(self) {
        let Self { leader, tree, mut reader, ended, stop, grace } = self;
        let status = reader.while_waiting(end_of(&leader, &tree, &stop, grace)).await;
        reader.drain();
        ended.send_replace(Some(status_of(status)));
        // What it started goes on until somebody ends that, and its group stays its own until then.
        let left = async {
            if tree.is_gone().await {
                return;
            }
            stop.cancelled().await;
            tree.kill().await;
        };
        reader.while_waiting(left).await;
        reader.drain();
        leader.reap().await;
    }
}

/// Waits for a command to end, and makes it where that is asked for. `None` where nobody saw how it ended.
async fn end_of(
    leader: &Leader,
    tree: &Tree,
    stop: &CancellationToken,
    grace: Duration,
) -> Option<std::process::ExitStatus> {
    let asked = async {
        stop.cancelled().await;
        tree.signal(Signal::TERM).await;
        sleep(grace).await;
        tree.kill().await;
        sleep(DYING).await;
    };
    tokio::select! {
        biased;
        status = leader.ended() => status,
        () = asked => None,
    }
}

// === impl Reader ===

impl Reader {
    fn new(pipe: pipe::Receiver, output: Arc<Mutex<Output>>, bytes_per_second: usize) -> Self {
        let (piece, rate) = (vec![0; PIECE_BYTES], Rate::new(bytes_per_second));
        Self { pipe, is_open: true, piece, output, rate }
    }

    /// Reads until this is done.
    async fn while_waiting<T>(&mut self, until: impl Future<Output = T>) -> T {
        tokio::pin!(until);
        loop {
            let pause = self.rate.pause();
            tokio::select! {
                done = &mut until => return done,
                read = self.pipe.read(&mut self.piece), if self.is_open && pause.is_none() => {
                    self.took(read);
                }
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
            }
        }
    }

    /// Takes what is there already: the command's last words belong before its end. The system itself is asked, as it may not have said
    /// yet that there is something.
    fn drain(&mut self) {
        let mut left = MAX_PIPE_BYTES;
        while self.is_open && left > 0 {
            match rustix::io::read(&self.pipe, &mut self.piece[..]) {
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                read => left = left.saturating_sub(self.took(read.map_err(io::Error::from))),
            }
        }
    }

    /// Keeps what was read, and says how much that is.
    fn took(&mut self, read: io::Result<usize>) -> usize {
        let count = read.unwrap_or_default();
        let said = self.piece.get(..count).unwrap_or_default();
        self.rate.took(count);
        lock(&self.output).push(said);
        self.is_open = count > 0;
        count
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
