//! Removing whole threads.
//!
//! Threads with few rows are deleted together, by one statement per table. A thread with many rows is hidden at once: its own row is deleted, and [`crate::core::health::HiddenThreads`] names it.
//! [`sweep`] then deletes the rest in parts, also after a restart, so that no commit waits for a long removal.
//! Until then, the ids of its runs cannot be used again.

use rusqlite::{Connection, OptionalExtension};
use trilogue_domain::ThreadKey;

use super::blob;
use super::error::SqliteError;
use super::job::WriteContext;
use super::remove::{MAX_BYTES, OF_ALL_RUNS, note_key};

/// The most rows that one transaction deletes of threads that are removed together, not counting the search rows of the threads themselves. [`MEASURE`] reads one more row of each thread to see whether the bound is exceeded.
const MAX_ROWS: i64 = 1_024;

/// The rows of each of these threads, and the bytes of its frames. Stops counting beyond the bounds.
pub(super) const MEASURE: &str = concat!(
    "SELECT t.value, (SELECT count(*) FROM (",
    "SELECT 1 FROM frames WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM runs WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM messages WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM checkpoints WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM interrupts WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM queue WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM idempotency WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM blob_refs WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM gaps WHERE thread = t.value",
    " UNION ALL SELECT 1 FROM search WHERE kind = 2",
    " AND id IN (SELECT key FROM runs WHERE thread = t.value) LIMIT 1025)),",
    " (SELECT coalesce(sum(bytes), 0) FROM",
    " (SELECT length(body) AS bytes FROM frames WHERE thread = t.value LIMIT 1025))",
    " FROM json_each(?1) AS t"
);
/// The given threads that are ephemeral and have no open run.
pub(super) const ENDED: &str = concat!(
    "SELECT key FROM threads WHERE key IN (SELECT value FROM json_each(?1)) AND ephemeral = 1",
    " AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_open",
    " WHERE runs.thread = threads.key AND runs.ended_at IS NULL)"
);
const NAMED_BLOBS: &str =
    "SELECT DISTINCT blob FROM blob_refs WHERE thread IN (SELECT value FROM json_each(?1))";

/// Deletes the rows by which readers find a thread.
pub(super) const HIDE: [&str; 4] = [
    "DELETE FROM search WHERE kind IN (1, 3) AND id IN (SELECT value FROM json_each(?1))",
    "DELETE FROM bindings WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM damaged_threads WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM threads WHERE key IN (SELECT value FROM json_each(?1))",
];
/// Deletes all other rows of threads. Rows of runs are deleted after the rows that are found through them.
pub(super) const DELETE: [&str; 10] = [
    concat!(
        "DELETE FROM search WHERE kind = 2 AND id IN",
        " (SELECT key FROM runs WHERE thread IN (SELECT value FROM json_each(?1)))"
    ),
    "DELETE FROM frames WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM runs WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM messages WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM checkpoints WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM interrupts WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM queue WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM idempotency WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM blob_refs WHERE thread IN (SELECT value FROM json_each(?1))",
    "DELETE FROM gaps WHERE thread IN (SELECT value FROM json_each(?1))",
];

/// Each deletes a part of a thread's rows, by at most two statements. Queue items are deleted first.
pub(super) const PARTS: [&[&str]; 7] = [
    &["DELETE FROM queue WHERE id IN (SELECT id FROM queue WHERE thread = ?1 LIMIT 256)"],
    &[
        "DELETE FROM idempotency WHERE key IN (SELECT key FROM idempotency WHERE thread = ?1 LIMIT 256)",
    ],
    &["DELETE FROM messages WHERE key IN (SELECT key FROM messages WHERE thread = ?1 LIMIT 256)"],
    &[
        "DELETE FROM interrupts WHERE key IN (SELECT key FROM interrupts WHERE thread = ?1 LIMIT 256)",
    ],
    &[
        "DELETE FROM checkpoints WHERE key IN (SELECT key FROM checkpoints WHERE thread = ?1 LIMIT 256)",
    ],
    &[
        "DELETE FROM gaps WHERE thread = ?1 AND first IN (SELECT first FROM gaps WHERE thread = ?1 LIMIT 256)",
    ],
    &[
        concat!(
            "DELETE FROM search WHERE kind = 2 AND id IN",
            " (SELECT key FROM runs WHERE thread = ?1 ORDER BY key LIMIT 64)"
        ),
        "DELETE FROM runs WHERE key IN (SELECT key FROM runs WHERE thread = ?1 ORDER BY key LIMIT 64)",
    ],
];
const PART_OF_BLOBS: &str =
    "SELECT DISTINCT blob FROM blob_refs WHERE thread = ?1 AND run = ?2 LIMIT 256";

/// The given threads that retention removes whole: ephemeral ones without an open run. A damaged thread is left for a person.
pub(super) fn removable_threads(
    writer: &WriteContext<'_>,
    threads: &[ThreadKey],
) -> Result<Vec<ThreadKey>, SqliteError> {
    let mut statement = writer.conn.prepare_cached(ENDED)?;
    let keys = statement.query_map([list(threads)], |row| row.get(0).map(ThreadKey))?;
    let mut keys = keys.collect::<rusqlite::Result<Vec<_>>>()?;
    keys.retain(|key| writer.context.health.check_thread(*key).is_ok());
    Ok(keys)
}

