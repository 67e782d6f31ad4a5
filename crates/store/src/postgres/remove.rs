//! Removes runs and threads. Other transactions can write during a long removal, so it is not done in parts.

use trilogue_domain::{RunKey, ThreadKey};

use super::connection::Connection;
use super::error::PostgresError;
use super::{blob, change, row};
use crate::core::table::columns;
use crate::rows::CheckpointRow;
use crate::sql::frames::note_gaps;
use crate::sql::many;

/// Deletes all rows of threads. Those of runs go after what is found by them, the heads last: an append to one waits for the end and fails then.
const THREADS: [&str; 15] = [
    "DELETE FROM search WHERE kind = 2 AND id IN (SELECT key FROM runs WHERE thread = ANY($1))",
    "DELETE FROM search WHERE kind IN (1, 3) AND id = ANY($1)",
    "DELETE FROM bindings WHERE thread = ANY($1)",
    "DELETE FROM frames WHERE thread = ANY($1)",
    "DELETE FROM runs WHERE thread = ANY($1)",
    "DELETE FROM messages WHERE thread = ANY($1)",
    "DELETE FROM checkpoints WHERE thread = ANY($1)",
    "DELETE FROM interrupts WHERE thread = ANY($1)",
    "DELETE FROM queue WHERE thread = ANY($1)",
    "DELETE FROM idempotency WHERE thread = ANY($1)",
    "DELETE FROM gaps WHERE thread = ANY($1)",
    "DELETE FROM lost_events WHERE thread = ANY($1)",
    "DELETE FROM blob_refs WHERE thread = ANY($1)",
    "DELETE FROM threads WHERE key = ANY($1)",
    "DELETE FROM heads WHERE thread = ANY($1)",
];
/// Deletes the rows of a run of a thread.
const RUN: [&str; 8] = [
    concat!(
        "DELETE FROM queue WHERE thread = $1 AND (about = $2",
        " OR key IN (SELECT id FROM runs WHERE key = $2 AND thread = $1)",
        " OR key IN (SELECT id FROM interrupts WHERE thread = $1 AND run = $2))"
    ),
    concat!(
        "DELETE FROM idempotency WHERE thread = $1",
        " AND run IN (SELECT id FROM runs WHERE key = $2 AND thread = $1)"
    ),
    concat!(
        "DELETE FROM search WHERE kind = 2",
        " AND id IN (SELECT key FROM runs WHERE key = $2 AND thread = $1)"
    ),
    "DELETE FROM frames WHERE run = $2 AND thread = $1",
    "DELETE FROM runs WHERE key = $2 AND thread = $1",
    "DELETE FROM messages WHERE thread = $1 AND run = $2",
    "DELETE FROM interrupts WHERE thread = $1 AND run = $2",
    "DELETE FROM blob_refs WHERE thread = $1 AND run = $2",
];

/// Removes threads with all their data.
pub(super) async fn threads(conn: &Connection, threads: &[ThreadKey]) -> Result<(), PostgresError> {
    let keys: Vec<i64> = threads.iter().map(|thread| thread.0).collect();
    let named = "SELECT DISTINCT blob FROM blob_refs WHERE thread = ANY($1)";
    let named = row::query(conn, named, &[&keys]).await?;
    let named: Vec<i64> = named.iter().map(|row| row.get(0)).collect();
    for sql in THREADS {
        row::execute(conn, sql, &[&keys]).await?;
    }
    blob::remove_unnamed(conn, &named).await
}

/// Removes a run of this thread, if it exists.
pub(super) async fn run(
    conn: &Connection,
    thread: ThreadKey,
    run: RunKey,
) -> Result<(), PostgresError> {
    note_gaps(conn, thread, run).await?;
    let named = "SELECT DISTINCT blob FROM blob_refs WHERE thread = $1 AND run = $2";
    let named = row::query(conn, named, &[&thread.0, &run.0]).await?;
    let named: Vec<i64> = named.iter().map(|row| row.get(0)).collect();
    empty_checkpoints(conn, thread, run).await?;
    for sql in RUN {
        row::execute(conn, sql, &[&thread.0, &run.0]).await?;
    }
    blob::remove_unnamed(conn, &named).await
}

/// Removes the values of the run's checkpoints. The checkpoints stay as links of the path.
async fn empty_checkpoints(
    conn: &Connection,
    thread: ThreadKey,
    run: RunKey,
) -> Result<(), PostgresError> {
    let rest = "WHERE run = ?1 AND thread = ?2";
    for mut checkpoint in many::<CheckpointRow, _>(conn, rest, &columns![run, thread]).await? {
        if checkpoint.value.take().is_some() {
            change::write_checkpoint(conn, &checkpoint).await?;
        }
    }
    Ok(())
}
