//! The durable queue: items, leases, fencing, dead letters.

use rusqlite::{Connection, OptionalExtension, Row, params};
use trilogue_domain::{RunKey, Scope, TenantId, ThreadKey, Timestamp};

use super::fault::Fail;
use super::{line, row};
use crate::record::Record;
use crate::rows::{Abandon, Claim, DeadItem, QueueItem, QueueKind};

/// The longest stored error, in bytes.
const MAX_ERROR_BYTES: usize = 4 * 1024;

/// Puts an item in, or in the place of the one under its key; who holds that one loses it.
pub(super) fn offer(conn: &Connection, item: &QueueItem) -> Result<(), Fail> {
    if let Some(line) = item.line() {
        return line::offer(conn, item, line);
    }
    conn.prepare_cached(concat!(
        "INSERT INTO queue",
        " (kind, key, tenant, thread, due, free_at, fence, attempts, dead, error, body)",
        " VALUES (?1, ?2, ?3, ?4, ?5, ?5, 0, 0, 0, '', ?6)",
        " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = ?4, due = ?5, free_at = ?5,",
        " fence = fence + 1, attempts = 0, dead = 0, error = '', body = ?6"
    ))?
    .execute(params![
        item.kind.as_str(),
        item.key,
        item.tenant.as_str(),
        item.thread.map(|thread| thread.0),
        item.due.as_micros(),
        item.encode(),
    ])?;
    Ok(())
}

/// Takes an item of the thread's tenant out, whoever holds it.
pub(super) fn withdraw(
    conn: &Connection,
    thread: ThreadKey,
    kind: QueueKind,
    key: &str,
) -> Result<(), Fail> {
    let run: Option<Option<i64>> = conn
        .prepare_cached(concat!(
            "DELETE FROM queue WHERE kind = ?1 AND key = ?2",
            " AND tenant = (SELECT tenant FROM threads WHERE key = ?3) RETURNING run"
        ))?
        .query_row(params![kind.as_str(), key, thread.0], |row| row.get(0))
        .optional()?;
    run.flatten().map_or(Ok(()), |run| line::settle(conn, RunKey(run)))
}

