//! The queue's table. An entry is read, changed by the rules of [`crate::core::queue`], and written back whole.
//!
//! An entry is locked while it is changed. A line is settled under a lock of the line. A claim locks only its entry, so settling
//! leaves held entries as they are.

use std::future::ready;

use trilogue_domain::{RunKey, Scope, ThreadKey, Timestamp};

use super::{SqlConnection, SqlError, SqlRow, take, write};
use crate::core::page::PageBuilder;
use crate::core::queue::{BLOCKED, FinishOutcome, QueueEntry, settle_line};
use crate::core::table::{Column, columns};
use crate::record::Record;
use crate::rows::{Claim, DeadLetter, Listing, Page, QueueItem, QueueKind, RetryDecision};

/// Writes an entry under its key.
pub(crate) const STORE: &str = concat!(
    "INSERT INTO queue (thread, kind, key, tenant, due, body, free_at, fence, attempts, held,",
    " dead, error, run, place, about, next)",
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = ?1, due = ?5, body = ?6,",
    " free_at = ?7, fence = ?8, attempts = ?9, held = ?10, dead = ?11, error = ?12,",
    " run = ?13, place = ?14, about = ?15, next = ?16"
);
/// The columns of an entry after those of its item.
const ENTRY_COLUMNS: &str = "free_at, fence, attempts, held, dead, error, next";

/// The statements for which each engine names its own index.
#[derive(Debug)]
pub(crate) struct QueueStatements {
    /// After `FROM queue`: the dead items of a tenant and kind with an id below a bound, newest first.
    pub(crate) dead: &'static str,
    /// The id of the free item of a run's line, and whether the item is held.
    pub(crate) free_in_line: &'static str,
    /// The id of the first live item of a run's line.
    pub(crate) first_in_line: &'static str,
}

pub(crate) trait QueueConnection: SqlConnection {
    const STATEMENTS: QueueStatements;

    /// Locks a run's line until the transaction ends, if several processes use the store.
    fn lock_line(
        &self,
        run: Option<RunKey>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = run;
        ready(Ok(()))
    }
}

/// Adds a callback, replaces the one under its key, or queues after it while that one is held.
pub(crate) async fn offer_callback<C: QueueConnection>(
    conn: &C,
    item: &QueueItem,
) -> Result<(), C::Error> {
    let (_, line) = item.run_and_line();
    conn.lock_line(line.map(|(run, _)| run)).await?;
    let values = columns![item.kind, &item.tenant, &item.key];
    let old = load(conn, "WHERE kind = ?1 AND tenant = ?2 AND key = ?3", &values).await?;
    let before = old.as_ref().and_then(|entry| entry.line);
    store(conn, &QueueEntry::offer(old, item.clone()), before).await
}

/// Removes an item of the thread's tenant, even if a worker holds it.
pub(crate) async fn withdraw<C: QueueConnection>(
    conn: &C,
    thread: ThreadKey,
    kind: QueueKind,
    key: &str,
) -> Result<(), C::Error> {
    let sql = concat!(
        "DELETE FROM queue WHERE kind = ?1 AND key = ?2",
        " AND tenant = (SELECT tenant FROM threads WHERE key = ?3) RETURNING run"
    );
    let values = columns![kind, key, thread];
    remove_from_line(conn, sql, &values).await
}

