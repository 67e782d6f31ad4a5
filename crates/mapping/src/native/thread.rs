//! Threads and checkpoints to the wire.

use trilogue_domain::{CheckpointId, Json, RunId, ThreadId, Timestamp};
use trilogue_wire::native::{Checkpoint, Thread};

use super::json;

/// What the face shows of a stored thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadFacts<'a> {
    /// Its id.
    pub id: &'a ThreadId,
    /// Its metadata: a JSON object.
    pub metadata: &'a Json,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// Whether it exists for one run only and is not listed.
    pub ephemeral: bool,
}

/// What the face shows of a stored checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointFacts<'a> {
    /// Its id.
    pub id: &'a CheckpointId,
    /// The checkpoint before it on the path.
    pub parent: Option<&'a CheckpointId>,
    /// The run that made it.
    pub run: Option<&'a RunId>,
    /// The thread number up to which the log was folded in.
    pub position: u64,
    /// The state; `None` when it is derived from the messages on the path.
    pub value: Option<&'a Json>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A thread without its head and values.
#[must_use]
pub fn thread(thread: &ThreadFacts<'_>) -> Thread {
    Thread {
        id: thread.id.as_str().to_owned(),
        metadata: json(thread.metadata),
        created_at: thread.created_at.to_string(),
        updated_at: thread.updated_at.to_string(),
        ephemeral: thread.ephemeral,
        head: None,
        values: None,
    }
}

/// A checkpoint.
#[must_use]
pub fn checkpoint(checkpoint: &CheckpointFacts<'_>) -> Checkpoint {
    Checkpoint {
        id: checkpoint.id.as_str().to_owned(),
        parent_id: checkpoint.parent.map(|id| id.as_str().to_owned()),
        run_id: checkpoint.run.map(|id| id.as_str().to_owned()),
        position: checkpoint.position,
        values: checkpoint.value.map(json),
        created_at: checkpoint.created_at.to_string(),
    }
}
