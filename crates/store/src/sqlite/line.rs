//! Items of one run in line: only the first can be claimed, and what is offered again while it is held waits behind it.

use rusqlite::{Connection, OptionalExtension, params};
use trilogue_domain::{RunKey, Timestamp};

use super::fault::Fail;
use super::queue::bury;
use crate::record::Record;
use crate::rows::{Claim, QueueItem};

/// When an item that is not the first in its line can be claimed: never.
const BLOCKED: i64 = i64::MAX;

/// Puts an item in its line. Under the key of an item that a worker holds it waits until the worker is done; under that of one that failed it is tried when that would have been.
pub(super) fn offer(
    conn: &Connection,
    item: &QueueItem,
    (run, place): (RunKey, u64),
) -> Result<(), Fail> {
    let live: Option<(i64, bool, i64, i64)> = conn
        .prepare_cached(concat!(
            "SELECT id, held, attempts, due FROM queue WHERE kind = ?1 AND tenant = ?2",
            " AND key = ?3 AND dead = 0 AND run IS NOT NULL"
        ))?
        .query_row(params![item.kind.as_str(), item.tenant.as_str(), item.key], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    if let Some((id, true, ..)) = live {
        conn.prepare_cached("UPDATE queue SET next = ?2 WHERE id = ?1")?
            .execute(params![id, item.encode()])?;
        return Ok(());
    }
    // A receiver that could not be reached is given no less patience for what is newer.
    let (attempts, due) = match live {
        Some((_, _, attempts, due)) if attempts > 0 => {
            (attempts, item.due.max(Timestamp::from_micros(due)))
        }
        _ => (0, item.due),
    };
    let item = QueueItem { due, ..item.clone() };
    conn.prepare_cached(concat!(
        "INSERT INTO queue (kind, key, tenant, thread, due, free_at, fence, attempts, dead, error,",
        " body, run, place) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?10, 0, '', ?7, ?8, ?9)",
        " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = ?4, due = ?5, free_at = ?6,",
        " fence = fence + 1, attempts = ?10, dead = 0, error = '', body = ?7, run = ?8, place = ?9,",
        " held = 0, next = NULL"
    ))?
    .execute(params![
        item.kind.as_str(),
        item.key,
        item.tenant.as_str(),
        item.thread.map(|thread| thread.0),
        item.due.as_micros(),
        BLOCKED,
        item.encode(),
        run.0,
        place.cast_signed(),
        attempts,
    ])?;
    settle(conn, run)
}

/// Makes the first in line free, unless one of the line is held.
pub(super) fn settle(conn: &Connection, run: RunKey) -> Result<(), Fail> {
    let free: Option<(i64, bool)> = conn
        .prepare_cached(concat!(
            "SELECT id, held FROM queue INDEXED BY queue_first_in_line",
            " WHERE run = ?1 AND dead = 0 AND free_at < 9223372036854775807"
        ))?
        .query_row([run.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if free.is_some_and(|(_, is_held)| is_held) {
        return Ok(());
    }
    let first: Option<i64> = conn
        .prepare_cached(concat!(
            "SELECT id FROM queue INDEXED BY queue_in_line WHERE run = ?1 AND dead = 0",
            " ORDER BY place, id LIMIT 1"
        ))?
        .query_row([run.0], |row| row.get(0))
        .optional()?;
    let free = free.map(|(id, _)| id);
    if free == first {
        return Ok(());
    }
    if let Some(id) = free {
        conn.prepare_cached("UPDATE queue SET free_at = ?2 WHERE id = ?1")?
            .execute([id, BLOCKED])?;
    }
    if let Some(id) = first {
        conn.prepare_cached("UPDATE queue SET free_at = due WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

/// Puts what was offered meanwhile in the place of the item that this claim holds, due when it was offered, and not before `at`. `false` when there is no such thing.
pub(super) fn promote(
    conn: &Connection,
    claim: &Claim,
    at: Option<Timestamp>,
) -> Result<bool, Fail> {
    let next: Option<Option<Vec<u8>>> = conn
        .prepare_cached("SELECT next FROM queue WHERE id = ?1 AND fence = ?2 AND dead = 0")?
        .query_row([claim.id, claim.fence.cast_signed()], |row| row.get(0))
        .optional()?;
    let Some(next) = next.flatten() else { return Ok(false) };
    let decoded = QueueItem::decode(&next).ok();
    let Some((item, line)) = decoded.and_then(|item| item.line().map(|line| (item, line))) else {
        bury(conn, claim.id, "the stored item is damaged")?;
        return Ok(true);
    };
    let item = QueueItem { due: at.map_or(item.due, |at| at.max(item.due)), ..item };
    // A receiver that could not be reached is given no less patience for what is newer.
    let attempts = if at.is_some() { i64::from(claim.attempts) } else { 0 };
    conn.prepare_cached(concat!(
        "UPDATE queue SET body = ?2, due = ?3, free_at = ?4, place = ?5, attempts = ?6,",
        " fence = fence + 1, error = '', held = 0, next = NULL WHERE id = ?1"
    ))?
    .execute(params![
        claim.id,
        item.encode(),
        item.due.as_micros(),
        BLOCKED,
        line.1.cast_signed(),
        attempts,
    ])?;
    settle(conn, line.0)?;
    Ok(true)
}

/// Has the others of the line go on, when an item has left it.
pub(super) fn leave(conn: &Connection, item: &QueueItem) -> Result<(), Fail> {
    item.line().map_or(Ok(()), |(run, _)| settle(conn, run))
}
