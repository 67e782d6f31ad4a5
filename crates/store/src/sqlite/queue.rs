//! The queue's table. An entry is read, changed by the rules of [`crate::core::queue`], and written back whole.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row, ToSql, params};
use trilogue_domain::{RunKey, Scope, TenantId, ThreadKey, Timestamp};

use super::error::SqliteError;
use super::row;
use crate::core::queue::{BLOCKED, FinishOutcome, QueueEntry, settle_line};
use crate::record::Record;
use crate::rows::{Claim, DeadLetter, QueueItem, QueueKind, RetryDecision};

/// Due items. Items of a removed thread may still be in the table.
pub(super) const CLAIMABLE: &str = concat!(
    "SELECT id FROM queue WHERE kind = ?1 AND dead = 0 AND free_at <= ?2",
    " AND (thread IS NULL OR EXISTS (SELECT 1 FROM threads WHERE threads.key = queue.thread))",
    " ORDER BY free_at, id LIMIT ?3"
);
/// The most items that one transaction makes due earlier.
const MAX_MOVED_AT_ONCE: i64 = 256;
/// The columns of an entry after those of its item.
const ENTRY_COLUMNS: &str = "free_at, fence, attempts, held, dead, error, next";

/// Adds an item, or replaces the one under its key.
pub(super) fn offer(conn: &Connection, item: &QueueItem) -> Result<(), SqliteError> {
    if item.kind != QueueKind::Callback {
        // Only callbacks are in line. Any other item replaces the old one in one statement.
        let sql = concat!(
            "INSERT INTO queue",
            " (thread, kind, key, tenant, due, body, free_at, fence, attempts, dead, error, about)",
            " VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?6, 0, 0, 0, '', ?8)",
            " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = ?1, due = ?6, body = ?7,",
            " free_at = ?6, fence = fence + 1, attempts = 0, held = 0, dead = 0, error = '',",
            " about = ?8"
        );
        let (about, _) = item.run_and_line();
        row::write(conn, sql, item, &[&about.map(|run| run.0)])?;
        return Ok(());
    }
    let old = load(
        conn,
        "WHERE kind = ?1 AND tenant = ?2 AND key = ?3",
        params![item.kind.as_str(), item.tenant.as_str(), item.key],
    )?;
    let old = old.map(|(_, entry)| entry);
    let line = old.as_ref().and_then(|entry| entry.line);
    store(conn, &QueueEntry::offer(old, item.clone()), line)
}

/// Removes an item of the thread's tenant, even if a worker holds it.
pub(super) fn withdraw(
    conn: &Connection,
    thread: ThreadKey,
    kind: QueueKind,
    key: &str,
) -> Result<(), SqliteError> {
    let run: Option<Option<i64>> = conn
        .prepare_cached(concat!(
            "DELETE FROM queue WHERE kind = ?1 AND key = ?2",
            " AND tenant = (SELECT tenant FROM threads WHERE key = ?3) RETURNING run"
        ))?
        .query_row(params![kind.as_str(), key, thread.0], |row| row.get(0))
        .optional()?;
    settle(conn, run.flatten().map(RunKey))
}

pub(super) fn claim(
    conn: &Connection,
    kind: QueueKind,
    now: Timestamp,
    lease_until: Timestamp,
    limit: usize,
) -> Result<Vec<Claim>, SqliteError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let due = conn
        .prepare_cached(CLAIMABLE)?
        .query_map(params![kind.as_str(), now.as_micros(), limit], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut claims = Vec::with_capacity(due.len());
    for id in due {
        match claim_one(conn, id, now, lease_until) {
            Ok(claim) => claims.extend(claim),
            Err(SqliteError::Damaged(..)) => dead_letter(conn, id, "the stored item is damaged")?,
            Err(fail) => return Err(fail),
        }
    }
    Ok(claims)
}