/// Claims the entries with these ids, except those that are no longer free.
pub(crate) async fn claim<C: QueueConnection>(
    conn: &C,
    due: Vec<i64>,
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<Vec<Claim>, C::Error> {
    let mut claims = Vec::with_capacity(due.len());
    for id in due {
        match claim_one(conn, id, now, lease_until).await {
            Ok(claim) => claims.extend(claim),
            Err(fail) => {
                fail.into_damage()?;
                dead_letter(conn, id, "the stored item is damaged").await?;
            }
        }
    }
    Ok(claims)
}

async fn claim_one<C: QueueConnection>(
    conn: &C,
    id: i64,
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<Option<Claim>, C::Error> {
    let Some(mut entry) = by_id(conn, id).await? else { return Ok(None) };
    let line = entry.line;
    if entry.expire() {
        conn.lock_line(line.map(|(run, _)| run)).await?;
        store(conn, &entry, line).await?;
        match by_id(conn, id).await?.filter(|entry| entry.is_free(now)) {
            Some(free) => entry = free,
            None => return Ok(None),
        }
    }
    let claim = entry.claim(id, lease_until);
    let sql = "UPDATE queue SET free_at = ?2, fence = ?3, attempts = ?4, held = TRUE WHERE id = ?1";
    conn.execute(sql, &columns![id, lease_until, entry.fence, entry.attempts]).await?;
    Ok(Some(claim))
}

/// Extends a lease that is still held.
pub(crate) async fn extend<C: QueueConnection>(
    conn: &C,
    claim: &Claim,
    lease_until: Timestamp,
) -> Result<bool, C::Error> {
    let sql = "UPDATE queue SET free_at = ?3 WHERE id = ?1 AND fence = ?2 AND held AND NOT dead";
    Ok(conn.execute(sql, &columns![claim.id, claim.fence, lease_until]).await? > 0)
}

pub(crate) async fn finish<C: QueueConnection>(conn: &C, claim: &Claim) -> Result<bool, C::Error> {
    let Some(mut entry) = held_entry(conn, claim).await? else { return Ok(false) };
    let line = entry.line;
    match entry.finish() {
        FinishOutcome::Replaced => store(conn, &entry, line).await?,
        FinishOutcome::Removed => {
            conn.execute("DELETE FROM queue WHERE id = ?1", &columns![claim.id]).await?;
            settle(conn, line.map(|(run, _)| run)).await?;
        }
    }
    Ok(true)
}

/// Schedules a retry of an item that is still held, or gives it up.
pub(crate) async fn abandon<C: QueueConnection>(
    conn: &C,
    claim: &Claim,
    how: &RetryDecision,
    error: &str,
) -> Result<bool, C::Error> {
    let Some(mut entry) = held_entry(conn, claim).await? else { return Ok(false) };
    let line = entry.line;
    entry.abandon(how, error);
    store(conn, &entry, line).await?;
    Ok(true)
}

/// Puts a dead item of the scope back, due now.
pub(crate) async fn revive<C: QueueConnection>(
    conn: &C,
    scope: &Scope,
    id: i64,
    now: Timestamp,
) -> Result<bool, C::Error> {
    let values = columns![id, &scope.tenant];
    let found = load(conn, "WHERE id = ?1 AND tenant = ?2 AND dead", &values).await?;
    let is_seen = |entry: &QueueEntry| scope.can_see(&entry.item.tenant, &entry.item.principal);
    let Some(mut entry) = found.filter(is_seen) else { return Ok(false) };
    entry.revive(now);
    conn.lock_line(entry.line.map(|(run, _)| run)).await?;
    store(conn, &entry, None).await?;
    Ok(true)
}

/// Dead callbacks that the scope sees, newest first.
pub(crate) async fn dead_deliveries<C: QueueConnection>(
    conn: &C,
    scope: &Scope,
    page: &Page,
) -> Result<Listing<DeadLetter>, C::Error> {
    let mut pages = PageBuilder::new(page);
    let values = columns![&scope.tenant, QueueKind::Callback];
    let visit = |_, row: &C::Row<'_>| {
        // A damaged item is left out, because its content is unknown.
        let Ok((id, QueueEntry { attempts, error, item, .. })) = entry(row) else {
            return Ok(true);
        };
        let is_seen = scope.can_see(&item.tenant, &item.principal);
        Ok(!is_seen || pages.add(id, DeadLetter { id, attempts, error, item }))
    };
    conn.scan(&select::<C>(C::STATEMENTS.dead), &values, page.before(), visit).await?;
    Ok(pages.finish())
}

/// The statement that reads entries for [`entry`]: `rest` follows `FROM queue`.
pub(crate) fn select<C: SqlConnection>(rest: &str) -> String {
    format!("SELECT {}, {ENTRY_COLUMNS} FROM queue {rest}", C::columns::<QueueItem>())
}

/// Reads an entry with its id.
pub(crate) fn entry<S: SqlRow>(row: &S) -> Result<(i64, QueueEntry), S::Error> {
    let item: QueueItem = take(row)?;
    let damaged = |error| S::Error::damaged(item.thread, error);
    let next = row.bytes(13).map(QueueItem::decode).transpose().map_err(damaged)?;
    let free_at: i64 = row.value(7)?;
    let (about, line) = item.run_and_line();
    let entry = QueueEntry {
        about,
        line,
        item,
        next,
        free_at: (free_at != BLOCKED).then(|| Timestamp::from_micros(free_at)),
        fence: row.value::<i64>(8)?.cast_unsigned(),
        attempts: u32::try_from(row.value::<i64>(9)?).unwrap_or(u32::MAX),
        is_held: row.value(10)?,
        is_dead: row.value(11)?,
        error: row.free_text(12)?,
    };
    Ok((row.value(1)?, entry))
}

async fn load<C: QueueConnection>(
    conn: &C,
    rest: &str,
    values: &[Column<'_>],
) -> Result<Option<QueueEntry>, C::Error> {
    let sql = select::<C>(rest) + C::LOCK;
    conn.first(&sql, values, |row| Ok(entry(row)?.1)).await
}

pub(crate) async fn by_id<C: QueueConnection>(
    conn: &C,
    id: i64,
) -> Result<Option<QueueEntry>, C::Error> {
    load(conn, "WHERE id = ?1", &columns![id]).await
}

/// The entry of a claim, if the claim still holds it, with its line locked.
async fn held_entry<C: QueueConnection>(
    conn: &C,
    claim: &Claim,
) -> Result<Option<QueueEntry>, C::Error> {
    // Lock the line before the entry, in the same order as an offer, to avoid a deadlock.
    let (_, line) = claim.item.run_and_line();
    conn.lock_line(line.map(|(run, _)| run)).await?;
    Ok(by_id(conn, claim.id).await?.filter(|entry| entry.is_held_by(claim)))
}

/// Writes an entry, and settles its line and the line in which it was before.
pub(crate) async fn store<C: QueueConnection>(
    conn: &C,
    entry: &QueueEntry,
    before: Option<(RunKey, u64)>,
) -> Result<(), C::Error> {
    store_settled(conn, entry).await?;
    let (run, before) = (entry.line.map(|(run, _)| run), before.map(|(run, _)| run));
    if before != run {
        settle(conn, before).await?;
    }
    settle(conn, run).await
}

/// Writes an entry whose line is settled.
pub(crate) async fn store_settled<C: SqlConnection>(
    conn: &C,
    entry: &QueueEntry,
) -> Result<(), C::Error> {
    let next = entry.next.as_ref().map(Record::encode);
    let mut others = entry.state_columns().to_vec();
    others.push(next.as_deref().into());
    write(conn, STORE, &entry.item, &others).await?;
    Ok(())
}

/// Frees the first item of a line, unless an item of the line is held.
async fn settle<C: QueueConnection>(conn: &C, run: Option<RunKey>) -> Result<(), C::Error> {
    let Some(run) = run else { return Ok(()) };
    let (statements, of_run) = (C::STATEMENTS, columns![run]);
    let free = conn
        .first(statements.free_in_line, &of_run, |row| Ok((row.value(0)?, row.value(1)?)))
        .await?;
    let first = conn.first(statements.first_in_line, &of_run, |row| row.value(0)).await?;
    let Some(change) = settle_line(free, first) else { return Ok(()) };
    if let Some(id) = change.blocked {
        // A claim that was committed meanwhile keeps the line.
        let sql = "UPDATE queue SET free_at = ?2 WHERE id = ?1 AND NOT held";
        if conn.execute(sql, &columns![id, BLOCKED]).await? == 0 {
            return Ok(());
        }
    }
    if let Some(id) = change.freed {
        let sql = "UPDATE queue SET free_at = due WHERE id = ?1";
        conn.execute(sql, &columns![id]).await?;
    }
    Ok(())
}

async fn dead_letter<C: QueueConnection>(conn: &C, id: i64, why: &str) -> Result<(), C::Error> {
    tracing::error!(id, why, "a queue item was given up");
    let sql =
        "UPDATE queue SET dead = TRUE, error = ?2, fence = fence + 1 WHERE id = ?1 RETURNING run";
    remove_from_line(conn, sql, &columns![id, why]).await
}

/// Executes a statement that takes an item out of the line whose run it returns.
async fn remove_from_line<C: QueueConnection>(
    conn: &C,
    sql: &str,
    values: &[Column<'_>],
) -> Result<(), C::Error> {
    let run = conn.first(sql, values, |row| row.value::<Option<i64>>(0)).await?;
    let run = run.flatten().map(RunKey);
    // An offer that did not see the removal yet is settled here, after its commit.
    conn.lock_line(run).await?;
    settle(conn, run).await
}
