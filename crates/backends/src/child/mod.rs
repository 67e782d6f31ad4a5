//! Starts, watches and stops child processes, so that none is left behind.
//!
//! # Invariants
//! - Every child leads a separate process group and has [`MARKER`] in its environment. Its descendants inherit the marker. It is stopped
//!   with all processes that its group, its marker or their parents identify, however deep in wrappers. A process is missed only if it has
//!   another environment and a separate session, and its parent exited before the first look. Systems without `/proc` see groups only.
//! - A child is recorded on disk before it exists, and until it and its descendants are gone. The next server that opens the same folder
//!   stops the processes that a killed server has left, by that identity and never by name. It leaves a running server's children alone.
//! - A child is reaped only after its group is gone or could not be killed, so that no signal reaches another group with the same id.
//! - Nothing is started after a close.
//! - A child gets only the variables of [`INHERITED`], those that its owner names, and its marker. Values of variables that not every
//!   child has are redacted in its output.

mod adoption;
mod ancestry;
mod breaker;
mod broker;
mod budget;
mod captured_output;
mod environment;
mod exit;
mod held_output;
mod holder;
mod identity;
mod leases;
mod limits;
mod pass_socket;
mod platform;
mod process;
mod program;
mod record;
mod redact;
mod sandbox;
mod search_path;
mod sent_labels;
#[cfg(target_os = "linux")]
mod sock_diag;
mod strays;
#[cfg(target_os = "linux")]
mod tcp_sockets;
mod trace;
pub(crate) mod tree;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use metrics::counter;
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_util::either::Either;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::lock;
use trilogue_domain::port::PeerFinding;
use uuid::Uuid;

pub(crate) use breaker::Breaker;
use broker::BrokerPlan;
pub use broker::{BrokerAddress, BrokerListener, BrokerVariables};
pub(crate) use budget::IdleChild;
pub use budget::{Budget, ChildUsage};
pub use captured_output::CapturedOutput;
pub use environment::{INHERITED, SERVER_PREFIX, inherited};
pub(crate) use exit::{EXIT_GRACE, OUTPUT_TAIL_BYTES, how_it_exited, output_tail};
pub use process::{Child, ChildExit};
pub(crate) use program::{COMMAND_MARKER, check_program};
pub use program::{InvalidSetting, MARKER, Program, STEP};
pub(crate) use redact::{address_secrets, texts};
pub use sandbox::{Confinement, Sandbox, SandboxMode, SavedPolicy};
pub use search_path::{find_program, join_folders, search_folders};
pub use trace::{ChildTrace, TraceFiles};
use trilogue_sandbox::LeaseFile;
pub use trilogue_sandbox::control_group::GroupLimits;
pub use trilogue_sandbox::{Layers, Network};
pub use trilogue_sdk::Leader;

pub use adoption::AdoptedChild;
use adoption::{HeldChildren, HoldPlan};
pub use holder::{BeginOutput, HolderInput};
pub(crate) use identity::Identity;
use platform::SEES_PROCESSES;
pub(crate) use platform::machine;
use process::{PreparedProgram, SpawnedChild};
use record::{RecordedChild, Records};
use sandbox::StagePlan;
pub(crate) use sandbox::{ProgramStart, sandbox_hint};
pub(crate) use strays::kill as kill_stray;

/// Counts the processes that were started, by agent.
const STARTS: &str = "trilogue_agent_process_starts_total";
/// Counts the processes that did not start, or exited by themselves before they were of use, by agent.
const FAILURES: &str = "trilogue_agent_process_failures_total";
/// How long a close waits for starts in progress.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a close waits for the leases of folders, which may be on a shared file system.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Children {
    records: Option<Arc<Records>>,
    running: Arc<watch::Sender<Running>>,
    strays: usize,
    budget: Mutex<Budget>,
    /// The children that can be stopped while they are idle.
    idle: Mutex<Vec<Weak<dyn IdleChild>>>,
    /// The name of this server among the servers that share its store.
    node: OnceLock<String>,
    /// What a close releases when no child is left.
    leases: Mutex<Vec<Weak<dyn ChildLease>>>,
    /// The children of previous servers that can be continued with.
    held: HeldChildren,
    /// Names the store of this server.
    store: String,
    /// Set when the agents end with this server.
    ends_all: AtomicBool,
}

/// The standard input of a child.
pub type ChildInput = Either<ChildStdin, HolderInput>;
/// The standard output of a child.
pub type ChildOutput = Either<ChildStdout, DuplexStream>;

/// A lease under which children work.
pub(crate) trait ChildLease: Send + Sync + fmt::Debug {
    /// Releases it. Blocks, and does nothing if it was released before.
    fn release(&self);
}

