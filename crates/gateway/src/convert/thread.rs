//! Threads and checkpoints to the wire.

use trilogue_store::rows::{CheckpointRow, ThreadRow};
use trilogue_wire::native::{Checkpoint, Thread};

use super::json;

/// A thread without its head.
pub(crate) fn thread(row: &ThreadRow) -> Thread {
    Thread {
        id: row.id.as_str().to_owned(),
        metadata: json(&row.metadata),
        created_at: row.created_at.to_string(),
        updated_at: row.updated_at.to_string(),
        ephemeral: row.ephemeral,
        head: None,
        values: None,
    }
}

/// A checkpoint; `parent` and `run` are what its integers stand for.
pub(crate) fn checkpoint(
    row: &CheckpointRow,
    parent_id: Option<String>,
    run_id: Option<String>,
) -> Checkpoint {
    Checkpoint {
        id: row.id.as_str().to_owned(),
        parent_id,
        run_id,
        position: row.position,
        values: row.value.as_ref().map(json),
        created_at: row.created_at.to_string(),
    }
}
