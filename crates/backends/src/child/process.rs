//! A child process and the task that watches it.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::identity::Identity;
use super::record::Records;
use super::sandbox::{ProgramStart, SavedPolicy};
use super::tree::{self, Tree};
use super::{
    CapturedOutput, Layers, Leader, MARKER, Program, Running, STEP, StartedChild, environment,
};

/// How long to wait for the end of a child's standard error after its exit: its descendants may hold the stream open.
const STDERR_GRACE: Duration = Duration::from_millis(250);
/// How long a killed child may take to exit. A process that hangs in the kernel may never exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// A child process with all its descendants. Cheap to clone. It keeps running when all clones are dropped.
#[derive(Clone, Debug)]
pub struct Child(Arc<ChildState>);

#[derive(Debug)]
struct ChildState {
    instance: Uuid,
    /// The name of its agent.
    name: String,
    pid: u32,
    env: Vec<(String, String)>,
    /// Its sandbox, if it has one.
    policy: Option<Arc<SavedPolicy>>,
    stderr: CapturedOutput,
    /// The part of its standard output that was not a message.
    stdout: CapturedOutput,
    stage: watch::Sender<Stage>,
    /// Stops the child, but first gives it time to exit by itself.
    stop: CancellationToken,
    kill: CancellationToken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildExit(Option<ExitStatus>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Running,
    /// The child itself has exited. Its descendants may still run.
    Exited(ChildExit),
    Gone(ChildExit),
}

pub(super) struct SpawnedChild {
    pub(super) started: StartedChild,
    pub(super) leader: Option<Identity>,
    /// Dropped after the record is written. The watching task waits for that before it removes the record.
    pub(super) recording: oneshot::Sender<()>,
}

/// Spawns a program and the task that watches it.
pub(super) fn spawn(
    instance: Uuid,
    (program, mut env, policy): (Program<'_>, Vec<(String, String)>, Option<SavedPolicy>),
    records: Option<Arc<Records>>,
    running: &Arc<watch::Sender<Running>>,
) -> io::Result<SpawnedChild> {
    if let Some((name, folder)) = policy.as_ref().map(SavedPolicy::variable) {
        env.retain(|(known, _)| *known != name);
        env.push((name, folder));
    }
    let ProgramStart { words, variables } = start_of(program, &env, policy.as_ref())?;
    let [named, arguments @ ..] = &words[..] else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
    };
    let mut command = Command::new(named);
    command
        .args(arguments)
        .current_dir(program.cwd)
        .env_clear()
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut leader = Leader::spawn(&mut command)?;
    let missing = || io::Error::other("a stream of the child is missing");
    let input = leader.take_stdin().ok_or_else(missing)?;
    let output = leader.take_stdout().ok_or_else(missing)?;
    let errors = leader.take_stderr().ok_or_else(missing)?;
    let pid = leader.pid();
    // The identity is certain: no other process gets the id before the child is reaped.
    let identity = Identity::of(pid);
    let child = Child(Arc::new(ChildState {
        instance,
        name: program.name.to_owned(),
        pid,
        stderr: CapturedOutput::new("standard error", environment::secrets(&env)),
        stdout: CapturedOutput::new("standard output", environment::secrets(&env)),
        env,
        policy: policy.map(Arc::new),
        stage: watch::Sender::new(Stage::Running),
        stop: CancellationToken::new(),
        kill: CancellationToken::new(),
    }));
    running.send_modify(|running| drop(running.children.insert(instance, child.clone())));
    let (name, reads) = (program.name.to_owned(), child.clone());
    let stderr = tokio::spawn(async move { reads.0.stderr.read(&name, errors).await });
    let (watched, running) = (child.clone(), Arc::clone(running));
    let (recording, recorded) = oneshot::channel();
    tokio::spawn(async move {
        let is_clear = watched.watch(leader, stderr).await;
        // Remove the record only after its last write, or that write would restore it. Keep it if a process could not be killed: the next
        // server tries again.
        drop(recorded.await);
        // Before the record is removed: the next server removes what this one has left. Other clones of the child can live longer.
        if let Some(policy) = watched.0.policy.clone().filter(|_| is_clear) {
            drop(tokio::task::spawn_blocking(move || policy.remove()).await);
        }
        if let Some(records) = records.filter(|_| is_clear) {
            records.remove(instance);
        }
        running.send_modify(|running| drop(running.children.remove(&instance)));
    });
    Ok(SpawnedChild { started: StartedChild { child, input, output }, leader: identity, recording })
}

/// Returns how a program starts: what wraps it, the stage of its sandbox, and its command.
fn start_of(
    program: Program<'_>,
    env: &[(String, String)],
    policy: Option<&SavedPolicy>,
) -> io::Result<ProgramStart> {
    let wrapper = &program.confinement.sandbox.wrap_with;
    let Some(policy) = policy else {
        let words = wrapper.iter().chain(program.command).map(OsString::from).collect();
        return Ok(ProgramStart { words, variables: env.to_vec() });
    };
    let mut stage = policy.stage(env, &[MARKER]);
    if let Some(executable) = stage.words.first_mut().filter(|_| !wrapper.is_empty()) {
        // The other name means the program that uses it.
        *executable = std::env::current_exe()?.into_os_string();
        // The wrapper needs the variables by their names.
        stage.variables.extend(env.iter().cloned());
    }
    let command = program.command.iter().map(OsString::from);
    let words = wrapper.iter().map(OsString::from).chain(stage.words).chain(command).collect();
    Ok(ProgramStart { words, variables: stage.variables })
}

// === impl Child ===

impl Child {
    /// Returns the value of [`super::MARKER`] in its environment.
    #[must_use]
    pub fn instance(&self) -> Uuid {
        self.0.instance
    }

