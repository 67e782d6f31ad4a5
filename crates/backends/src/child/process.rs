//! A child process and the task that watches it.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncRead, DuplexStream};
use tokio::process::Command;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_sandbox::control_group::{ProgramGroup, ReachedLimit};
use uuid::Uuid;

use super::adoption::{AdoptedChild, HeldChild, HeldNote, HoldPlan, IDLE_ORPHAN_TIME, ORPHAN_TIME};
use super::broker::{BrokerListener, BrokerPlan};
use super::holder::{AdoptedLeader, HeldStreams, HolderLink};
use super::identity::Identity;
use super::limits;
use super::platform;
use super::record::Records;
use super::sandbox::{ProgramStart, SavedPolicy};
use super::tree::{self, Tree};
use super::{
    CapturedOutput, ChildOutput, Layers, Leader, MARKER, Program, Running, STEP, StartedChild,
    environment,
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
    /// The holder of a child that can outlive this server.
    hold: Option<Hold>,
    /// Where it connects to reach the network, until the broker takes it.
    broker: Mutex<Option<BrokerListener>>,
}

#[derive(Debug)]
struct Hold {
    link: HolderLink,
    note: Mutex<HeldNote>,
    /// Whether it works on when this server exits.
    outlives: AtomicBool,
    /// Cancelled when this server leaves it alone.
    detached: CancellationToken,
}

/// The process of a child, as this server waits for it.
enum ChildLeader {
    Spawned(Leader),
    Adopted(AdoptedLeader),
}

/// How a child exited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildExit {
    /// `None` if it is unknown.
    status: Option<ExitStatus>,
    /// The limit that may be the cause.
    limit: Option<ReachedLimit>,
}

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

/// A program with what it starts with.
pub(super) struct PreparedProgram<'a> {
    pub(super) program: Program<'a>,
    pub(super) env: Vec<(String, String)>,
    pub(super) policy: Option<SavedPolicy>,
    pub(super) plan: Option<HoldPlan>,
    pub(super) broker: Option<BrokerPlan>,
}

/// Spawns a program and the task that watches it.
pub(super) async fn spawn(
    instance: Uuid,
    prepared: PreparedProgram<'_>,
    records: Option<Arc<Records>>,
    running: &Arc<watch::Sender<Running>>,
) -> io::Result<SpawnedChild> {
    let PreparedProgram { program, mut env, policy, plan, broker } = prepared;
    if let Some((name, folder)) = policy.as_ref().map(SavedPolicy::variable) {
        env.retain(|(known, _)| *known != name);
        env.push((name, folder));
    }
    let ProgramStart { words, variables } =
        start_of(program, &env, policy.as_ref().map(|policy| (policy, plan.is_some())))?;
    let [named, arguments @ ..] = &words[..] else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
    };
    let mut command = Command::new(named);
    command
        .args(arguments)
        .current_dir(program.cwd)
        .env_clear()
        .envs(variables)
        .stderr(Stdio::piped());
    match &plan {
        Some(plan) => {
            command.stdin(OwnedFd::from(plan.socket.bind()?)).stdout(Stdio::null());
        }
        None => drop(command.stdin(Stdio::piped()).stdout(Stdio::piped())),
    }
    let mut leader = Leader::spawn(&mut command)?;
    // It has the listening socket too, on which a server would wait for a holder that is gone.
    drop(command);
    let missing = || io::Error::other("a stream of the child is missing");
    let mut errors = leader.take_stderr().ok_or_else(missing)?;
    let broker = match broker {
        Some(broker) => Some(broker.pass(&leader, &mut errors).await?),
        None => None,
    };
    let (broker, network) =
        broker.map_or((None, None), |(broker, network)| (Some(broker), network));
    if let (Some(policy), Some(network)) = (&policy, network) {
        policy.set_network(network);
    }
    let note = HeldNote {
        name: program.name.to_owned(),
        env: env.clone(),
        layers: policy.as_ref().map_or(Layers::NONE, SavedPolicy::layers),
        owner: Value::Null,
    };
    let held = match &plan {
        Some(plan) => Some(HeldStreams::connect(&plan.socket, &plan.secret).await),
        None => None,
    };
    let (input, output, held_errors, hold) = match held {
        Some(streams) => {
            let hold = Hold::new(streams.link, note);
            hold.save().await;
            (
                Either::Right(streams.input),
                Either::Right(streams.output),
                Some(streams.errors),
                Some(hold),
            )
        }
        None => {
            let input = leader.take_stdin().ok_or_else(missing)?;
            let output = leader.take_stdout().ok_or_else(missing)?;
            (Either::Left(input), Either::Left(output), None, None)
        }
    };
    // The identity is certain: no other process gets the id before the child is reaped.
    let identity = Identity::of(leader.pid());
    let (name, pid) = (program.name.to_owned(), leader.pid());
    let child = Child::new((instance, pid), name, env, policy, (hold, broker));
    let stderr = child.capture_errors(errors, held_errors);
    let recording = child.spawn_watch(ChildLeader::Spawned(leader), stderr, records, running);
    Ok(SpawnedChild { started: StartedChild { child, input, output }, leader: identity, recording })
}

