use crate::id::{CheckpointId, RunId, ThreadId};
use crate::json::Json;
use crate::thread::HeadMove;

/// An event of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThreadEvent {
    /// The thread was created.
    Created {
        /// The id of the thread.
        thread: ThreadId,
        /// The metadata.
        metadata: Json,
        /// The thread that it was copied from.
        copied_from: Option<ThreadId>,
    },
    /// The metadata changed. Contains all of it.
    Metadata(Json),
    /// The head moved.
    HeadMoved {
        /// The new head.
        checkpoint: CheckpointId,
        /// The cause.
        by: HeadMove,
    },
    /// A run was removed with all its events. Readers may find a gap.
    RunRemoved {
        /// The id of the run.
        run: RunId,
        /// The cause: `deleted`, `rolled_back`, `retention` or `erased`.
        reason: String,
    },
}

impl ThreadEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Created { .. } => "thread.created",
            Self::Metadata(_) => "thread.metadata",
            Self::HeadMoved { .. } => "thread.head_moved",
            Self::RunRemoved { .. } => "thread.run_removed",
        }
    }
}