    /// Returns the name of its agent.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.0.pid)
    }

    #[must_use]
    pub fn env(&self) -> &[(String, String)] {
        &self.0.env
    }

    /// Returns its sandbox, which the commands have that it runs through the server.
    pub(crate) fn policy(&self) -> Option<&Arc<SavedPolicy>> {
        self.0.policy.as_ref()
    }

    /// Returns the layers of its sandbox.
    #[must_use]
    pub fn layers(&self) -> Layers {
        self.0.policy.as_ref().map_or(Layers::NONE, |policy| policy.layers())
    }

    #[must_use]
    pub fn captured(&self) -> &CapturedOutput {
        &self.0.stderr
    }

    /// Whether processes that it has started run, in any process group. `false` on systems that do not show processes.
    pub(crate) async fn has_descendants(&self) -> bool {
        // The agent itself, and the stages of its sandbox.
        let layers = self.layers();
        let own = 1 + usize::from(layers.is_any()) + usize::from(layers.namespaces);
        tree::has_more_than(own, self.0.pid).await
    }

    /// Returns the part of its standard output that was not a message.
    pub(crate) fn stray_output(&self) -> &CapturedOutput {
        &self.0.stdout
    }

    /// Forgets all captured output.
    pub(crate) fn clear_output(&self) {
        self.0.stderr.clear();
        self.0.stdout.clear();
    }

