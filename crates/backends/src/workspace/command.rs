//! One command, from its start until every process that it started has exited.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
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

use super::output::CommandOutput;
use super::{Grants, Root, refusal};
use crate::child::tree::Tree;
use crate::child::{COMMAND_MARKER, Leader, MARKER, ProgramStart};

/// The variable by which the processes of a command are found.
const TERMINAL: &str = "TRILOGUE_TERMINAL";
/// All variables by which it is found.
const MARKERS: [&str; 3] = [MARKER, COMMAND_MARKER, TERMINAL];
/// How long a killed command may take to exit: one that hangs in the kernel may not exit at all.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
const BUFFER_BYTES: usize = 64 * 1024;
/// The capacity of a pipe, in bytes: output that a command wrote before its exit and that is not read yet.
const MAX_PIPE_BYTES: usize = 1024 * 1024;
/// How often in a second the rate of output is measured.
const WINDOWS_PER_SECOND: u32 = 10;
/// A command without arguments that contains one of these is a line for a shell.
const SHELL_CHARACTERS: [char; 19] = [
    ' ', '\t', '\n', '|', '&', ';', '<', '>', '(', ')', '$', '`', '"', '\'', '*', '?', '#', '~',
    '=',
];

/// A running command. Dropping it stops the command with all processes that it started.
pub(super) struct RunningCommand {
    output: Arc<Mutex<CommandOutput>>,
    exited: watch::Receiver<Option<TerminalExitStatus>>,
    stop: CancellationToken,
    /// Cancelled when no process of it is left.
    gone: CancellationToken,
}

/// Commands that are stopped together.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandGroup {
    pub(super) stop: CancellationToken,
    /// One task for each command with a process left.
    pub(super) tasks: TaskTracker,
}

/// The task of a command. Reads its output until no process of it is left.
struct Watcher {
    leader: Leader,
    tree: Tree,
    reader: OutputReader,
    exited: watch::Sender<Option<TerminalExitStatus>>,
    stop: CancellationToken,
    grace: Duration,
}

struct OutputReader {
    pipe: pipe::Receiver,
    /// Whether a writer is left.
    is_open: bool,
    buffer: Vec<u8>,
    output: Arc<Mutex<CommandOutput>>,
    rate: ReadRate,
}

/// How much was read in this window.
struct ReadRate {
    /// The most in one window, in bytes.
    most: usize,
    taken: usize,
    until: Instant,
}

/// Starts an agent's command. Must be called within a runtime.
pub(super) fn start(
    root: &Root,
    grants: &Grants,
    group: &CommandGroup,
    request: &CreateTerminalRequest,
) -> Result<RunningCommand, ErrorObject> {
    check(request, grants.limits.max_command_bytes)?;
    let folder = WorkingDir::open(root, request.cwd.as_deref())?;
    let marker = uuid::Uuid::new_v4().to_string();
    let shown = request.command.chars().take(200).collect::<String>();
    let failed = |error: io::Error| {
        refusal::invalid_params(format!("'{}' cannot be run: {error}", shown.escape_debug()))
    };
    let (reader, writer) = io::pipe().map_err(failed)?;
    let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(failed)?;
    let variables = variables_of(request, grants, &folder.path, &marker);
    let ProgramStart { words, variables } = start_of(request, grants, variables);
    let mut command = Command::new(words.first().map_or(OsStr::new(""), OsString::as_os_str));
    command
        .args(words.iter().skip(1))
        .env_clear()
        .envs(variables)
        .current_dir(folder.entry())
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(failed)?)
        .stderr(writer);
    let leader = Leader::spawn(&mut command).map_err(failed)?;
    // The command holds the other end of the pipe, which would keep the pipe open.
    drop(command);
    let tree = Tree::default().with_variable(TERMINAL, &marker).with_group(leader.pid());
    let asked = request.output_byte_limit.and_then(|it| usize::try_from(it).ok());
    let most = asked.unwrap_or(usize::MAX).min(grants.limits.max_output_bytes);
    let output = Arc::new(Mutex::new(CommandOutput::new(most)));
    let (exited, watched) = watch::channel(None);
    let reader = OutputReader::new(pipe, Arc::clone(&output), grants.limits.max_output_rate);
    let (stop, gone) = (group.stop.child_token(), CancellationToken::new());
    let grace = grants.limits.kill_grace;
    let watcher = Watcher { leader, tree, reader, exited, stop: stop.clone(), grace };
    let is_gone = gone.clone().drop_guard();
    group.tasks.spawn(async move {
        watcher.watch().await;
        // Cancels `gone`. The guard does this after a panic of the watcher too.
        drop(is_gone);
    });
    Ok(RunningCommand { output, exited: watched, stop, gone })
}