fn claim_one(
    conn: &Connection,
    id: i64,
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<Option<Claim>, SqliteError> {
    let Some(mut entry) = by_id(conn, id)? else { return Ok(None) };
    let line = entry.line;
    if entry.expire() {
        store(conn, &entry, line)?;
        match by_id(conn, id)?.filter(|entry| entry.is_free(now)) {
            Some(free) => entry = free,
            None => return Ok(None),
        }
    }
    let claim = entry.claim(id, lease_until);
    store(conn, &entry, None)?;
    Ok(Some(claim))
}

/// Makes some live items with a greater id due earlier by `by`. Returns the id of the last one.
pub(super) fn bring_forward(
    conn: &Connection,
    behind: i64,
    by: Duration,
) -> Result<Option<i64>, SqliteError> {
    let ids = conn
        .prepare_cached("SELECT id FROM queue WHERE id > ?1 AND dead = 0 ORDER BY id LIMIT ?2")?
        .query_map(params![behind, MAX_MOVED_AT_ONCE], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<i64>>>()?;
    for id in &ids {
        match by_id(conn, *id) {
            Ok(Some(mut entry)) => {
                let line = entry.line;
                entry.bring_forward(by);
                store(conn, &entry, line)?;
            }
            Ok(None) => {}
            // The damage is reported when the item is claimed.
            Err(SqliteError::Damaged(..)) => {}
            Err(fail) => return Err(fail),
        }
    }
    Ok(ids.last().copied())
}

/// Extends a lease that is still held.
pub(super) fn extend(
    conn: &Connection,
    claim: &Claim,
    lease_until: Timestamp,
) -> Result<bool, SqliteError> {
    let Some(mut entry) = claimed_entry(conn, claim)? else { return Ok(false) };
    entry.free_at = Some(lease_until);
    store(conn, &entry, None)?;
    Ok(true)
}

pub(super) fn finish(conn: &Connection, claim: &Claim) -> Result<bool, SqliteError> {
    let Some(mut entry) = claimed_entry(conn, claim)? else { return Ok(false) };
    let line = entry.line;
    match entry.finish() {
        FinishOutcome::Replaced => store(conn, &entry, line)?,
        FinishOutcome::Removed => {
            conn.prepare_cached("DELETE FROM queue WHERE id = ?1")?.execute([claim.id])?;
            settle(conn, line.map(|(run, _)| run))?;
        }
    }
    Ok(true)
}

/// Schedules a retry of an item that is still held, or gives it up.
pub(super) fn abandon(
    conn: &Connection,
    claim: &Claim,
    how: &RetryDecision,
    error: &str,
) -> Result<bool, SqliteError> {
    let Some(mut entry) = claimed_entry(conn, claim)? else { return Ok(false) };
    let line = entry.line;
    entry.abandon(how, error);
    store(conn, &entry, line)?;
    Ok(true)
}

pub(super) fn next_due(
    conn: &Connection,
    kind: QueueKind,
) -> Result<Option<Timestamp>, SqliteError> {
    let free_at: Option<i64> = conn
        .prepare_cached("SELECT min(free_at) FROM queue WHERE kind = ?1 AND dead = 0")?
        .query_row([kind.as_str()], |row| row.get(0))?;
    Ok(free_at.map(Timestamp::from_micros))
}

/// Puts a dead item of the scope back, due now.
pub(super) fn revive(
    conn: &Connection,
    scope: &Scope,
    id: i64,
    now: Timestamp,
) -> Result<bool, SqliteError> {
    let found = load(
        conn,
        "WHERE id = ?1 AND tenant = ?2 AND dead = 1",
        params![id, scope.tenant.as_str()],
    )?;
    let is_seen = |entry: &QueueEntry| scope.can_see(&entry.item.tenant, &entry.item.principal);
    let Some((_, mut entry)) = found.filter(|(_, entry)| is_seen(entry)) else {
        return Ok(false);
    };
    entry.revive(now);
    store(conn, &entry, None)?;
    Ok(true)
}

/// Dead items of a tenant with an id below the given one, newest first.
pub(super) fn dead(
    conn: &Connection,
    tenant: &TenantId,
    kind: QueueKind,
    before: i64,
    mut each: impl FnMut(DeadLetter) -> bool,
) -> Result<(), SqliteError> {
    let sql = select(concat!(
        "WHERE tenant = ?1 AND dead = 1 AND kind = ?2 AND id < ?3",
        " AND (thread IS NULL OR EXISTS (SELECT 1 FROM threads WHERE threads.key = queue.thread))",
        " ORDER BY id DESC"
    ));
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![tenant.as_str(), kind.as_str(), before])?;
    while let Some(row) = rows.next()? {
        // A damaged item is left out, because its content is unknown.
        if let Ok((id, QueueEntry { attempts, error, item, .. })) = entry(row)
            && !each(DeadLetter { id, attempts, error, item })
        {
            break;
        }
    }
    Ok(())
}

/// Reads all entries in the order of their ids; a damaged one as an error.
pub(super) fn each(
    conn: &Connection,
    mut visit: impl FnMut(Result<QueueEntry, SqliteError>) -> Result<(), SqliteError>,
) -> Result<(), SqliteError> {
    let mut statement = conn.prepare(&select("ORDER BY id"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        visit(entry(row).map(|(_, entry)| entry))?;
    }
    Ok(())
}

fn select(rest: &str) -> String {
    format!("SELECT {}, {ENTRY_COLUMNS} FROM queue {rest}", row::columns::<QueueItem>())
}

fn load(
    conn: &Connection,
    rest: &str,
    params: impl Params,
) -> Result<Option<(i64, QueueEntry)>, SqliteError> {
    let mut statement = conn.prepare_cached(&select(rest))?;
    statement.query_row(params, |row| Ok(entry(row))).optional()?.transpose()
}

fn by_id(conn: &Connection, id: i64) -> Result<Option<QueueEntry>, SqliteError> {
    Ok(load(conn, "WHERE id = ?1", [id])?.map(|(_, entry)| entry))
}

/// The entry of a claim, if the claim still holds it.
fn claimed_entry(conn: &Connection, claim: &Claim) -> Result<Option<QueueEntry>, SqliteError> {
    Ok(by_id(conn, claim.id)?.filter(|entry| entry.is_held_by(claim)))
}

fn entry(row: &Row<'_>) -> Result<(i64, QueueEntry), SqliteError> {
    let item: QueueItem = row::take(row)?;
    let next: Option<Vec<u8>> = row.get(13)?;
    let damaged = |error| SqliteError::Damaged(item.thread, error);
    let next = next.map(|next| QueueItem::decode(&next)).transpose().map_err(damaged)?;
    let free_at: i64 = row.get(7)?;
    let (about, line) = item.run_and_line();
    let entry = QueueEntry {
        about,
        line,
        item,
        next,
        free_at: (free_at != BLOCKED).then(|| Timestamp::from_micros(free_at)),
        fence: row.get::<_, i64>(8)?.cast_unsigned(),
        attempts: row.get(9)?,
        is_held: row.get(10)?,
        is_dead: row.get(11)?,
        error: row.get(12)?,
    };
    Ok((row.get(1)?, entry))
}

/// Writes an entry, and settles its line and the line in which it was before.
fn store(
    conn: &Connection,
    entry: &QueueEntry,
    before: Option<(RunKey, u64)>,
) -> Result<(), SqliteError> {
    write_entry(conn, entry)?;
    let (run, before) = (entry.line.map(|(run, _)| run), before.map(|(run, _)| run));
    if before != run {
        settle(conn, before)?;
    }
    settle(conn, run)
}

/// Writes an entry whose line is settled.
pub(super) fn write_entry(conn: &Connection, entry: &QueueEntry) -> Result<(), SqliteError> {
    let sql = concat!(
        "INSERT INTO queue (thread, kind, key, tenant, due, body, free_at, fence, attempts, held,",
        " dead, error, run, place, about, next)",
        " VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = ?1, due = ?6, body = ?7,",
        " free_at = ?8, fence = ?9, attempts = ?10, held = ?11, dead = ?12, error = ?13,",
        " run = ?14, place = ?15, about = ?16, next = ?17"
    );
    let next = entry.next.as_ref().map(Record::encode);
    let state = entry.state_columns();
    let mut others: Vec<&dyn ToSql> = state.iter().map(|column| column as &dyn ToSql).collect();
    others.push(&next);
    row::write(conn, sql, &entry.item, &others)?;
    Ok(())
}

/// Frees the first item of a line, unless an item of the line is held.
fn settle(conn: &Connection, run: Option<RunKey>) -> Result<(), SqliteError> {
    let Some(run) = run else { return Ok(()) };
    let free: Option<(i64, bool)> = conn
        .prepare_cached(concat!(
            "SELECT id, held FROM queue INDEXED BY queue_first_in_line",
            " WHERE run = ?1 AND dead = 0 AND free_at < 9223372036854775807"
        ))?
        .query_row([run.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let first: Option<i64> = conn
        .prepare_cached(concat!(
            "SELECT id FROM queue INDEXED BY queue_in_line WHERE run = ?1 AND dead = 0",
            " ORDER BY place, id LIMIT 1"
        ))?
        .query_row([run.0], |row| row.get(0))
        .optional()?;
    let Some(change) = settle_line(free, first) else { return Ok(()) };
    if let Some(id) = change.blocked {
        conn.prepare_cached("UPDATE queue SET free_at = ?2 WHERE id = ?1")?
            .execute([id, BLOCKED])?;
    }
    if let Some(id) = change.freed {
        conn.prepare_cached("UPDATE queue SET free_at = due WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

fn dead_letter(conn: &Connection, id: i64, why: &str) -> Result<(), SqliteError> {
    tracing::error!(id, why, "a queue item was given up");
    let sql =
        "UPDATE queue SET dead = 1, error = ?2, fence = fence + 1 WHERE id = ?1 RETURNING run";
    let run: Option<i64> =
        conn.prepare_cached(sql)?.query_row(params![id, why], |row| row.get(0))?;
    settle(conn, run.map(RunKey))
}
