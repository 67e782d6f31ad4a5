//! Child processes: how they are started, watched and ended, so that none is left behind.
//!
//! # Invariants
//! - Every child is the head of a process group of its own and carries [`MARKER`] in its environment, which what it starts inherits. By
//!   these two, and by who started whom, it is ended with everything that it started, however deep in wrappers that lies. Only what is
//!   started with another environment in a session of its own, by somebody who ends before it is looked, is not found.
//! - A child is recorded on disk before it exists and until nothing is left of it. What a server that was killed left behind is ended by
//!   the next one that opens the same folder, by that identity and never by name; a server that lives is left alone.
//! - A child is reaped when nothing is left of its group, so that no signal ever goes to a group of the same number.
//! - Behind a close nothing is started.
//! - A child gets the variables of [`INHERITED`], those that its owner names, and none else. Values that not every child has are not
//!   shown in what it says.

mod environment;
mod hidden;
mod leader;
mod plain;
mod process;
mod record;
mod stderr;
pub(crate) mod tree;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::lock;
use uuid::Uuid;

pub use environment::{INHERITED, inherited};
pub use leader::Leader;
pub use process::{Child, Exit};
pub use stderr::Stderr;

use process::Fresh;
use record::Records;
use tree::Identity;

/// The variable by which a child, and everything that it started, is known.
pub const MARKER: &str = "TRILOGUE_AGENT_INSTANCE";
/// How long each step of ending a child waits for the next: its input closed, asked to end, killed.
pub const STEP: Duration = Duration::from_secs(2);
/// How long a close waits for a start that has begun.
const STARTED_WITHIN: Duration = Duration::from_secs(10);

/// All child processes of this server.
#[derive(Debug, Default)]
pub struct Children {
    records: Option<Arc<Records>>,
    running: Arc<watch::Sender<Running>>,
    strays: usize,
}

/// What runs.
#[derive(Debug, Default)]
struct Running {
    /// Whether nothing more is started.
    is_closed: bool,
    /// How many are being started.
    starting: usize,
    children: HashMap<Uuid, Child>,
}

/// A start that has begun, for which a close waits.
struct Starting<'a>(&'a watch::Sender<Running>);

/// What is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// What it is called in the log.
    pub name: &'a str,
    /// The program and its arguments.
    pub command: &'a [String],
    /// Where it works.
    pub cwd: &'a Path,
    /// Variables that are set for it.
    pub env: &'a [(String, String)],
    /// Names of the server's own variables that it gets beside [`INHERITED`].
    pub inherit: &'a [String],
}

/// A child that has just been started, with its streams.
#[derive(Debug)]
pub struct Started {
    /// The child.
    pub child: Child,
    /// Its standard input.
    pub input: ChildStdin,
    /// Its standard output.
    pub output: ChildStdout,
}

/// A child that nobody knows yet: it is ended where nobody gets to.
struct Unknown(Option<Started>);

// === impl Children ===

impl Children {
    /// Opens the folder in which running children are recorded, `children` in the state folder, and ends those that a previous life of
    /// the server left. Without a state folder nothing is recorded, and nothing found.
    ///
    /// # Errors
    /// `internal` when the folder cannot be made or read.
    pub async fn open(state: Option<PathBuf>) -> Result<Arc<Self>> {
        let (mut records, mut strays) = (None, 0);
        if let Some(state) = state {
            let folder = state.join("children");
            let opened = tokio::task::spawn_blocking(move || Records::open(&folder)).await;
            let opened = opened.map_err(|_| broken("the records of children were not read"))?;
            let (opened, dead) = opened.map_err(|error| {
                broken(format!("the records of children are not there: {error}"))
            })?;
            strays = tree::reap(dead).await;
            records = Some(Arc::new(opened));
        }
        if strays > 0 {
            tracing::warn!(strays, "processes that a previous life of this server left were ended");
        }
        Ok(Arc::new(Self { records, running: Arc::default(), strays }))
    }

    /// How many processes of a previous life were ended when this was opened.
    #[must_use]
    pub const fn strays(&self) -> usize {
        self.strays
    }

    /// How many children run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.running.borrow().children.len()
    }

    /// Starts a program.
    ///
    /// # Errors
    /// `agent_failed` when it cannot be started, `internal` when it cannot be recorded, `shutting_down` behind a close.
    pub async fn start(&self, program: Program<'_>) -> Result<Started> {
        let _starting = Starting::begin(&self.running)?;
        let instance = Uuid::new_v4();
        if let Some(records) = &self.records {
            record(records, instance, None, None).await?;
        }
        let started = process::start(instance, program, self.records.clone(), &self.running);
        let Fresh { started, head, recording } = match started {
            Ok(fresh) => fresh,
            Err(error) => {
                if let Some(records) = &self.records {
                    records.remove(instance);
                }
                return Err(not_started(program, &error));
            }
        };
        let mut unknown = Unknown(Some(started));
        if let Some(records) = &self.records {
            record(records, instance, head, Some(recording)).await?;
        }
        unknown.0.take().ok_or_else(|| broken("a child was not started"))
    }

    /// Ends all children, and returns when none is left. No further one is started. One that cannot be ended is left to the next life.
    pub async fn close(&self) {
        self.running.send_modify(|running| running.is_closed = true);
        let mut running = self.running.subscribe();
        let settled = timeout(STARTED_WITHIN, running.wait_for(|running| running.starting == 0));
        if settled.await.is_err() {
            tracing::warn!("a child is still being started while all are ended");
        }
        let all: Vec<_> = self.running.borrow().children.values().cloned().collect();
        futures_util::future::join_all(all.iter().map(Child::stop)).await;
        // It fails only where the sender is gone, which we are.
        drop(running.wait_for(|running| running.children.is_empty()).await);
        if let Some(records) = &self.records {
            records.retire();
        }
    }
}

// === impl Starting ===

impl<'a> Starting<'a> {
    fn begin(running: &'a watch::Sender<Running>) -> Result<Self> {
        let is_open = running.send_if_modified(|running| {
            running.starting += usize::from(!running.is_closed);
            !running.is_closed
        });
        if !is_open {
            return Err(Error::new(Code::ShuttingDown, "the server starts no agents any more"));
        }
        Ok(Self(running))
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| running.starting -= 1);
    }
}

// === impl Unknown ===

impl Drop for Unknown {
    fn drop(&mut self) {
        if let Some(started) = &self.0 {
            started.child.begin_kill();
        }
    }
}

/// Writes a record. `recording` is dropped when that is done, even if nobody waits for it any more.
async fn record(
    records: &Arc<Records>,
    instance: Uuid,
    head: Option<Identity>,
    recording: Option<oneshot::Sender<()>>,
) -> Result<()> {
    let records = Arc::clone(records);
    let written = tokio::task::spawn_blocking(move || {
        let written = records.write(instance, head);
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