#[derive(Debug, Default)]
struct Running {
    /// Set by a close.
    is_closed: bool,
    starting: usize,
    children: HashMap<Uuid, Child>,
}

/// The owner of the other end of a connection, seen from this machine.
#[derive(Debug)]
enum PeerSocket {
    /// On another machine, or owned by another user.
    Elsewhere,
    /// Its process has closed it.
    Gone,
    HeldBy(Vec<u32>),
    /// One of these processes may hold it, but their descriptors cannot be read.
    HeldByOneOf(Vec<u32>),
    /// Probably on another machine: the sockets of this one cannot be listed.
    Unknown,
}

/// A start in progress. A close waits for it.
struct StartingChild<'a>(&'a watch::Sender<Running>);

#[derive(Debug)]
pub struct StartedChild {
    pub child: Child,
    pub input: ChildInput,
    pub output: ChildOutput,
}

/// Kills a child on drop, unless it was handed to the caller: a start can fail or be cancelled after the spawn.
struct KillOnDrop(Option<StartedChild>);

/// Returns a name for this machine's boot and process id namespace. Empty if it is unknown.
#[must_use]
pub fn machine_name() -> String {
    let (boot, namespace) = platform::machine();
    if boot.is_empty() { String::new() } else { format!("{boot}/{namespace}") }
}

// === impl Children ===

impl Children {
    /// Opens the folder `children` in the state folder and stops the children that previous servers left. The folder records running
    /// children. Without a state folder no child is recorded or found.
    /// Errors: `internal` if the folder cannot be created or read.
    pub async fn open(state: Option<PathBuf>) -> Result<Arc<Self>> {
        Self::open_for(state, "").await
    }

    /// The same for a server of this store. Children can outlive a server, and are for the next one of the same store, after [`Self::adopt_held`]: until then, all stay alone.
    pub async fn open_for(state: Option<PathBuf>, store: &str) -> Result<Arc<Self>> {
        let store = Uuid::new_v5(&Uuid::NAMESPACE_URL, store.as_bytes()).to_string();
        let (mut records, mut strays) = (None, 0);
        limits::enter_leaf();
        if let Some(state) = state {
            let folder = state.join("children");
            let opened = tokio::task::spawn_blocking(move || {
                Records::open(&folder, |server| !adoption::has_held(server, None))
            });
            let opened = opened.await;
            let opened = opened.map_err(|_| broken("the records of children could not be read"))?;
            let (opened, previous) = opened.map_err(|error| {
                broken(format!("the records of children cannot be read: {error}"))
            })?;
            strays = strays::stop(previous, |_| false).await;
            records = Some(Arc::new(opened));
        }
        if strays > 0 {
            tracing::warn!(strays, "stopped processes that a previous server has left");
        }
        Ok(Arc::new(Self { records, strays, store, ..Self::default() }))
    }

    /// Adopts the children of previous servers of this store that can be continued with. Call it once the store is open: of two servers that start at once, only one gets so far.
    /// Errors: `internal` if the records cannot be read.
    pub async fn adopt_held(&self) -> Result<()> {
        let Some(records) = self.records.clone() else { return Ok(()) };
        let (taken, store) = (Arc::clone(&records), self.store.clone());
        let previous = tokio::task::spawn_blocking(move || {
            taken.take_previous(|server| adoption::has_held(server, Some(&store)))
        });
        let unreadable =
            |why: String| broken(format!("the records of children cannot be read: {why}"));
        let previous = previous.await.map_err(|error| unreadable(error.to_string()))?;
        let previous = previous.map_err(|error| unreadable(error.to_string()))?;
        self.held.adopt(&previous, &records).await;
        strays::stop(previous, |instance| self.held.has(instance)).await;
        Ok(())
    }