/// Claims items that can be claimed, oldest first.
pub(super) fn claim(
    conn: &Connection,
    kind: QueueKind,
    now: Timestamp,
    lease_until: Timestamp,
    limit: usize,
) -> Result<Vec<Claim>, Fail> {
    let rest =
        concat!("WHERE kind = ?1 AND dead = 0 AND free_at <= ?2", " ORDER BY free_at, id LIMIT ?3");
    let sql = format!(
        "SELECT {}, fence, attempts, next IS NOT NULL FROM queue {rest}",
        <QueueItem as row::Stored>::COLUMNS
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    {
        let mut statement = conn.prepare_cached(&sql)?;
        let mut rows = statement.query(params![kind.as_str(), now.as_micros(), limit])?;
        while let Some(row) = rows.next()? {
            let (fence, attempts) = (row.get::<_, i64>(7)?, row.get::<_, u32>(8)?);
            let found_item = (row.get(1)?, fence, attempts, row.get::<_, bool>(9)?);
            found.push((found_item, row::take::<QueueItem>(row)));
        }
    }
    let mut claims = Vec::with_capacity(found.len());
    for ((id, fence, attempts, has_next), item) in found {
        let Ok(mut item) = item else {
            bury(conn, id, "the stored item is damaged")?;
            continue;
        };
        let mut fence = fence;
        if has_next {
            // Whoever held it is gone: what was offered meanwhile is newer.
            let old = Claim { id, fence: fence.cast_unsigned(), attempts, item: item.clone() };
            line::promote(conn, &old, Some(item.due))?;
            let newer = row::one::<QueueItem>(
                conn,
                "WHERE id = ?1 AND dead = 0 AND free_at <= ?2",
                [id, now.as_micros()],
            )?;
            // It may stand behind another of its line now.
            let Some(newer) = newer else { continue };
            item = newer;
            fence += 1;
        }
        conn.prepare_cached(concat!(
            "UPDATE queue SET free_at = ?2, fence = fence + 1, attempts = attempts + 1, held = 1",
            " WHERE id = ?1"
        ))?
        .execute([id, lease_until.as_micros()])?;
        let fence = fence.cast_unsigned().saturating_add(1);
        claims.push(Claim { id, fence, attempts: attempts.saturating_add(1), item });
    }
    Ok(claims)
}

/// Lengthens a lease that is still held.
pub(super) fn extend(
    conn: &Connection,
    claim: &Claim,
    lease_until: Timestamp,
) -> Result<bool, Fail> {
    let changed = conn
        .prepare_cached("UPDATE queue SET free_at = ?3 WHERE id = ?1 AND fence = ?2 AND dead = 0")?
        .execute([claim.id, claim.fence.cast_signed(), lease_until.as_micros()])?;
    Ok(changed > 0)
}

/// Removes an item that is still held.
pub(super) fn finish(conn: &Connection, claim: &Claim) -> Result<bool, Fail> {
    let sql = "DELETE FROM queue WHERE id = ?1 AND fence = ?2 AND dead = 0 AND next IS NULL";
    let changed = conn.prepare_cached(sql)?.execute([claim.id, claim.fence.cast_signed()])?;
    if changed == 0 {
        return line::promote(conn, claim, None);
    }
    line::leave(conn, &claim.item)?;
    Ok(true)
}

/// Gives an item that is still held back, or up. The fence grows, so it cannot be given up twice.
pub(super) fn abandon(
    conn: &Connection,
    claim: &Claim,
    how: &Abandon,
    error: &str,
) -> Result<bool, Fail> {
    let mut end = error.len().min(MAX_ERROR_BYTES);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    let error = error.get(..end).unwrap_or_default();
    let again = match how {
        Abandon::RetryAt(at) => Some(*at),
        Abandon::Dead => None,
    };
    if claim.item.line().is_some() && line::promote(conn, claim, again)? {
        return Ok(true);
    }
    let (id, fence) = (claim.id, claim.fence.cast_signed());
    let changed = match how {
        Abandon::RetryAt(at) => {
            let item = QueueItem { due: *at, ..claim.item.clone() };
            conn.prepare_cached(concat!(
                "UPDATE queue SET due = ?3, free_at = ?3, body = ?4, error = ?5,",
                " fence = fence + 1, held = 0 WHERE id = ?1 AND fence = ?2 AND dead = 0"
            ))?
            .execute(params![id, fence, at.as_micros(), item.encode(), error])?
        }
        Abandon::Dead => conn
            .prepare_cached(concat!(
                "UPDATE queue SET dead = 1, error = ?3, fence = fence + 1, held = 0",
                " WHERE id = ?1 AND fence = ?2 AND dead = 0"
            ))?
            .execute(params![id, fence, error])?,
    };
    if changed > 0 {
        line::leave(conn, &claim.item)?;
    }
    Ok(changed > 0)
}

/// When the next item of this kind can be claimed.
pub(super) fn next_due(conn: &Connection, kind: QueueKind) -> Result<Option<Timestamp>, Fail> {
    let free_at: Option<i64> = conn
        .prepare_cached("SELECT min(free_at) FROM queue WHERE kind = ?1 AND dead = 0")?
        .query_row([kind.as_str()], |row| row.get(0))?;
    Ok(free_at.map(Timestamp::from_micros))
}

/// Puts a dead item of the tenant back, due now.
pub(super) fn revive(
    conn: &Connection,
    scope: &Scope,
    id: i64,
    now: Timestamp,
) -> Result<bool, Fail> {
    let rest = "WHERE id = ?1 AND tenant = ?2 AND dead = 1";
    let found = row::one::<QueueItem>(conn, rest, params![id, scope.tenant.as_str()])?;
    let Some(mut item) = found else { return Ok(false) };
    if !scope.sees(&item.tenant, &item.principal) {
        return Ok(false);
    }
    item.due = now;
    let free_at = if item.line().is_some() { i64::MAX } else { now.as_micros() };
    conn.prepare_cached(concat!(
        "UPDATE queue SET due = ?2, free_at = ?4, fence = fence + 1, attempts = 0,",
        " dead = 0, error = '', body = ?3 WHERE id = ?1"
    ))?
    .execute(params![id, now.as_micros(), item.encode(), free_at])?;
    line::leave(conn, &item)?;
    Ok(true)
}

/// Dead items of a tenant with an id below this one, newest first.
pub(super) fn dead(
    conn: &Connection,
    tenant: &TenantId,
    kind: QueueKind,
    before: i64,
    mut each: impl FnMut(DeadItem) -> bool,
) -> Result<(), Fail> {
    let sql = format!(
        "SELECT {}, attempts, error FROM queue WHERE tenant = ?1 AND dead = 1 AND kind = ?2 AND id < ?3 ORDER BY id DESC",
        <QueueItem as row::Stored>::COLUMNS
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![tenant.as_str(), kind.as_str(), before])?;
    while let Some(row) = rows.next()? {
        // A damaged item is left out: nobody can tell any more what it was.
        if let Ok(item) = dead_item(row)
            && !each(item)
        {
            break;
        }
    }
    Ok(())
}

fn dead_item(row: &Row<'_>) -> Result<DeadItem, Fail> {
    let (id, attempts, error) = (row.get(1)?, row.get(7)?, row.get(8)?);
    Ok(DeadItem { id, attempts, error, item: row::take(row)? })
}

pub(super) fn bury(conn: &Connection, id: i64, why: &str) -> Result<(), Fail> {
    tracing::error!(id, why, "a queue item was given up");
    let sql =
        "UPDATE queue SET dead = 1, error = ?2, fence = fence + 1 WHERE id = ?1 RETURNING run";
    let run: Option<i64> =
        conn.prepare_cached(sql)?.query_row(params![id, why], |row| row.get(0))?;
    run.map_or(Ok(()), |run| line::settle(conn, RunKey(run)))
}