/// Continues with a child of a previous server. Its output begins at this offset.
pub(super) fn adopt(
    instance: Uuid,
    held: HeldChild,
    from: u64,
    records: Option<Arc<Records>>,
    running: &Arc<watch::Sender<Running>>,
) -> AdoptedChild {
    let HeldChild { leader, attached, note, policy, broker } = held;
    let last_call = attached.state.sent.last_call();
    let streams = attached.start(from);
    let (owner, name, env) = (note.owner.clone(), note.name.clone(), note.env.clone());
    let hold = Hold::new(streams.link, note);
    let of_server = (Some(hold), broker);
    let child = Child::new((instance, leader.pid), name, env, Some(policy), of_server);
    let stderr = child.capture_errors(tokio::io::empty(), Some(streams.errors));
    let leader = AdoptedLeader { identity: leader, exit: streams.exit };
    // Its record was written before.
    drop(child.spawn_watch(ChildLeader::Adopted(leader), stderr, records, running));
    let (input, output) = (Either::Right(streams.input), Either::Right(streams.output));
    let started = StartedChild { child, input, output };
    AdoptedChild { started, owner, last_call, begin: streams.begin }
}

/// Returns how a program starts: what wraps it, the stage of its sandbox, and its command.
fn start_of(
    program: Program<'_>,
    env: &[(String, String)],
    policy: Option<(&SavedPolicy, bool)>,
) -> io::Result<ProgramStart> {
    let wrapper = &program.confinement.sandbox.wrap_with;
    let Some((policy, is_held)) = policy else {
        let words = wrapper.iter().chain(program.command).map(OsString::from).collect();
        return Ok(ProgramStart { words, variables: env.to_vec() });
    };
    let mut stage = match is_held {
        true => policy.held_stage(env, &[MARKER]),
        false => policy.stage(env, &[MARKER]),
    };
    let is_wrapped = !wrapper.is_empty() && !policy.is_traced();
    if let Some(executable) = stage.words.first_mut().filter(|_| is_wrapped) {
        *executable = path_for_wrapper()?.into_os_string();
        // The wrapper needs the variables by their names.
        stage.variables.extend(env.iter().cloned());
    }
    let command = program.command.iter().map(OsString::from);
    let words = wrapper.iter().map(OsString::from).chain(stage.words).chain(command).collect();
    Ok(ProgramStart { words, variables: stage.variables })
}

/// The path by which a wrapper starts this program. The name that the stages use means the program that uses it.
fn path_for_wrapper() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    match path.exists() {
        true => Ok(path),
        // An upgrade has replaced or removed the file. A stage is of the same version as its server.
        false => Ok(format!("/proc/{}/exe", std::process::id()).into()),
    }
}

// === impl Hold ===

impl Hold {
    fn new(link: HolderLink, note: HeldNote) -> Self {
        let (outlives, detached) = (AtomicBool::new(false), CancellationToken::new());
        Self { link, note: Mutex::new(note), outlives, detached }
    }

    async fn save(&self) {
        let note = serde_json::to_vec(&*lock(&self.note)).unwrap_or_default();
        self.link.note(note).await;
    }
}

// === impl ChildLeader ===

impl ChildLeader {
    async fn wait_for_exit(&self) -> Option<ExitStatus> {
        match self {
            Self::Spawned(leader) => leader.wait_for_exit().await,
            Self::Adopted(leader) => leader.wait_for_exit().await,
        }
    }

    async fn reap(self) -> bool {
        match self {
            Self::Spawned(leader) => leader.reap().await,
            Self::Adopted(leader) => leader.reap().await,
        }
    }

