use crate::id::{CheckpointId, RunId, ThreadId};
use crate::json::Json;
use crate::thread::HeadMove;

/// Something about a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThreadEvent {
    /// It was created.
    Created {
        /// Its id.
        thread: ThreadId,
        /// Its metadata.
        metadata: Json,
        /// The thread it was copied from.
        copied_from: Option<ThreadId>,
    },
    /// Its metadata changed; this is all of it.
    Metadata(Json),
    /// Its head moved.
    HeadMoved {
        /// The new head.
        checkpoint: CheckpointId,
        /// Why.
        by: HeadMove,
    },
    /// A run was removed with all its events; readers may meet a gap.
    RunRemoved {
        /// The run.
        run: RunId,
        /// Why: `deleted`, `rolled_back`, `retention` or `erased`.
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
