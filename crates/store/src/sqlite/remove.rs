use rusqlite::{Connection, OptionalExtension, params};
use trilogue_domain::{RunKey, ThreadKey};

use super::error::SqliteError;
use super::row::run_to_end;
use super::{apply, blob, search, thread_removal};
use crate::core::table::columns;
use crate::rows::CheckpointRow;
use crate::sql::frames::note_gaps;
use crate::sql::many;

pub(super) const ABOUT_RUN: &str = "DELETE FROM queue WHERE about = ?2 AND thread = ?1";
pub(super) const UNDER_ID: &str = "DELETE FROM queue WHERE thread = ?1 AND key = ?2";
pub(super) const UNDER_INTERRUPT: &str = concat!(
    "DELETE FROM queue WHERE thread = ?1",
    " AND key IN (SELECT id FROM interrupts WHERE thread = ?1 AND run = ?2)"
);

/// The most frames of a run, and the most bytes of frames, that a transaction deletes for one removal or for one part of it. The statements below read at most one frame more, to see whether the bound is exceeded.
const MAX_FRAMES: i64 = 256;
pub(super) const MAX_BYTES: i64 = 4 * 1024 * 1024;
/// Stands for all runs of a thread, in the place of a run's key.
pub(super) const OF_ALL_RUNS: i64 = 0;

/// How many frames a run has, and their bytes. Stops counting beyond the bounds.
const MEASURE: &str = concat!(
    "SELECT count(*), coalesce(sum(bytes), 0) FROM (SELECT length(body) AS bytes FROM frames",
    " WHERE run = ?2 AND thread = ?1 LIMIT 257)"
);
const PART_OF_RUN: &str =
    "SELECT id, length(body) FROM frames WHERE run = ?2 AND thread = ?1 LIMIT 256";
const PART_OF_THREAD: &str =
    "SELECT id, length(body) FROM frames WHERE thread = ?1 AND ?2 = 0 LIMIT 256";

/// Removes a run of this thread, if it exists.
pub(super) fn run(
    conn: &Connection,
    blobs: &mut blob::PendingBlobs,
    thread: ThreadKey,
    run: RunKey,
) -> Result<(), SqliteError> {
    let id: Option<String> = conn
        .prepare_cached("SELECT id FROM runs WHERE key = ?1 AND thread = ?2")?
        .query_row([run.0, thread.0], |row| row.get(0))
        .optional()?;
    run_to_end(note_gaps(conn, thread, run))?;
    remove_frames(conn, thread, run)?;
    if let Some(id) = id {
        remove_queue_items(conn, thread, run, &id)?;
        conn.prepare_cached("DELETE FROM idempotency WHERE thread = ?1 AND run = ?2")?
            .execute(params![thread.0, id])?;
        search::remove(conn, search::SearchKind::Run, run.0)?;
        note_key(conn, "run", Some(run.0))?;
        conn.prepare_cached("DELETE FROM runs WHERE key = ?1")?.execute([run.0])?;
    }
    for sql in [
        "DELETE FROM messages WHERE thread = ?1 AND run = ?2",
        "DELETE FROM interrupts WHERE thread = ?1 AND run = ?2",
    ] {
        conn.prepare_cached(sql)?.execute([thread.0, run.0])?;
    }
    empty_checkpoints(conn, thread, run)?;
    let named = blob::query_keys(
        conn,
        "SELECT DISTINCT blob FROM blob_refs WHERE thread = ?1 AND run = ?2",
        [thread.0, run.0],
    )?;
    conn.prepare_cached("DELETE FROM blob_refs WHERE thread = ?1 AND run = ?2")?
        .execute([thread.0, run.0])?;
    blob::remove_unnamed(conn, blobs, &named)
}

