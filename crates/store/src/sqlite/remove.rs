use rusqlite::{Connection, OptionalExtension, params};
use trilogue_domain::{RunKey, ThreadKey};

use super::error::SqliteError;
use super::{apply, blob, row, search, thread_agents};
use crate::core::queue::is_of_run;
use crate::record::Record;
use crate::rows::{CheckpointRow, QueueItem};

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
    conn.prepare_cached("DELETE FROM frames WHERE run = ?1 AND thread = ?2")?
        .execute([run.0, thread.0])?;
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
    for sql in [
        "DELETE FROM frames WHERE thread = ?1",
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
    let mut doomed = Vec::new();
    {
        let mut statement =
            conn.prepare_cached("SELECT id, key, body FROM queue WHERE thread = ?1")?;
        let mut rows = statement.query([thread.0])?;
        while let Some(row) = rows.next()? {
            let key: String = row.get(1)?;
            let body = row.get_ref(2)?.as_blob().unwrap_or_default();
            // A damaged item belongs to nothing.
            let is_named =
                QueueItem::decode(body).map_or(true, |item| is_of_run(&item, run, &[id]));
            if is_named || is_interrupt_of(conn, thread, run, &key)? {
                doomed.push(row.get::<_, i64>(0)?);
            }
        }
    }
    for id in doomed {
        conn.prepare_cached("DELETE FROM queue WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

fn is_interrupt_of(
    conn: &Connection,
    thread: ThreadKey,
    run: RunKey,
    id: &str,
) -> Result<bool, SqliteError> {
    Ok(conn
        .prepare_cached("SELECT 1 FROM interrupts WHERE thread = ?1 AND run = ?2 AND id = ?3")?
        .exists(params![thread.0, run.0, id])?)
}
