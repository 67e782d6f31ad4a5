//! Removes runs and threads. Other transactions can write during a long removal, so it is not done in parts.

use trilogue_domain::{RunKey, ThreadKey};

use super::connection::Connection;
use super::error::PostgresError;
use super::{blob, change, row};
use crate::rows::CheckpointRow;

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

/// Notes the numbers of the run's frames as removed, and joins them with adjacent gaps.
async fn note_gaps(conn: &Connection, thread: ThreadKey, run: RunKey) -> Result<(), PostgresError> {
    let sql = "SELECT first, last FROM frames WHERE run = $1 AND thread = $2 ORDER BY first_run";
    let mut gaps: Vec<(i64, i64)> = Vec::new();
    for frame in row::query(conn, sql, &[&run.0, &thread.0]).await? {
        let (first, last) = (frame.get(0), frame.get(1));
        match gaps.last_mut() {
            Some(gap) if gap.1 + 1 == first => gap.1 = last,
            _ => gaps.push((first, last)),
        }
    }
    for (first, last) in gaps {
        write_gap(conn, thread, first, last).await?;
    }
    Ok(())
}

async fn write_gap(
    conn: &Connection,
    thread: ThreadKey,
    first: i64,
    last: i64,
) -> Result<(), PostgresError> {
    let before = concat!(
        "SELECT first, last FROM gaps WHERE thread = $1 AND first < $2",
        " ORDER BY first DESC LIMIT 1"
    );
    let before = row::query_opt(conn, before, &[&thread.0, &first]).await?;
    let behind = "DELETE FROM gaps WHERE thread = $1 AND first = $2 RETURNING last";
    let behind = row::query_opt(conn, behind, &[&thread.0, &(last + 1)]).await?;
    let first = match before.map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))) {
        Some((start, end)) if end + 1 == first => start,
        _ => first,
    };
    let last: i64 = behind.map_or(last, |row| row.get(0));
    let sql = concat!(
        "INSERT INTO gaps (thread, first, last) VALUES ($1, $2, $3)",
        " ON CONFLICT (thread, first) DO UPDATE SET last = $3"
    );
    row::execute(conn, sql, &[&thread.0, &first, &last]).await?;
    Ok(())
}

/// Removes the values of the run's checkpoints. The checkpoints stay as links of the path.
async fn empty_checkpoints(
    conn: &Connection,
    thread: ThreadKey,
    run: RunKey,
) -> Result<(), PostgresError> {
    let rest = "WHERE run = $1 AND thread = $2";
    for mut checkpoint in row::many::<CheckpointRow>(conn, rest, &[&run.0, &thread.0]).await? {
        if checkpoint.value.take().is_some() {
            change::write_checkpoint(conn, &checkpoint).await?;
        }
    }
    Ok(())
}