    /// Leaves the process to itself.
    fn leave(self) {
        if let Self::Spawned(leader) = self {
            leader.leave();
        }
    }
}

// === impl Child ===

impl Child {
    fn new(
        (instance, pid): (Uuid, u32),
        name: String,
        env: Vec<(String, String)>,
        policy: Option<SavedPolicy>,
        (hold, broker): (Option<Hold>, Option<BrokerListener>),
    ) -> Self {
        let secret = broker.as_ref().map(|broker| broker.secret.clone());
        let child = Self(Arc::new(ChildState {
            instance,
            name,
            pid,
            stderr: CapturedOutput::new("standard error", environment::secrets(&env)),
            stdout: CapturedOutput::new("standard output", environment::secrets(&env)),
            env,
            policy: policy.map(Arc::new),
            stage: watch::Sender::new(Stage::Running),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            hold,
            broker: Mutex::new(broker),
        }));
        child.hide(secret.as_deref());
        child
    }

    /// Captures its standard error, in the task that this returns: that of its stage, and its own if it is held.
    fn capture_errors(
        &self,
        own: impl AsyncRead + Send + Unpin + 'static,
        held: Option<DuplexStream>,
    ) -> JoinHandle<()> {
        let child = self.clone();
        tokio::spawn(async move {
            let read_own = child.0.stderr.read(&child.0.name, own);
            match held {
                Some(held) => {
                    tokio::join!(read_own, child.0.stderr.read(&child.0.name, held));
                }
                None => read_own.await,
            }
        })
    }

    fn spawn_watch(
        &self,
        leader: ChildLeader,
        stderr: JoinHandle<()>,
        records: Option<Arc<Records>>,
        running: &Arc<watch::Sender<Running>>,
    ) -> oneshot::Sender<()> {
        let (instance, watched, running) = (self.0.instance, self.clone(), Arc::clone(running));
        running.send_modify(|running| drop(running.children.insert(instance, watched.clone())));
        let (recording, recorded) = oneshot::channel();
        tokio::spawn(async move {
            let Some(is_clear) = watched.watch(leader, stderr).await else {
                running.send_modify(|running| drop(running.children.remove(&instance)));
                return;
            };
            // Remove the record only after its last write, or that write would restore it. Keep it if a process could not be killed: the next
            // server tries again.
            drop(recorded.await);
            // Before the record is removed: the next server removes what this one has left. Other clones of the child can live longer.
            if let Some(policy) = watched.0.policy.clone().filter(|_| is_clear) {
                drop(tokio::task::spawn_blocking(move || policy.remove()).await);
            }
            if let Some(records) = records.filter(|_| is_clear) {
                records.socket(instance).remove();
                records.remove(instance);
            }
            running.send_modify(|running| drop(running.children.remove(&instance)));
        });
        recording
    }

    /// Whether it can outlive this server.
    pub(crate) fn can_outlive(&self) -> bool {
        self.0.hold.is_some()
    }

    /// Whether it works on when this server exits.
    pub(crate) fn outlives(&self) -> bool {
        self.0.hold.as_ref().is_some_and(|hold| hold.outlives.load(Ordering::Acquire))
    }

    /// Says whether it works on when this server exits.
    pub fn set_outlives(&self, outlives: bool) {
        if let Some(hold) = &self.0.hold
            && hold.outlives.swap(outlives, Ordering::AcqRel) != outlives
        {
            hold.link.set_orphan_time(if outlives { ORPHAN_TIME } else { IDLE_ORPHAN_TIME });
        }
    }

    /// Keeps what its owner needs in the next server, if it can outlive this one.
    pub(crate) async fn keep_for_owner(&self, owner: Value) {
        if let Some(hold) = &self.0.hold {
            lock(&hold.note).owner = owner;
            hold.save().await;
        }
    }

    /// Notes that no server needs its output before this offset any more.
    pub(crate) async fn mark(&self, offset: u64) {
        if let Some(hold) = &self.0.hold {
            hold.link.mark(offset).await;
        }
    }

    /// Leaves it to the next server, if it is to outlive this one. Returns whether it is.
    pub(super) fn detach(&self) -> bool {
        let Some(hold) = self.0.hold.as_ref().filter(|_| self.outlives()) else { return false };
        hold.link.detach();
        hold.detached.cancel();
        true
    }