fn check(request: &CreateTerminalRequest, most: usize) -> Result<(), ErrorObject> {
    let texts = || {
        let variables = request.env.iter().flat_map(|it| [&it.name, &it.value]);
        request.args.iter().chain([&request.command]).chain(variables)
    };
    if request.command.is_empty() {
        return Err(refusal::invalid_params("the command is empty"));
    }
    if texts().any(|text| text.contains('\0')) {
        return Err(refusal::invalid_params("a command cannot have zero bytes"));
    }
    if request.env.iter().any(|it| it.name.is_empty() || it.name.contains('=')) {
        return Err(refusal::invalid_params(
            "the name of a variable cannot be empty or have a '='",
        ));
    }
    if texts().map(String::len).sum::<usize>() > most {
        return Err(refusal::invalid_params(format!(
            "the command, its arguments and variables have more than {most} bytes"
        )));
    }
    Ok(())
}

/// The variables of a command: those of the agent, and those of the request. The processes are found by three of them, which the agent does not choose.
fn variables_of(
    request: &CreateTerminalRequest,
    grants: &Grants,
    folder: &Path,
    marker: &str,
) -> Vec<(String, String)> {
    let agent = grants.env.iter().find(|(name, _)| name == MARKER).map(|(_, value)| value.clone());
    let own = agent
        .into_iter()
        .flat_map(|agent| [MARKER, COMMAND_MARKER].map(|name| (name.to_owned(), agent.clone())));
    let own = own.chain([(TERMINAL.to_owned(), marker.to_owned())]);
    let all = grants.env.iter().cloned();
    let all = all.chain([("PWD".to_owned(), folder.display().to_string())]);
    let all = all.chain(request.env.iter().map(|it| (it.name.clone(), it.value.clone())));
    let is_free = |(name, _): &(String, String)| !MARKERS.contains(&&**name);
    all.filter(is_free).chain(own).collect::<BTreeMap<_, _>>().into_iter().collect()
}

/// The words and the variables with which a command starts: through the stage of its sandbox, if the agent has one. Many agents write a whole shell line into `command`.
fn start_of(
    request: &CreateTerminalRequest,
    grants: &Grants,
    variables: Vec<(String, String)>,
) -> ProgramStart {
    let is_line = request.args.is_empty() && request.command.contains(SHELL_CHARACTERS);
    let shell = ["/bin/sh", "-c"].into_iter().filter(|_| is_line);
    let own = [&request.command].into_iter().chain(&request.args).map(String::as_str);
    let start = match &grants.policy {
        Some(policy) => policy.command_stage(&variables, &MARKERS),
        None => ProgramStart { words: Vec::new(), variables },
    };
    let words = start.words.into_iter().chain(shell.chain(own).map(OsString::from)).collect();
    ProgramStart { words, ..start }
}

struct WorkingDir {
    dir: Dir,
    path: PathBuf,
}

// === impl WorkingDir ===

impl WorkingDir {
    fn open(root: &Root, cwd: Option<&str>) -> Result<Self, ErrorObject> {
        let Some(cwd) = cwd else {
            let dir = root.dir.try_clone().map_err(|error| refusal::of_file(".", &error))?;
            return Ok(Self { dir, path: root.real.clone() });
        };
        let relative = root.relative(cwd)?;
        let failed = |error: io::Error| refusal::of_file(cwd, &error);
        let dir = root.dir.open_dir(&relative).map_err(failed)?;
        let below = root.dir.canonicalize(&relative).map_err(failed)?;
        // Collecting the components drops `.`.
        Ok(Self { dir, path: root.real.join(below).components().collect() })
    }

    /// The opened folder, even if another folder has its name when the command starts. Systems without `/proc` use the named one.
    fn entry(&self) -> PathBuf {
        if cfg!(target_os = "linux") {
            Path::new("/proc/self/fd").join(self.dir.as_raw_fd().to_string())
        } else {
            self.path.clone()
        }
    }
}

// === impl RunningCommand ===