    /// Redacts these secrets wherever the captured output is shown. Values of less than eight bytes are not redacted.
    pub fn hide<'a>(&self, values: impl IntoIterator<Item = &'a str>) {
        let values: Vec<_> = values.into_iter().collect();
        self.0.stderr.hide(values.iter().copied());
        self.0.stdout.hide(values.into_iter());
    }

    /// Captures its whole standard output, for a child whose output carries no messages for the server.
    pub(crate) fn capture(&self, name: &str, output: ChildStdout) {
        let (name, child) = (name.to_owned(), self.clone());
        tokio::spawn(async move { child.0.stdout.read(&name, output).await });
    }

    #[must_use]
    pub fn has_exited(&self) -> bool {
        *self.0.stage.borrow() != Stage::Running
    }

    /// Waits until the child itself has exited. Its standard error is then read to the end, unless a descendant holds the stream open.
    pub async fn exited(&self) -> ChildExit {
        let mut stage = self.0.stage.subscribe();
        let ended = stage.wait_for(|stage| *stage != Stage::Running).await;
        ended.map_or(ChildExit(None), |stage| stage.exit())
    }

    /// Stops the child and its descendants. Waits up to [`STEP`] for the child to exit by itself, as most children do after their standard
    /// input was closed. Then sends `TERM`, waits again, and kills what remains. Returns when all are gone or could not be killed.
    pub async fn stop(&self) -> ChildExit {
        self.0.stop.cancel();
        self.wait_until_gone().await
    }

    /// Kills the child and its descendants. Returns when all are gone or could not be killed.
    pub async fn kill(&self) -> ChildExit {
        self.0.kill.cancel();
        self.wait_until_gone().await
    }

    /// Like [`Self::stop`], but does not wait.
    pub fn begin_stop(&self) {
        self.0.stop.cancel();
    }

    /// Like [`Self::kill`], but does not wait.
    pub fn begin_kill(&self) {
        self.0.kill.cancel();
    }

    async fn wait_until_gone(&self) -> ChildExit {
        let mut stage = self.0.stage.subscribe();
        let gone = stage.wait_for(|stage| matches!(stage, Stage::Gone(_))).await;
        gone.map_or(ChildExit(None), |stage| stage.exit())
    }

    /// Watches the child until it and its descendants are gone or could not be killed. Returns whether all are gone.
    async fn watch(&self, leader: Leader, stderr: JoinHandle<()>) -> bool {
        let instance = self.0.instance.to_string();
        let tree = Tree::default().with_variable(MARKER, &instance).with_group(leader.pid());
        let exit = ChildExit(self.exit(&leader, &tree).await);
        // Read its standard error before the exit is reported, so that errors can show its end.
        drop(tokio::time::timeout(STDERR_GRACE, stderr).await);
        self.0.stage.send_replace(Stage::Exited(exit));
        let is_clear = self.clear(&tree).await;
        // Reap last: after this, another group can get the same id.
        if !leader.reap().await {
            tracing::warn!(pid = self.0.pid, "a process does not exit");
        }
        self.0.stage.send_replace(Stage::Gone(exit));
        is_clear
    }

    /// Waits until the child exits, and stops or kills it on request. Returns `None` if its status is unknown.
    async fn exit(&self, leader: &Leader, tree: &Tree) -> Option<ExitStatus> {
        let asked = async {
            self.0.stop.cancelled().await;
            // Find its descendants before it exits: their parent links are lost after that.
            tree.remember().await;
            tokio::time::sleep(STEP).await;
            tree.signal(Signal::TERM).await;
            tokio::time::sleep(STEP).await;
        };
        tokio::select! {
            biased;
            () = self.0.kill.cancelled() => {}
            exit = leader.wait_for_exit() => return exit,
            () = asked => {}
        }
        tree.kill().await;
        tokio::time::timeout(KILL_TIMEOUT, leader.wait_for_exit()).await.ok().flatten()
    }

    /// Stops the descendants that run after the child's exit. Returns whether all are gone.
    async fn clear(&self, tree: &Tree) -> bool {
        if !self.0.kill.is_cancelled() {
            if tree.is_gone().await {
                return true;
            }
            tree.signal(Signal::TERM).await;
            let gone = tokio::select! {
                biased;
                () = self.0.kill.cancelled() => false,
                gone = tree.gone_within(STEP) => gone,
            };
            if gone {
                return true;
            }
        }
        tree.kill().await
    }
}

// === impl ChildExit ===

impl ChildExit {
    /// Returns whether the exit status is zero.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.0.is_some_and(|status| status.success())
    }
}

/// Writes a verb phrase that completes "the process …".
impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.0 else { return f.write_str("exited with an unknown status") };
        match (status.code(), status.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}"),
            (None, Some(signal)) => write!(f, "was killed by signal {signal}"),
            (None, None) => write!(f, "exited: {status}"),
        }
    }
}

// === impl Stage ===

impl Stage {
    fn exit(self) -> ChildExit {
        match self {
            Self::Running => ChildExit(None),
            Self::Exited(exit) | Self::Gone(exit) => exit,
        }
    }
}
