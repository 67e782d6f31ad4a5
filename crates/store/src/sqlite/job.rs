use std::fmt;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::Result;

use super::Context;
use super::blob::PendingBlobs;
use super::error::SqliteError;
use super::heads::Heads;
use crate::core::closed_error;
use crate::port::Batch;

#[derive(Debug)]
pub(super) enum Job {
    Append(Append),
    /// Any other write.
    Work(Box<dyn Work>),
    /// Probe whether a full disk has room again.
    Probe,
    /// Finish the jobs before this one, then end.
    Close,
}

/// A job in the writer's queue, with its permits for space in the queue. Dropping it releases the permits.
#[derive(Debug)]
pub(super) struct QueuedJob {
    pub(super) job: Job,
    /// `None` for a job that needs no permit.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(super) struct Append {
    pub(super) batch: Batch,
    pub(super) bytes: usize,
    pub(super) reply: oneshot::Sender<Result<()>>,
}

/// The writer's state that a job can use inside a transaction.
#[derive(Debug)]
pub(super) struct WriteContext<'a> {
    pub(super) conn: &'a Connection,
    pub(super) context: &'a Context,
    pub(super) heads: &'a mut Heads,
    pub(super) blobs: &'a mut PendingBlobs,
    pub(super) threads: &'a mut ChangedThreads,
}

/// The threads that a transaction changes in addition to its appends. Caches, readers and the log follow them.
#[derive(Debug, Default)]
pub(super) struct ChangedThreads {
    /// Whether it removes content that belongs to no thread.
    pub(super) removes: bool,
    /// Threads whose rows were changed by a job other than an append.
    pub(super) changed: Vec<ThreadKey>,
    /// Threads that are removed.
    pub(super) removed: Vec<ThreadKey>,
    /// The removed threads whose rows are deleted later.
    pub(super) hidden: Vec<ThreadKey>,
}

/// A change that can run again after its transaction was rolled back because of another job.
pub(super) trait Work: Send + fmt::Debug {
    fn run(&mut self, writer: &mut WriteContext<'_>) -> Result<(), SqliteError>;
    fn reply(self: Box<Self>, outcome: Result<()>);
    fn kind(&self) -> WorkKind;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WorkKind {
    /// Admitted while the disk is full.
    pub(super) is_vital: bool,
    pub(super) is_alone: bool,
    pub(super) bytes: usize,
}

/// A job made from a function.
struct FnWork<F, T> {
    kind: WorkKind,
    run: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

/// Makes a job from a function. Returns the channel on which its value arrives.
pub(super) fn task<F, T>(kind: WorkKind, run: F) -> (Job, oneshot::Receiver<Result<T>>)
where
    F: FnMut(&mut WriteContext<'_>) -> Result<T, SqliteError> + Send + 'static,
    T: Send + 'static,
{
    let (reply, value) = oneshot::channel();
    (Job::Work(Box::new(FnWork { kind, run, value: None, reply })), value)
}

// === impl WorkKind ===

impl WorkKind {
    /// A small change that needs room.
    pub(super) const USUAL: Self = Self { is_vital: false, is_alone: false, bytes: 0 };
    /// A small change that makes room or ends something.
    pub(super) const VITAL: Self = Self { is_vital: true, is_alone: false, bytes: 0 };
}

// === impl Job ===

impl Job {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append(append) => append.bytes,
            Self::Work(work) => work.kind().bytes,
            Self::Probe | Self::Close => 0,
        }
    }

    /// The number of permits that it takes. Small jobs take none: the queue's length bounds them.
    pub(super) fn permits(&self) -> u32 {
        u32::try_from(self.bytes() / super::PERMIT_BYTES).unwrap_or(u32::MAX)
    }

    pub(super) fn is_alone(&self) -> bool {
        match self {
            Self::Work(work) => work.kind().is_alone,
            Self::Append(_) | Self::Probe | Self::Close => false,
        }
    }

    pub(super) fn is_vital(&self) -> bool {
        match self {
            Self::Append(append) => append.batch.vital,
            Self::Work(work) => work.kind().is_vital,
            Self::Probe | Self::Close => true,
        }
    }

    pub(super) fn reply(self, outcome: Result<()>) {
        match self {
            // The receiver is gone if the caller has stopped waiting.
            Self::Append(append) => drop(append.reply.send(outcome)),
            Self::Work(work) => work.reply(outcome),
            Self::Probe | Self::Close => {}
        }
    }
}

// === impl FnWork ===

impl<F, T> Work for FnWork<F, T>
where
    F: FnMut(&mut WriteContext<'_>) -> Result<T, SqliteError> + Send,
    T: Send,
{
    fn run(&mut self, writer: &mut WriteContext<'_>) -> Result<(), SqliteError> {
        // A second run after a rollback replaces the value of the first.
        self.value = Some((self.run)(writer)?);
        Ok(())
    }

    fn reply(self: Box<Self>, outcome: Result<()>) {
        let Self { value, reply, .. } = *self;
        // The receiver is gone if the caller has stopped waiting. The change is stored all the same.
        drop(reply.send(outcome.and_then(|()| value.ok_or_else(closed_error))));
    }

    fn kind(&self) -> WorkKind {
        self.kind
    }
}

impl<F, T> fmt::Debug for FnWork<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("kind", &self.kind).finish_non_exhaustive()
    }
}