/// Deletes the frames of a run if they are few. Otherwise notes them as removed, which hides them from readers, and [`sweep`] deletes them: no commit waits for a long removal.
fn remove_frames(conn: &Connection, thread: ThreadKey, run: RunKey) -> Result<(), SqliteError> {
    let (count, bytes): (i64, i64) = conn
        .prepare_cached(MEASURE)?
        .query_row([thread.0, run.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sql = if count <= MAX_FRAMES && bytes <= MAX_BYTES {
        "DELETE FROM frames WHERE run = ?2 AND thread = ?1"
    } else {
        "INSERT OR IGNORE INTO removals (thread, run) VALUES (?1, ?2)"
    };
    conn.prepare_cached(sql)?.execute([thread.0, run.0])?;
    Ok(())
}

/// Whether removals have left rows for [`sweep`].
pub(super) fn has_remains(conn: &Connection) -> Result<bool, SqliteError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM removals) OR EXISTS (SELECT 1 FROM unnamed_blobs)";
    Ok(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Deletes one part of what removals have left: some frames, some other rows of one kind, or one blob. Returns the thread whose last rows this deleted.
pub(super) fn sweep(
    conn: &Connection,
    pending: &blob::PendingBlobs,
) -> Result<Option<ThreadKey>, SqliteError> {
    let next: Option<(i64, i64)> = conn
        .prepare_cached("SELECT thread, run FROM removals LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((thread, run)) = next else {
        blob::sweep_unnamed(conn, pending)?;
        return Ok(None);
    };
    let is_thread = run == OF_ALL_RUNS;
    let has_more = sweep_frames(conn, thread, run)?
        || (is_thread && thread_removal::sweep(conn, pending, ThreadKey(thread))?);
    if has_more {
        return Ok(None);
    }
    conn.prepare_cached("DELETE FROM removals WHERE thread = ?1 AND run = ?2")?
        .execute([thread, run])?;
    Ok(is_thread.then_some(ThreadKey(thread)))
}

/// Deletes some frames. Returns `false` if none was left.
fn sweep_frames(conn: &Connection, thread: i64, run: i64) -> Result<bool, SqliteError> {
    let sql = if run == OF_ALL_RUNS { PART_OF_THREAD } else { PART_OF_RUN };
    let (mut part, mut bytes) = (Vec::new(), 0);
    {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([thread, run])?;
        while bytes < MAX_BYTES
            && let Some(row) = rows.next()?
        {
            part.push(row.get::<_, i64>(0)?);
            bytes += row.get::<_, i64>(1)?;
        }
    }
    for id in &part {
        conn.prepare_cached("DELETE FROM frames WHERE id = ?1")?.execute([id])?;
    }
    Ok(!part.is_empty())
}

/// The largest removed key of this kind.
pub(super) fn removed_key(conn: &Connection, kind: &str) -> Result<i64, SqliteError> {
    let key = conn
        .query_row("SELECT key FROM removed_keys WHERE kind = ?1", [kind], |row| row.get(0))
        .optional()?;
    Ok(key.unwrap_or(0))
}

pub(super) fn note_key(conn: &Connection, kind: &str, key: Option<i64>) -> Result<(), SqliteError> {
    let Some(key) = key else { return Ok(()) };
    conn.prepare_cached(concat!(
        "INSERT INTO removed_keys (kind, key) VALUES (?1, ?2)",
        " ON CONFLICT (kind) DO UPDATE SET key = max(key, ?2)"
    ))?
    .execute(params![kind, key])?;
    Ok(())
}

/// Removes the values of the run's checkpoints. The checkpoints stay as links of the path.
fn empty_checkpoints(conn: &Connection, thread: ThreadKey, run: RunKey) -> Result<(), SqliteError> {
    let of_run = columns![run, thread];
    let found = many::<CheckpointRow, _>(conn, "WHERE run = ?1 AND thread = ?2", &of_run);
    for mut checkpoint in run_to_end(found)? {
        if checkpoint.value.take().is_some() {
            apply::write_checkpoint(conn, &checkpoint)?;
        }
    }
    Ok(())
}

/// Removes the thread's queue items for the run: those under its id or an interrupt's id, and those with a reference that names its key.
fn remove_queue_items(
    conn: &Connection,
    thread: ThreadKey,
    run: RunKey,
    id: &str,
) -> Result<(), SqliteError> {
    conn.prepare_cached(ABOUT_RUN)?.execute([thread.0, run.0])?;
    conn.prepare_cached(UNDER_ID)?.execute(params![thread.0, id])?;
    conn.prepare_cached(UNDER_INTERRUPT)?.execute([thread.0, run.0])?;
    Ok(())
}
