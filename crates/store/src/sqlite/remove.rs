use rusqlite::{Connection, OptionalExtension, params};
use trilogue_domain::{RunKey, ThreadKey};

use super::error::SqliteError;
use super::{apply, blob, row, search, thread_agents};
use crate::rows::CheckpointRow;

pub(super) const ABOUT_RUN: &str = "DELETE FROM queue WHERE about = ?2 AND thread = ?1";
pub(super) const UNDER_ID: &str = "DELETE FROM queue WHERE thread = ?1 AND key = ?2";
pub(super) const UNDER_INTERRUPT: &str = concat!(
    "DELETE FROM queue WHERE thread = ?1",
    " AND key IN (SELECT id FROM interrupts WHERE thread = ?1 AND run = ?2)"
);

/// The most frames and bytes that a transaction deletes for one removal, or for a part of one. The statements below read as many frames, or one more to see that there are.
const MAX_FRAMES: i64 = 256;
const MAX_BYTES: i64 = 4 * 1024 * 1024;
/// In place of a run: all frames of a thread.
const OF_ALL_RUNS: i64 = 0;

/// Statements about the frames of a run or of a whole thread: `?1` is the thread, `?2` the run.
struct FrameStatements {
    /// How many there are, and their bytes; not more than is needed.
    measure: &'static str,
    delete: &'static str,
    part: &'static str,
}

