//! Child processes: how they are started, watched and ended, so that none is left behind.
//!
//! # Invariants
//! - Every child is the head of a process group of its own and carries [`MARKER`] in its environment, which what it starts inherits. By
//!   these two it is ended with everything that it started, however deep in wrappers that lies.
//! - A child is recorded on disk before it exists and until nothing is left of it. What a server that was killed left behind is ended by
//!   the next one that opens the same folder, by that identity and never by name.
//! - A child gets the variables of [`INHERITED`], those that its owner names, and none else.

mod environment;
mod process;
mod record;
mod stderr;
mod tree;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::{ChildStdin, ChildStdout};
use trilogue_domain::error::{Code, Error, Result};
use uuid::Uuid;

pub use environment::INHERITED;
pub use process::{Child, Exit};
pub use stderr::Stderr;

use record::Records;

/// The variable by which a child, and everything that it started, is known.
pub const MARKER: &str = "TRILOGUE_AGENT_INSTANCE";
/// How long each step of ending a child waits for the next: its input closed, asked to end, killed.
pub const STEP: Duration = Duration::from_secs(2);

/// All child processes of this server.
#[derive(Debug, Default)]
pub struct Children {
    records: Option<Arc<Records>>,
    running: Arc<Mutex<HashMap<Uuid, Child>>>,
    strays: usize,
}

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
            let opened = tokio::task::spawn_blocking(move || Records::open(folder)).await;
            let opened = opened.map_err(|_| broken("the records of children were not read"))?;
            let (opened, left) = opened.map_err(|error| {
                broken(format!("the records of children are not there: {error}"))
            })?;
            strays = tree::reap(left, &opened).await;
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
        lock(&self.running).len()
    }

    /// Starts a program.
    ///
    /// # Errors
    /// `agent_failed` when it cannot be started, `internal` when it cannot be recorded.
    pub async fn start(&self, program: Program<'_>) -> Result<Started> {
        let instance = Uuid::new_v4();
        if let Some(records) = &self.records {
            record(records, instance, None).await?;
        }
        let started = process::start(instance, program, self.records.clone(), &self.running);
        let started = match started {
            Ok(started) => started,
            Err(error) => {
                if let Some(records) = &self.records {
                    records.remove(instance);
                }
                return Err(not_started(program, &error));
            }
        };
        let mut unknown = Unknown(Some(started));
        if let Some(records) = &self.records {
            let pid = unknown.0.as_ref().and_then(|started| started.child.pid());
            record(records, instance, pid).await?;
        }
        unknown.0.take().ok_or_else(|| broken("a child was not started"))
    }

    /// Ends all children, and returns when none is left.
    pub async fn close(&self) {
        let all: Vec<_> = lock(&self.running).values().cloned().collect();
        futures_util::future::join_all(all.iter().map(Child::stop)).await;
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

async fn record(records: &Arc<Records>, instance: Uuid, pid: Option<u32>) -> Result<()> {
    let records = Arc::clone(records);
    let written = tokio::task::spawn_blocking(move || records.write(instance, pid)).await;
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

/// A poisoned lock only says that somebody panicked; what it guards is whole after every statement.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