    /// Returns the listener to which it connects to reach the network, once. `None` if it has none.
    #[must_use]
    pub fn take_broker_listener(&self) -> Option<BrokerListener> {
        lock(&self.0.broker).take()
    }

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
    #[must_use]
    pub fn policy(&self) -> Option<&Arc<SavedPolicy>> {
        self.0.policy.as_ref()
    }

    /// Lets it work under a lease until a time since boot, if it is in a sandbox of a cluster's node. Blocks on the file system.
    /// Fails if the outer process of the sandbox, which would suspend it later, is stopped.
    pub(crate) fn extend_lease(&self, lease: Uuid, until: Duration) -> io::Result<()> {
        let Some(leases) = self.0.policy.as_ref().and_then(|policy| policy.leases()) else {
            return Ok(());
        };
        if platform::status(self.0.pid).is_some_and(|status| status.is_stopped) {
            return Err(io::Error::other("the outer process of its sandbox is stopped"));
        }
        leases.extend(lease, until)
    }

    /// Ends a lease that was released. Blocks on the file system.
    pub(crate) fn end_lease(&self, lease: Uuid) {
        if let Some(leases) = self.0.policy.as_ref().and_then(|policy| policy.leases()) {
            leases.end(lease);
        }
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
    pub(crate) fn capture(&self, name: &str, output: ChildOutput) {
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
        ended.map_or_else(|_| ChildExit::default(), |stage| stage.exit())
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
        gone.map_or_else(|_| ChildExit::default(), |stage| stage.exit())
    }

    /// Watches the child until it and its descendants are gone or could not be killed. Returns whether all are gone; `None` if it is left to the next server.
    async fn watch(&self, leader: ChildLeader, stderr: JoinHandle<()>) -> Option<bool> {
        let instance = self.0.instance.to_string();
        let tree = Tree::default().with_variable(MARKER, &instance).with_group(self.0.pid);
        let detached = async {
            match &self.0.hold {
                Some(hold) => hold.detached.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let exit = tokio::select! {
            biased;
            () = detached => {
                leader.leave();
                // The next server needs the file of its policy.
                self.0.policy.iter().for_each(|policy| policy.leave());
                return None;
            }
            status = self.exit(&leader, &tree) => self.explain(status).await,
        };
        // Read its standard error before the exit is reported, so that errors can show its end.
        drop(tokio::time::timeout(STDERR_GRACE, stderr).await);
        self.0.stage.send_replace(Stage::Exited(exit));
        let is_clear = self.clear(&tree).await;
        // It also has processes that hide from the tree.
        let group = self.group().map(|group| group.folder().to_owned());
        let is_clear = limits::end_groups(group.into_iter().collect()).await && is_clear;
        // Reap last: after this, another group can get the same id.
        if !leader.reap().await {
            tracing::warn!(pid = self.0.pid, "a process does not exit");
        }
        self.0.stage.send_replace(Stage::Gone(exit));
        Some(is_clear)
    }

    fn group(&self) -> Option<&ProgramGroup> {
        self.0.policy.as_ref().and_then(|policy| policy.group())
    }

    /// Adds the limit that may have ended the child.
    async fn explain(&self, status: Option<ExitStatus>) -> ChildExit {
        let exit = ChildExit { status, limit: None };
        let Some(group) = self.group().filter(|_| !exit.is_success()).cloned() else { return exit };
        let reached = tokio::task::spawn_blocking(move || group.reached_limit()).await;
        ChildExit { limit: reached.unwrap_or_default(), ..exit }
    }

    /// Waits until the child exits, and stops or kills it on request. Returns `None` if its status is unknown.
    async fn exit(&self, leader: &ChildLeader, tree: &Tree) -> Option<ExitStatus> {
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
        self.status.is_some_and(|status| status.success())
    }
}

/// Writes a verb phrase that completes "the process …".
impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status.map(|status| (status, status.code(), status.signal())) {
            None => f.write_str("exited with an unknown status")?,
            Some((_, Some(code), _)) => write!(f, "exited with status {code}")?,
            Some((_, None, Some(signal))) => write!(f, "was killed by signal {signal}")?,
            Some((status, None, None)) => write!(f, "exited: {status}")?,
        }
        self.limit.map_or(Ok(()), |limit| write!(f, ": {limit}"))
    }
}

// === impl Stage ===

impl Stage {
    fn exit(self) -> ChildExit {
        match self {
            Self::Running => ChildExit::default(),
            Self::Exited(exit) | Self::Gone(exit) => exit,
        }
    }
}