const OF_RUN: FrameStatements = FrameStatements {
    measure: concat!(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM (SELECT length(body) AS bytes FROM frames",
        " WHERE run = ?2 AND thread = ?1 LIMIT 257)"
    ),
    delete: "DELETE FROM frames WHERE run = ?2 AND thread = ?1",
    part: "SELECT id, length(body) FROM frames WHERE run = ?2 AND thread = ?1 LIMIT 256",
};
const OF_THREAD: FrameStatements = FrameStatements {
    measure: concat!(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM (SELECT length(body) AS bytes FROM frames",
        " WHERE thread = ?1 AND ?2 = 0 LIMIT 257)"
    ),
    delete: "DELETE FROM frames WHERE thread = ?1 AND ?2 = 0",
    part: "SELECT id, length(body) FROM frames WHERE thread = ?1 AND ?2 = 0 LIMIT 256",
};

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
    note_gaps(conn, thread, run)?;
    remove_frames(conn, thread, run.0, &OF_RUN)?;
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
    let named = blob::named(
        conn,
        "SELECT DISTINCT blob FROM blob_refs WHERE thread = ?1 AND run = ?2",
        [thread.0, run.0],
    )?;
    conn.prepare_cached("DELETE FROM blob_refs WHERE thread = ?1 AND run = ?2")?
        .execute([thread.0, run.0])?;
    blob::remove_unnamed(conn, blobs, &named)
}

pub(super) fn thread(
    conn: &Connection,
    blobs: &mut blob::PendingBlobs,
    thread: ThreadKey,
) -> Result<(), SqliteError> {
    let named =
        blob::named(conn, "SELECT DISTINCT blob FROM blob_refs WHERE thread = ?1", [thread.0])?;
    search::remove(conn, search::SearchKind::Thread, thread.0)?;
    thread_agents::remove(conn, thread)?;
    conn.prepare_cached(
        "DELETE FROM search WHERE kind = ?2 AND id IN (SELECT key FROM runs WHERE thread = ?1)",
    )?
    .execute([thread.0, search::SearchKind::Run as i64])?;
    for (kind, sql) in [
        ("run", "SELECT max(key) FROM runs WHERE thread = ?1"),
        ("checkpoint", "SELECT max(key) FROM checkpoints WHERE thread = ?1"),
        ("thread", "SELECT max(key) FROM threads WHERE key = ?1"),
    ] {
        let key = conn.prepare_cached(sql)?.query_row([thread.0], |row| row.get(0))?;
        note_key(conn, kind, key)?;
    }
    remove_frames(conn, thread, OF_ALL_RUNS, &OF_THREAD)?;
    for sql in [
        "DELETE FROM gaps WHERE thread = ?1",
        "DELETE FROM runs WHERE thread = ?1",
        "DELETE FROM messages WHERE thread = ?1",
        "DELETE FROM checkpoints WHERE thread = ?1",
        "DELETE FROM interrupts WHERE thread = ?1",
        "DELETE FROM bindings WHERE thread = ?1",
        "DELETE FROM idempotency WHERE thread = ?1",
        "DELETE FROM queue WHERE thread = ?1",
        "DELETE FROM blob_refs WHERE thread = ?1",
        "DELETE FROM threads WHERE key = ?1",
    ] {
        conn.prepare_cached(sql)?.execute([thread.0])?;
    }
    blob::remove_unnamed(conn, blobs, &named)
}

/// Deletes frames where they are few. Otherwise they are noted, so that nobody reads them, and [`sweep`] deletes them: no commit waits for a long removal.
fn remove_frames(
    conn: &Connection,
    thread: ThreadKey,
    run: i64,
    of: &FrameStatements,
) -> Result<(), SqliteError> {
    let (count, bytes): (i64, i64) = conn
        .prepare_cached(of.measure)?
        .query_row([thread.0, run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if count <= MAX_FRAMES && bytes <= MAX_BYTES {
        conn.prepare_cached(of.delete)?.execute([thread.0, run])?;
        return Ok(());
    }
    conn.prepare_cached("INSERT OR IGNORE INTO removals (thread, run) VALUES (?1, ?2)")?
        .execute([thread.0, run])?;
    Ok(())
}

/// Whether a removal has left anything for [`sweep`].
pub(super) fn has_remains(conn: &Connection) -> Result<bool, SqliteError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM removals) OR EXISTS (SELECT 1 FROM unnamed_blobs)";
    Ok(conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Deletes one part of what removals have left: some frames, or one blob.
pub(super) fn sweep(conn: &Connection, pending: &blob::PendingBlobs) -> Result<(), SqliteError> {
    let next: Option<(i64, i64)> = conn
        .prepare_cached("SELECT thread, run FROM removals LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((thread, run)) = next else { return blob::sweep_unnamed(conn, pending) };
    let of = if run == OF_ALL_RUNS { &OF_THREAD } else { &OF_RUN };
    let (mut part, mut bytes) = (Vec::new(), 0);
    {
        let mut statement = conn.prepare_cached(of.part)?;
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
    if part.is_empty() {
        conn.prepare_cached("DELETE FROM removals WHERE thread = ?1 AND run = ?2")?
            .execute([thread, run])?;
    }
    Ok(())
}

/// The largest key of this kind that was removed.
pub(super) fn removed_key(conn: &Connection, kind: &str) -> Result<i64, SqliteError> {
    let key = conn
        .query_row("SELECT key FROM removed_keys WHERE kind = ?1", [kind], |row| row.get(0))
        .optional()?;
    Ok(key.unwrap_or(0))
}

fn note_key(conn: &Connection, kind: &str, key: Option<i64>) -> Result<(), SqliteError> {
    let Some(key) = key else { return Ok(()) };
    conn.prepare_cached(concat!(
        "INSERT INTO removed_keys (kind, key) VALUES (?1, ?2)",
        " ON CONFLICT (kind) DO UPDATE SET key = max(key, ?2)"
    ))?
    .execute(params![kind, key])?;
    Ok(())
}

/// Notes the numbers of the run's frames as removed, joined with the gaps beside them.
fn note_gaps(conn: &Connection, thread: ThreadKey, run: RunKey) -> Result<(), SqliteError> {
    let mut statement = conn.prepare_cached(
        "SELECT first, last FROM frames WHERE run = ?1 AND thread = ?2 ORDER BY first_run",
    )?;
    let mut rows = statement.query([run.0, thread.0])?;
    let mut gaps: Vec<(i64, i64)> = Vec::new();
    while let Some(row) = rows.next()? {
        let (first, last) = (row.get(0)?, row.get(1)?);
        match gaps.last_mut() {
            Some(gap) if gap.1 + 1 == first => gap.1 = last,
            _ => gaps.push((first, last)),
        }
    }
    for (first, last) in gaps {
        write_gap(conn, thread, first, last)?;
    }
    Ok(())
}

fn write_gap(
    conn: &Connection,
    thread: ThreadKey,
    first: i64,
    last: i64,
) -> Result<(), SqliteError> {
    let before: Option<(i64, i64)> = conn
        .prepare_cached(concat!(
            "SELECT first, last FROM gaps WHERE thread = ?1 AND first < ?2",
            " ORDER BY first DESC LIMIT 1"
        ))?
        .query_row([thread.0, first], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let behind: Option<i64> = conn
        .prepare_cached("SELECT last FROM gaps WHERE thread = ?1 AND first = ?2")?
        .query_row([thread.0, last + 1], |row| row.get(0))
        .optional()?;
    if behind.is_some() {
        conn.prepare_cached("DELETE FROM gaps WHERE thread = ?1 AND first = ?2")?
            .execute([thread.0, last + 1])?;
    }
    let first = match before {
        Some((start, end)) if end + 1 == first => start,
        _ => first,
    };
    conn.prepare_cached(concat!(
        "INSERT INTO gaps (thread, first, last) VALUES (?1, ?2, ?3)",
        " ON CONFLICT (thread, first) DO UPDATE SET last = ?3"
    ))?
    .execute([thread.0, first, behind.unwrap_or(last)])?;
    Ok(())
}

/// The run's checkpoints stay as links of the path, without value.
fn empty_checkpoints(conn: &Connection, thread: ThreadKey, run: RunKey) -> Result<(), SqliteError> {
    let rest = "WHERE run = ?1 AND thread = ?2";
    for mut checkpoint in row::many::<CheckpointRow>(conn, rest, [run.0, thread.0])? {
        if checkpoint.value.take().is_some() {
            apply::write_checkpoint(conn, &checkpoint)?;
        }
    }
    Ok(())
}

/// Removes the thread's queue items that are about the run: under its id or an interrupt's, or with a reference that names its key.
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