    /// Gives the runs of previous servers a moment to continue with their children, in a task. Then ends the children with which none does. Call it when all runs are recovered: before
    /// that, and if this server is closed first, the children stay for the next one.
    pub fn end_unclaimed(self: &Arc<Self>) {
        let (Some(closed), Some(records)) = (self.wait_for_close(), self.records.clone()) else {
            return;
        };
        let children = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(adoption::CLAIM_TIME) => {}
                () = closed => return,
            }
            if let Some(children) = children.upgrade() {
                children.held.end(|_| true, &records).await;
            }
        });
    }

    /// Ends the children of previous servers of which this is true, by what their owners have kept.
    pub(crate) async fn end_held(&self, is_it: impl Fn(&Value) -> bool + Send) {
        if let Some(records) = &self.records {
            self.held.end(|note| is_it(&note.owner), records).await;
        }
    }

    /// Continues with a child of a previous server, whose output begins at this offset. `None` if it is gone.
    #[must_use]
    pub fn adopt(&self, instance: Uuid, agent: &str, from: u64) -> Option<AdoptedChild> {
        let held = self.held.take(instance)?;
        // Its holder may have lost a part of the turn.
        if held.attached.state.kept_from > from || held.note.name != agent {
            self.held.put_back(instance, held);
            return None;
        }
        Some(process::adopt(instance, held, from, self.records.clone(), &self.running))
    }

    /// Returns how many processes of previous servers [`Self::open`] found and stopped.
    #[must_use]
    pub const fn strays(&self) -> usize {
        self.strays
    }

    /// Sets the name of this server among the servers that share its store. After that, its agents hold a lease on their working folder.
    pub fn set_node(&self, name: &str) {
        // The name is set once and never changes.
        drop(self.node.set(name.to_owned()));
    }

    pub(crate) fn node(&self) -> Option<&str> {
        self.node.get().map(String::as_str)
    }

    /// Has [`Self::close`] release a lease: its other holders may not be dropped before the server exits.
    pub(crate) fn release_at_close(&self, lease: Weak<dyn ChildLease>) {
        let mut leases = lock(&self.leases);
        leases.retain(|lease| lease.strong_count() > 0);
        leases.push(lease);
    }

    /// Returns whether [`Self::close`] was called: no child is started any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.running.borrow().is_closed
    }

    /// Returns a future that ends with [`Self::close`], for what must not outlive the server. `None` after a close.
    pub(crate) fn wait_for_close(&self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let mut running = self.running.subscribe();
        let is_closed = running.borrow().is_closed;
        (!is_closed).then_some(async move {
            // The wait fails if the server is gone.
            drop(running.wait_for(|running| running.is_closed).await);
        })
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.running.borrow().children.len()
    }

    /// Returns whether a process is a child, was started by one, or has the marker of an agent of any server on this machine. Returns `true`
    /// for a process that is gone, because it may have been one.
    ///
    /// It reads the processes of this machine. Systems without `/proc` know children only.
    #[must_use]
    pub fn has_process(&self, pid: u32) -> bool {
        ancestry::is_of_agent(pid, &self.all()).unwrap_or(true)
    }

    /// Returns whether the other end of a connection to this server belongs to an agent's process on this machine, as in
    /// [`Self::has_process`]. If no process holds that end, it counts as one while an agent of any server runs on this machine: its process may have been one,
    /// or an agent keeps it in the queue of another socket.
    /// Never finds one on systems without `/proc`.
    #[must_use]
    pub fn find_peer(&self, peer: SocketAddr, server: SocketAddr) -> PeerFinding {
        let (of_agent, of_other) = (PeerFinding::lasting(true), PeerFinding::lasting(false));
        if !SEES_PROCESSES {
            return of_other;
        }
        let all = self.all();
        // It reads all processes, and is seldom needed.
        let oldest_agent = || ancestry::oldest_agent(&all);
        match platform::peer_of(peer, server) {
            PeerSocket::Elsewhere => of_other,
            PeerSocket::Unknown => PeerFinding::passing(false),
            PeerSocket::Gone => PeerFinding::passing(oldest_agent().is_some()),
            PeerSocket::HeldBy(pids) => {
                let found: Vec<_> =
                    pids.into_iter().map(|pid| ancestry::is_of_agent(pid, &all)).collect();
                match found.contains(&Some(true)) {
                    true => of_agent,
                    // A process that is gone may have been an agent's.
                    false if found.contains(&None) => {
                        PeerFinding::passing(oldest_agent().is_some())
                    }
                    false => of_other,
                }
            }
            PeerSocket::HeldByOneOf(pids) => {
                let oldest = oldest_agent();
                let is_agent = |pid| {
                    let is_known = ancestry::is_of_agent(pid, &all) == Some(true);
                    let may_be = |oldest| ancestry::may_be_of(pid, &all, oldest);
                    is_known || oldest.is_some_and(may_be)
                };
                let is_of_agent = pids.into_iter().any(is_agent);
                // None of them need hold it: an agent can keep it in the queue of another socket.
                let may_be_queued = || oldest.is_some() && platform::has_descriptors_in_flight();
                PeerFinding::passing(is_of_agent || may_be_queued())
            }
        }
    }

    /// Returns the name of the child with this process id, and the end of its standard error and stray output. `None` if no child has this id.
    #[must_use]
    pub fn stderr(&self, pid: u32) -> Option<(String, String)> {
        let child = self.all().into_iter().find(|child| child.pid() == Some(pid))?;
        let stray = child.stray_output();
        let mut text = child.captured().tail(captured_output::KEPT_BYTES);
        let output = stray.tail(captured_output::KEPT_BYTES);
        if !output.is_empty() {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{}:\n{output}", stray.stream()));
        }
        Some((child.name().to_owned(), text))
    }

    fn all(&self) -> Vec<Child> {
        self.running.borrow().children.values().cloned().collect()
    }

    /// Starts a program.
    /// Errors: `agent_failed` if it cannot be started, `internal` if it cannot be recorded, `shutting_down` after a close.
    pub async fn start(&self, program: Program<'_>) -> Result<StartedChild> {
        let _starting = StartingChild::begin(&self.running)?;
        let instance = Uuid::new_v4();
        // Record the marker before the spawn: if this server is killed in between, the next one still finds the child.
        let mut recorded = RecordedChild::new(instance, limits::group_folder(instance));
        if let Some(records) = &self.records {
            record(records, recorded.clone(), None).await?;
        }
        let mut env = environment::of(program, instance);
        let file = self.records.as_ref().map(|records| records.policy_path(instance));
        let plan = self.hold_plan(program, instance);
        if let Some(plan) = &plan {
            (recorded.secret, recorded.store) =
                (Some(plan.secret.clone()), Some(plan.store.clone()));
        }
        let lease = self.lease_file(instance);
        let spawning = async {
            let broker = self.broker_plan(program, (instance, plan.is_some()))?;
            if let (Some(broker), Some(variables)) = (&broker, program.broker) {
                broker.add_variables(variables, &mut env);
            }
            let (hold, broker_settings) =
                (plan.as_ref().map(HoldPlan::settings), broker.as_ref().map(BrokerPlan::settings));
            let stage = StagePlan { hold, lease, broker: broker_settings };
            let policy = confine(program, &env, (instance, file, stage)).await?;
            let plan = plan.filter(|_| policy.is_some());
            let prepared = PreparedProgram { program, env, policy, plan, broker };
            process::spawn(instance, prepared, self.records.clone(), &self.running).await
        };
        let spawned = spawning.await;
        let SpawnedChild { started, leader, recording } = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                if let Some(records) = &self.records {
                    records.socket(instance).remove();
                    records.remove(instance);
                }
                return Err(not_started(program, &error));
            }
        };
        counter!(STARTS, "agent" => program.name.to_owned()).increment(1);
        let mut guard = KillOnDrop(Some(started));
        if let Some(records) = &self.records {
            recorded.leader = leader;
            record(records, recorded, Some(recording)).await?;
        }
        guard.0.take().ok_or_else(|| broken("a child was not started"))
    }

    /// How a program is held, if it can outlive this server.
    fn hold_plan(&self, program: Program<'_>, instance: Uuid) -> Option<HoldPlan> {
        let sandbox = program.confinement.sandbox;
        // Another node can take over the thread of an agent without a server, and work in the same folder.
        let is_alone = self.node().is_none();
        let is_held = program.can_outlive
            && is_alone
            && sandbox.layers().is_any()
            && sandbox.wrap_with.is_empty();
        let records = self.records.as_ref().filter(|_| is_held)?;
        Some(HoldPlan::new(records.socket(instance), self.store.clone()))
    }

    /// How a program reaches the broker, if it does.
    fn broker_plan(
        &self,
        program: Program<'_>,
        (instance, is_held): (Uuid, bool),
    ) -> io::Result<Option<BrokerPlan>> {
        let socket = match &self.records {
            Some(records) => records.broker_socket(instance),
            None => sandbox::temporary_broker_socket(instance),
        };
        let sandbox = program.confinement.sandbox;
        // A traced program runs without its sandbox.
        let network = if sandbox.trace.is_some() { Network::Open } else { sandbox.network };
        BrokerPlan::create((network, sandbox.layers()), (socket, is_held))
    }

    /// The file by which a child works under leases: another node can take over its folder.
    fn lease_file(&self, instance: Uuid) -> Option<LeaseFile> {
        self.node()?;
        self.records.as_ref().map(|records| LeaseFile::new(records.lease_path(instance)))
    }

    /// Has all children end with this server, which is about to stop.
    pub fn end_with_server(&self) {
        self.ends_all.store(true, Ordering::Release);
        self.all().iter().for_each(|child| child.set_outlives(false));
    }

    /// Stops all children and refuses further starts. Returns when all have ended. Leaves processes that cannot be killed to the next server.
    pub async fn close(&self) {
        self.running.send_modify(|running| running.is_closed = true);
        let mut running = self.running.subscribe();
        let settled = timeout(START_TIMEOUT, running.wait_for(|running| running.starting == 0));
        if settled.await.is_err() {
            tracing::warn!("a child is still being started during the shutdown");
        }
        let all: Vec<_> = self.running.borrow().children.values().cloned().collect();
        let ends_all = self.ends_all.load(Ordering::Acquire);
        let stopped = all.iter().filter(|child| ends_all || !child.detach());
        futures_util::future::join_all(stopped.map(Child::stop)).await;
        // The wait fails only if the sender is dropped, and `self` holds the sender.
        drop(running.wait_for(|running| running.children.is_empty()).await);
        self.held.leave();
        let leases = std::mem::take(&mut *lock(&self.leases));
        // Each in a task: a folder that hangs must not keep the leases of others.
        let releases = leases.iter().filter_map(Weak::upgrade);
        let releases = releases.map(|lease| tokio::task::spawn_blocking(move || lease.release()));
        let released = futures_util::future::join_all(releases);
        if timeout(RELEASE_LIMIT, released).await.is_err() {
            tracing::warn!("the leases of agents' folders were not released during the shutdown");
        }
        if let Some(records) = &self.records {
            records.retire();
        }
    }
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children").field("count", &self.count()).finish_non_exhaustive()
    }
}

