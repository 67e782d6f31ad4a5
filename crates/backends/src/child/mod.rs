//! Child processes: how they are started, watched and stopped, so that none is left behind.
//!
//! # Invariants
//! - Every child leads a process group of its own and has [`MARKER`] in its environment, which its descendants inherit. It is stopped
//!   with all processes that these two or their parents tell, however deep in wrappers. A process is missed only if it was started with
//!   another environment in a session of its own, by a parent that exited before the first look. Systems without `/proc` see groups only.
//! - A child is recorded on disk before it exists and until nothing is left of it. The next server that opens the same folder stops what
//!   a killed server has left, by that identity and never by name. It leaves the children of a running server alone.
//! - A child is reaped when nothing is left of its group, so that no signal ever goes to another group with the same id.
//! - Nothing is started after a close.
//! - A child gets the variables of [`INHERITED`] and those that its owner names, and no others. Values that not every child has are
//!   redacted in its output.

mod ancestry;
mod breaker;
mod budget;
mod captured_output;
mod environment;
mod exit;
mod identity;
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "other.rs")]
mod platform;
mod process;
mod program;
mod record;
mod redact;
mod search_path;
mod strays;
pub(crate) mod tree;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use metrics::counter;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use trilogue_domain::error::{Code, Error, Result};
use uuid::Uuid;

pub(crate) use breaker::Breaker;
pub(crate) use budget::IdleChild;
pub use budget::{Budget, ChildUsage};
pub use captured_output::CapturedOutput;
pub use environment::{INHERITED, SERVER_PREFIX, inherited};
pub(crate) use exit::{EXIT_GRACE, OUTPUT_TAIL_BYTES, how_it_exited, output_tail};
pub use process::{Child, ChildExit};
pub(crate) use program::check_program;
pub use program::{InvalidSetting, MARKER, Program, STEP};
pub use search_path::{find_program, join_folders, search_folders};
pub use trilogue_sdk::Leader;

pub(crate) use identity::Identity;
use platform::SEES_PROCESSES;
pub(crate) use platform::machine;
use process::SpawnedChild;
use record::Records;
pub(crate) use strays::kill as kill_stray;

/// Processes that were started, by agent.
const STARTS: &str = "trilogue_agent_process_starts_total";
/// Processes that did not start, or exited by themselves before they were of use, by agent.
const FAILURES: &str = "trilogue_agent_process_failures_total";
/// How long a close waits for starts that have begun.
const START_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Children {
    records: Option<Arc<Records>>,
    running: Arc<watch::Sender<Running>>,
    strays: usize,
    budget: Mutex<Budget>,
    /// Those that can be stopped while nobody uses them.
    idle: Mutex<Vec<Weak<dyn IdleChild>>>,
    /// The name of this server among those that share its store.
    node: OnceLock<String>,
}

#[derive(Debug, Default)]
struct Running {
    /// Set by a close.
    is_closed: bool,
    starting: usize,
    children: HashMap<Uuid, Child>,
}

/// The other end of a connection, as far as this machine knows it.
#[derive(Debug)]
enum PeerSocket {
    /// On another machine, or of another user.
    Elsewhere,
    /// Its process has closed it.
    Gone,
    HeldBy(Vec<u32>),
    /// One of these has it, whose files cannot be read.
    HeldByOneOf(Vec<u32>),
}

/// A start that has begun: a close waits for it.
struct StartingChild<'a>(&'a watch::Sender<Running>);

#[derive(Debug)]
pub struct Started {
    pub child: Child,
    pub input: ChildStdin,
    pub output: ChildStdout,
}

/// Kills a child that was not handed out.
struct KillOnDrop(Option<Started>);

/// Names this machine and its space of process ids; empty if that is unknown.
#[must_use]
pub fn machine_name() -> String {
    let (boot, namespace) = platform::machine();
    if boot.is_empty() { String::new() } else { format!("{boot}/{namespace}") }
}

// === impl Children ===

impl Children {
    /// Opens the folder `children` in the state folder, in which running children are recorded, and stops those of previous servers.
    /// Without a state folder nothing is recorded, and nothing found.
    /// Errors: `internal` if the folder cannot be created or read.
    pub async fn open(state: Option<PathBuf>) -> Result<Arc<Self>> {
        let (mut records, mut strays) = (None, 0);
        if let Some(state) = state {
            let folder = state.join("children");
            let opened = tokio::task::spawn_blocking(move || Records::open(&folder)).await;
            let opened = opened.map_err(|_| broken("the records of children could not be read"))?;
            let (opened, previous) = opened.map_err(|error| {
                broken(format!("the records of children cannot be read: {error}"))
            })?;
            strays = strays::stop(previous).await;
            records = Some(Arc::new(opened));
        }
        if strays > 0 {
            tracing::warn!(strays, "stopped processes that a previous server has left");
        }
        Ok(Arc::new(Self { records, strays, ..Self::default() }))
    }