/// Removes threads with all their data, or hides them if they have much data.
pub(super) fn remove(
    writer: &mut WriteContext<'_>,
    threads: &[ThreadKey],
) -> Result<(), SqliteError> {
    if threads.is_empty() {
        return Ok(());
    }
    let conn = writer.conn;
    // Stores the last given keys first: a key is never given again, even if the thread with the largest one is removed here.
    for (kind, last) in writer.context.keys.last() {
        note_key(conn, kind, Some(last))?;
    }
    let (now, later) = divided(conn, threads)?;
    for thread in &later {
        conn.prepare_cached("INSERT OR IGNORE INTO removals (thread, run) VALUES (?1, ?2)")?
            .execute([thread.0, OF_ALL_RUNS])?;
    }
    let now = list(&now);
    let named = blob::query_keys(conn, NAMED_BLOBS, [&now])?;
    for sql in DELETE {
        conn.prepare_cached(sql)?.execute([&now])?;
    }
    let all = list(threads);
    for sql in HIDE {
        conn.prepare_cached(sql)?.execute([&all])?;
    }
    for thread in threads {
        writer.heads.set(*thread, None);
    }
    writer.threads.removed.extend_from_slice(threads);
    writer.threads.hidden.extend(later);
    blob::remove_unnamed(conn, writer.blobs, &named)
}

/// Threads that an earlier life has hidden and not fully deleted.
pub(super) fn unfinished(conn: &Connection) -> Result<Vec<ThreadKey>, SqliteError> {
    let mut statement = conn.prepare("SELECT thread FROM removals WHERE run = ?1")?;
    let keys = statement.query_map([OF_ALL_RUNS], |row| row.get(0).map(ThreadKey))?;
    Ok(keys.collect::<rusqlite::Result<_>>()?)
}

/// Deletes one part of the remaining rows of a hidden thread without frames. Returns `false` if nothing was left.
pub(super) fn sweep(
    conn: &Connection,
    blobs: &blob::PendingBlobs,
    thread: ThreadKey,
) -> Result<bool, SqliteError> {
    for part in PARTS {
        let mut deleted = 0;
        for sql in part {
            deleted += conn.prepare_cached(sql)?.execute([thread.0])?;
        }
        if deleted > 0 {
            return Ok(true);
        }
    }
    sweep_blobs(conn, blobs, thread)
}

/// Deletes the names of some blobs of one run, and the blobs that no longer have a name.
fn sweep_blobs(
    conn: &Connection,
    blobs: &blob::PendingBlobs,
    thread: ThreadKey,
) -> Result<bool, SqliteError> {
    let run: Option<i64> = conn
        .prepare_cached("SELECT run FROM blob_refs WHERE thread = ?1 LIMIT 1")?
        .query_row([thread.0], |row| row.get(0))
        .optional()?;
    let Some(run) = run else { return Ok(false) };
    let named = blob::query_keys(conn, PART_OF_BLOBS, [thread.0, run])?;
    for blob in &named {
        conn.prepare_cached("DELETE FROM blob_refs WHERE thread = ?1 AND run = ?2 AND blob = ?3")?
            .execute([thread.0, run, *blob])?;
    }
    blob::remove_unnamed(conn, blobs, &named)?;
    Ok(true)
}

/// The threads that this transaction deletes, and those that it hides.
fn divided(
    conn: &Connection,
    threads: &[ThreadKey],
) -> Result<(Vec<ThreadKey>, Vec<ThreadKey>), SqliteError> {
    let (mut now, mut later) = (Vec::new(), Vec::new());
    let (mut rows, mut bytes) = (0, 0);
    let mut statement = conn.prepare_cached(MEASURE)?;
    let mut measured = statement.query([list(threads)])?;
    while let Some(row) = measured.next()? {
        let (thread, its_rows, its_bytes): (i64, i64, i64) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        if rows + its_rows <= MAX_ROWS && bytes + its_bytes <= MAX_BYTES {
            (rows, bytes) = (rows + its_rows, bytes + its_bytes);
            now.push(ThreadKey(thread));
        } else {
            later.push(ThreadKey(thread));
        }
    }
    Ok((now, later))
}

/// The keys as a list for the statements.
fn list(threads: &[ThreadKey]) -> String {
    let keys: Vec<String> = threads.iter().map(|thread| thread.0.to_string()).collect();
    format!("[{}]", keys.join(","))
}

#[cfg(test)]
mod tests {
    use crate::sqlite::search::SearchKind;
    use crate::sqlite::thread_agents;

    #[test]
    fn the_kinds_of_search_rows_are_those_in_the_statements() {
        let kinds = [SearchKind::Thread as i64, SearchKind::Run as i64, thread_agents::KIND];
        assert_eq!(kinds, [1, 2, 3]);
    }
}