// === impl StartingChild ===

impl<'a> StartingChild<'a> {
    fn begin(running: &'a watch::Sender<Running>) -> Result<Self> {
        let is_open = running.send_if_modified(|running| {
            running.starting += usize::from(!running.is_closed);
            !running.is_closed
        });
        if !is_open {
            return Err(Error::new(
                Code::ShuttingDown,
                "the server is shutting down and starts no agents",
            ));
        }
        Ok(Self(running))
    }
}

impl Drop for StartingChild<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| running.starting -= 1);
    }
}

// === impl KillOnDrop ===

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(started) = &self.0 {
            started.child.begin_kill();
        }
    }
}

/// Writes a record, then drops `recording`. A cancelled caller does not stop the write.
async fn record(
    records: &Arc<Records>,
    child: RecordedChild,
    recording: Option<oneshot::Sender<()>>,
) -> Result<()> {
    let records = Arc::clone(records);
    let written = tokio::task::spawn_blocking(move || {
        let written = records.write(&child);
        // The watcher waits for this before it removes the record. Otherwise this write could restore it.
        drop(recording);
        written
    });
    let written = written.await;
    match written {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(broken(format!("a child could not be recorded: {error}"))),
        Err(_) => Err(broken("a child could not be recorded")),
    }
}

/// Saves the policy of a program in a sandbox to this file. `None` for one that has no sandbox, or no layer of it.
/// Fails as the start of the program would, if the program is missing.
async fn confine(
    program: Program<'_>,
    env: &[(String, String)],
    (instance, file, stage): (Uuid, Option<PathBuf>, StagePlan),
) -> io::Result<Option<SavedPolicy>> {
    let confinement = program.confinement;
    let (sandbox, private) = (confinement.sandbox.clone(), confinement.private.clone());
    let (folders, start) = (confinement.folders.to_vec(), program.cwd.to_owned());
    let (mut command, env) = (program.command.to_vec(), env.to_vec());
    let saved = tokio::task::spawn_blocking(move || {
        let confinement = Confinement { sandbox: &sandbox, folders: &folders, private: &private };
        if let Some(named) = command.first_mut().filter(|_| sandbox.has_policy()) {
            let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| &**path);
            let found = find_program(named, &start, path).ok_or(io::ErrorKind::NotFound)?;
            if found.metadata()?.permissions().mode() & 0o111 == 0 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            *named = found.to_string_lossy().into_owned();
        }
        confinement.save_policy((instance, file, stage), (&command, &env, &start))
    });
    saved.await.map_err(io::Error::other)?
}

/// Counts a process that did not start, or exited by itself before it was of use.
pub(crate) fn count_failure(agent: &str) {
    counter!(FAILURES, "agent" => agent.to_owned()).increment(1);
}

fn not_started(program: Program<'_>, error: &io::Error) -> Error {
    let words = program.confinement.sandbox.wrap_with.iter().chain(program.command);
    let command = words.map(String::as_str).next().unwrap_or_default();
    let message = format!(
        "'{}' cannot be started in '{}': {error}",
        command.escape_debug(),
        program.cwd.display()
    );
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            "check that the program is on the PATH and that the folder exists"
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::ConnectionAborted => "see docs/sandbox.md",
        _ => "check the program's permissions and the folder",
    };
    Error::new(Code::AgentFailed, message).hint(hint)
}

fn broken(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Code::Internal, message)
}