    /// How many processes of previous servers were stopped when this was opened.
    #[must_use]
    pub const fn strays(&self) -> usize {
        self.strays
    }

    /// Names this server among those that share its store. From then on, its agents hold a lease of the folder in which they work.
    pub fn set_node(&self, name: &str) {
        // It never has another one.
        drop(self.node.set(name.to_owned()));
    }

    pub(crate) fn node(&self) -> Option<&str> {
        self.node.get().map(String::as_str)
    }

    /// Whether nothing is started any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.running.borrow().is_closed
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.running.borrow().children.len()
    }

    /// Whether a process is a child, was started by one, or has the marker of an agent of any server on this machine. A process that is gone may have been: then `true`.
    ///
    /// It reads the processes of this machine. Systems without `/proc` know children only.
    #[must_use]
    pub fn has_process(&self, pid: u32) -> bool {
        ancestry::is_of_agent(pid, &self.all()).unwrap_or(true)
    }

    /// Whether a process as in [`Self::has_process`] is at the other end of a connection to this server on this machine. While this server
    /// has children, a process of this user that is gone may have been one: then `true`. Systems without `/proc` find none.
    #[must_use]
    pub fn has_peer(&self, peer: SocketAddr, server: SocketAddr) -> bool {
        if !SEES_PROCESSES {
            return false;
        }
        let all = self.all();
        let is_suspect = !all.is_empty();
        match platform::peer_of(peer, server) {
            PeerSocket::Elsewhere => false,
            PeerSocket::Gone => is_suspect,
            PeerSocket::HeldBy(pids) => {
                pids.into_iter().any(|pid| ancestry::is_of_agent(pid, &all).unwrap_or(is_suspect))
            }
            PeerSocket::HeldByOneOf(pids) => {
                let is_agent = |pid| {
                    let is_known = ancestry::is_of_agent(pid, &all) == Some(true);
                    is_known || is_suspect && ancestry::may_be_of(pid, &all)
                };
                pids.into_iter().any(is_agent)
            }
        }
    }

    /// The name of the child with this process id, and the end of its standard error.
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
    pub async fn start(&self, program: Program<'_>) -> Result<Started> {
        let _starting = StartingChild::begin(&self.running)?;
        let instance = Uuid::new_v4();
        if let Some(records) = &self.records {
            record(records, instance, None, None).await?;
        }
        let spawned = process::spawn(instance, program, self.records.clone(), &self.running);
        let SpawnedChild { started, leader, recording } = match spawned {
            Ok(spawned) => spawned,
            Err(error) => {
                if let Some(records) = &self.records {
                    records.remove(instance);
                }
                return Err(not_started(program, &error));
            }
        };
        counter!(STARTS, "agent" => program.name.to_owned()).increment(1);
        let mut guard = KillOnDrop(Some(started));
        if let Some(records) = &self.records {
            record(records, instance, leader, Some(recording)).await?;
        }
        guard.0.take().ok_or_else(|| broken("a child was not started"))
    }

    /// Stops all children and starts no others. Returns when none is left. One that cannot be killed is left to the next server.
    pub async fn close(&self) {
        self.running.send_modify(|running| running.is_closed = true);
        let mut running = self.running.subscribe();
        let settled = timeout(START_TIMEOUT, running.wait_for(|running| running.starting == 0));
        if settled.await.is_err() {
            tracing::warn!("a child is still being started during the shutdown");
        }
        let all: Vec<_> = self.running.borrow().children.values().cloned().collect();
        futures_util::future::join_all(all.iter().map(Child::stop)).await;
        // It fails only if the sender is dropped, which `self` is not.
        drop(running.wait_for(|running| running.children.is_empty()).await);
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

/// Writes a record. `recording` is dropped after that, also if nobody waits for it any more.
async fn record(
    records: &Arc<Records>,
    instance: Uuid,
    leader: Option<Identity>,
    recording: Option<oneshot::Sender<()>>,
) -> Result<()> {
    let records = Arc::clone(records);
    let written = tokio::task::spawn_blocking(move || {
        let written = records.write(instance, leader);
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

/// Counts a process that did not start, or exited by itself before it was of use.
pub(crate) fn count_failure(agent: &str) {
    counter!(FAILURES, "agent" => agent.to_owned()).increment(1);
}

fn not_started(program: Program<'_>, error: &std::io::Error) -> Error {
    let command = program.command.first().map_or("", String::as_str);
    let message = format!(
        "'{}' cannot be started in '{}': {error}",
        command.escape_debug(),
        program.cwd.display()
    );
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "check that the program is on the PATH and that the folder exists"
        }
        _ => "check the program's permissions and the folder",
    };
    Error::new(Code::AgentFailed, message).hint(hint)
}

fn broken(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Code::Internal, message)
}