impl RunningCommand {
    /// Its output, and whether the beginning was dropped.
    pub(super) fn output(&self) -> (String, bool) {
        let has_exited = self.exited.borrow().is_some();
        lock(&self.output).text(has_exited)
    }

    pub(super) fn exit_status(&self) -> Option<TerminalExitStatus> {
        self.exited.borrow().clone()
    }

    /// Waits until it has exited. `None` if the server is exiting.
    pub(super) async fn wait(&self) -> Option<TerminalExitStatus> {
        let mut exited = self.exited.clone();
        let status = exited.wait_for(Option::is_some).await.ok()?;
        status.clone()
    }

    /// Asks the command and all processes that it started to exit, and kills the remaining ones after the grace. Returns when none is left.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.gone.cancelled().await;
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

// === impl Watcher ===

impl Watcher {
    async fn watch(self) {
        let Self { leader, tree, mut reader, exited, stop, grace } = self;
        let status = reader.while_waiting(exit_of(&leader, &tree, &stop, grace)).await;
        reader.drain();
        exited.send_replace(Some(status_of(status)));
        // Its descendants continue until it is stopped. Until then the unreaped leader keeps the id of the group in use.
        let left = async {
            if tree.is_gone().await {
                return;
            }
            stop.cancelled().await;
            tree.kill().await;
        };
        reader.while_waiting(left).await;
        reader.drain();
        // A process that hangs in the kernel is reaped when it exits.
        let _ = leader.reap().await;
    }
}

/// Waits until a command exits, and stops it on request. `None` if its status is unknown.
async fn exit_of(
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
        sleep(KILL_TIMEOUT).await;
    };
    tokio::select! {
        biased;
        status = leader.wait_for_exit() => status,
        () = asked => None,
    }
}

// === impl OutputReader ===

impl OutputReader {
    fn new(
        pipe: pipe::Receiver,
        output: Arc<Mutex<CommandOutput>>,
        bytes_per_second: usize,
    ) -> Self {
        let (buffer, rate) = (vec![0; BUFFER_BYTES], ReadRate::new(bytes_per_second));
        Self { pipe, is_open: true, buffer, output, rate }
    }

    /// Reads output until the future is done.
    async fn while_waiting<T>(&mut self, until: impl Future<Output = T>) -> T {
        tokio::pin!(until);
        loop {
            let pause = self.rate.pause();
            tokio::select! {
                done = &mut until => return done,
                read = self.pipe.read(&mut self.buffer), if self.is_open && pause.is_none() => {
                    self.take(read);
                }
                () = sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
            }
        }
    }

    /// Reads the available output: the last output belongs before the exit. It reads from the pipe directly, because the runtime may
    /// not have been notified yet.
    fn drain(&mut self) {
        let mut left = MAX_PIPE_BYTES;
        while self.is_open && left > 0 {
            match rustix::io::read(&self.pipe, &mut self.buffer[..]) {
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                read => left = left.saturating_sub(self.take(read.map_err(io::Error::from))),
            }
        }
    }

    /// Keeps the bytes that were read, and returns their number.
    fn take(&mut self, read: io::Result<usize>) -> usize {
        let count = read.unwrap_or_default();
        let read = self.buffer.get(..count).unwrap_or_default();
        self.rate.add(count);
        lock(&self.output).push(read);
        self.is_open = count > 0;
        count
    }
}

// === impl ReadRate ===

impl ReadRate {
    fn new(bytes_per_second: usize) -> Self {
        let most = (bytes_per_second / WINDOWS_PER_SECOND as usize).max(1);
        Self { most, taken: 0, until: Instant::now() }
    }

    fn add(&mut self, bytes: usize) {
        let now = Instant::now();
        if now >= self.until {
            self.taken = 0;
            self.until = now + Duration::from_secs(1) / WINDOWS_PER_SECOND;
        }
        self.taken += bytes;
    }

    /// The time until which reading pauses. `None` if it does not pause.
    fn pause(&self) -> Option<Instant> {
        (self.taken >= self.most && Instant::now() < self.until).then_some(self.until)
    }
}

/// An exit in the protocol's terms; empty if it is unknown.
fn status_of(status: Option<std::process::ExitStatus>) -> TerminalExitStatus {
    use std::os::unix::process::ExitStatusExt as _;
    let mut exit = TerminalExitStatus::new();
    if let Some(status) = status {
        exit.exit_code = status.code().and_then(|code| u32::try_from(code).ok());
        exit.signal = status.signal().map(name_of);
    }
    exit
}

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
