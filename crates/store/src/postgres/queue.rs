//! The queue's table. An entry is read, changed by the rules of [`crate::core::queue`], and written back whole.
//!
//! An entry is locked while it is changed. Entries in a run's line are changed under an advisory lock of the run.

use tokio_postgres::Row;
use trilogue_domain::{RunKey, Scope, TenantId, ThreadKey, Timestamp};

use super::change::RowStatement;
use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::node::not_elsewhere;
use super::row::{self, Param, Params, bind, refs};
use crate::core::queue::{BLOCKED, FinishOutcome, QueueEntry, settle_line};
use crate::core::table::{Column, TableRow};
use crate::record::Record;
use crate::rows::{Claim, DeadLetter, QueueItem, QueueKind, RetryDecision};

/// Adds an item that is in no line, or replaces the old one.
pub(super) const OFFER: &str = concat!(
    "INSERT INTO queue",
    " (thread, kind, key, tenant, due, body, free_at, fence, attempts, dead, error, about)",
    " VALUES ($1, $2, $3, $4, $5, $6, $5, 0, 0, FALSE, '', $7)",
    " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = $1, due = $5, body = $6,",
    " free_at = $5, fence = queue.fence + 1, attempts = 0, held = FALSE, dead = FALSE,",
    " error = '', about = $7"
);
const STORE: &str = concat!(
    "INSERT INTO queue (thread, kind, key, tenant, due, body, free_at, fence, attempts, held,",
    " dead, error, run, place, about, next)",
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
    " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = $1, due = $5, body = $6,",
    " free_at = $7, fence = $8, attempts = $9, held = $10, dead = $11, error = $12,",
    " run = $13, place = $14, about = $15, next = $16"
);
/// The condition that this node may work on an item because of its agents. It holds if no other live node has an agent that this node lacks, of the item's open runs or of the ended run that the item reports. It also holds if this node owns the thread. [`Database::ownership`] and [`Database::foreign_agents`] give the values.
macro_rules! not_of_foreign_agent {
    ($me:literal, $foreign:literal) => {
        concat!(
            "(cardinality(",
            $foreign,
            "::text[]) = 0 OR NOT EXISTS (SELECT 1 FROM runs JOIN heads ON heads.thread = runs.thread",
            " WHERE runs.thread = queue.thread AND runs.agent = ANY(",
            $foreign,
            ") AND (runs.ended_at IS NULL OR runs.key = queue.about) AND heads.owner_node <> ",
            $me,
            "))"
        )
    };
}

/// The condition that this node owns the item's thread. It applies if the flag is set: a draining node leaves all other work to others.
macro_rules! own_where {
    ($flag:literal, $me:literal) => {
        concat!(
            " AND (NOT ",
            $flag,
            " OR EXISTS (SELECT 1 FROM heads WHERE heads.thread = queue.thread",
            " AND heads.owner_node = ",
            $me,
            "))"
        )
    };
}

/// Due items that no other worker claims at this moment, whose thread no other live node owns, and whose agent is not only on another node.
const CLAIMABLE: &str = concat!(
    "SELECT id FROM queue WHERE kind = $1 AND NOT dead AND free_at <= $2 AND ",
    not_elsewhere!("queue.thread", "$4", "$5"),
    " AND ",
    not_of_foreign_agent!("$4", "$6"),
    own_where!("$7", "$4"),
    " ORDER BY free_at, id LIMIT $3 FOR UPDATE OF queue SKIP LOCKED"
);
/// The columns of an entry after those of its item.
const ENTRY_COLUMNS: &str = "free_at, fence, attempts, held, dead, error, next";

/// Adds a callback, replaces the one under its key, or queues after it while that one is held.
pub(super) async fn offer_callback(
    conn: &Connection,
    item: &QueueItem,
) -> Result<(), PostgresError> {
    let (_, line) = item.run_and_line();
    lock_line(conn, line.map(|(run, _)| run)).await?;
    let rest = "WHERE kind = $1 AND tenant = $2 AND key = $3 FOR UPDATE";
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
        [&item.kind.as_str(), &item.tenant.as_str(), &item.key];
    let old = load(conn, rest, &params).await?.map(|(_, entry)| entry);
    let before = old.as_ref().and_then(|entry| entry.line);
    store(conn, &QueueEntry::offer(old, item.clone()), before).await
}

/// Removes an item of the thread's tenant, even if a worker holds it.
pub(super) async fn withdraw(
    conn: &Connection,
    thread: ThreadKey,
    kind: QueueKind,
    key: &str,
) -> Result<(), PostgresError> {
    let sql = concat!(
        "DELETE FROM queue WHERE kind = $1 AND key = $2",
        " AND tenant = (SELECT tenant FROM threads WHERE key = $3) RETURNING run"
    );
    let removed = row::query_opt(conn, sql, &[&kind.as_str(), &key, &thread.0]).await?;
    let run: Option<i64> = removed.and_then(|row| row.get(0));
    lock_line(conn, run.map(RunKey)).await?;
    settle(conn, run.map(RunKey)).await
}

pub(super) async fn claim(
    conn: &Connection,
    database: &Database,
    kind: QueueKind,
    now: Timestamp,
    lease_until: Timestamp,
    limit: usize,
) -> Result<Vec<Claim>, PostgresError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (me, dead) = database.ownership();
    let (foreign, only_own) = (database.foreign_agents(), database.leaves_work(conn).await?);
    let params: &Params<'_> =
        &[&kind.as_str(), &now.as_micros(), &limit, &me, &dead, &foreign, &only_own];
    let due = row::query(conn, CLAIMABLE, params).await?;
    let mut claims = Vec::with_capacity(due.len());
    for id in due.iter().map(|row| row.get(0)) {
        match claim_one(conn, id, now, lease_until).await {
            Ok(claim) => claims.extend(claim),
            Err(PostgresError::Damaged(..)) => {
                dead_letter(conn, id, "the stored item is damaged").await?;
            }
            Err(fail) => return Err(fail),
        }
    }
    Ok(claims)
}

async fn claim_one(
    conn: &Connection,
    id: i64,
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<Option<Claim>, PostgresError> {
    let Some(mut entry) = by_id(conn, id).await? else { return Ok(None) };
    let line = entry.line;
    if entry.expire() {
        lock_line(conn, line.map(|(run, _)| run)).await?;
        store(conn, &entry, line).await?;
        match by_id(conn, id).await?.filter(|entry| entry.is_free(now)) {
            Some(free) => entry = free,
            None => return Ok(None),
        }
    }
    let claim = entry.claim(id, lease_until);
    let sql = "UPDATE queue SET free_at = $2, fence = $3, attempts = $4, held = TRUE WHERE id = $1";
    let (fence, attempts) = (entry.fence.cast_signed(), i64::from(entry.attempts));
    row::execute(conn, sql, &[&id, &lease_until.as_micros(), &fence, &attempts]).await?;
    Ok(Some(claim))
}

/// Extends a lease that is still held.
pub(super) async fn extend(
    conn: &Connection,
    claim: &Claim,
    lease_until: Timestamp,
) -> Result<bool, PostgresError> {
    let sql = "UPDATE queue SET free_at = $3 WHERE id = $1 AND fence = $2 AND held AND NOT dead";
    let params: &Params<'_> = &[&claim.id, &claim.fence.cast_signed(), &lease_until.as_micros()];
    Ok(row::execute(conn, sql, params).await? > 0)
}

pub(super) async fn finish(conn: &Connection, claim: &Claim) -> Result<bool, PostgresError> {
    let Some(mut entry) = claimed_entry(conn, claim).await? else { return Ok(false) };
    let line = entry.line;
    match entry.finish() {
        FinishOutcome::Replaced => store(conn, &entry, line).await?,
        FinishOutcome::Removed => {
            row::execute(conn, "DELETE FROM queue WHERE id = $1", &[&claim.id]).await?;
            settle(conn, line.map(|(run, _)| run)).await?;
        }
    }
    Ok(true)
}

/// Schedules a retry of an item that is still held, or gives it up.
pub(super) async fn abandon(
    conn: &Connection,
    claim: &Claim,
    how: &RetryDecision,
    error: &str,
) -> Result<bool, PostgresError> {
    let Some(mut entry) = claimed_entry(conn, claim).await? else { return Ok(false) };
    let line = entry.line;
    entry.abandon(how, error);
    store(conn, &entry, line).await?;
    Ok(true)
}

pub(super) async fn next_due(
    conn: &Connection,
    database: &Database,
    kind: QueueKind,
) -> Result<Option<Timestamp>, PostgresError> {
    let sql = concat!(
        "SELECT free_at FROM queue WHERE kind = $1 AND NOT dead AND ",
        not_elsewhere!("queue.thread", "$2", "$3"),
        " AND ",
        not_of_foreign_agent!("$2", "$4"),
        own_where!("$5", "$2"),
        " ORDER BY free_at LIMIT 1"
    );
    let (me, dead) = database.ownership();
    let (foreign, only_own) = (database.foreign_agents(), database.leaves_work(conn).await?);
    let params: &Params<'_> = &[&kind.as_str(), &me, &dead, &foreign, &only_own];
    let found = row::query_opt(conn, sql, params).await?;
    Ok(found.map(|row| Timestamp::from_micros(row.get(0))))
}

/// Puts a dead item of the scope back, due now.
pub(super) async fn revive(
    conn: &Connection,
    scope: &Scope,
    id: i64,
    now: Timestamp,
) -> Result<bool, PostgresError> {
    let rest = "WHERE id = $1 AND tenant = $2 AND dead FOR UPDATE";
    let found = load(conn, rest, &[&id, &scope.tenant.as_str()]).await?;
    let is_seen = |entry: &QueueEntry| scope.can_see(&entry.item.tenant, &entry.item.principal);
    let Some((_, mut entry)) = found.filter(|(_, entry)| is_seen(entry)) else {
        return Ok(false);
    };
    entry.revive(now);
    lock_line(conn, entry.line.map(|(run, _)| run)).await?;
    store(conn, &entry, None).await?;
    Ok(true)
}

/// Dead items of a tenant with an id below the given one, newest first.
pub(super) async fn dead(
    conn: &Connection,
    tenant: &TenantId,
    kind: QueueKind,
    before: i64,
    limit: i64,
) -> Result<Vec<DeadLetter>, PostgresError> {
    let rest = "WHERE tenant = $1 AND dead AND kind = $2 AND id < $3 ORDER BY id DESC LIMIT $4";
    let params: &Params<'_> = &[&tenant.as_str(), &kind.as_str(), &before, &limit];
    let rows = row::query(conn, &select(rest), params).await?;
    // A damaged item is left out, because its content is unknown.
    let entries = rows.iter().filter_map(|row| entry(row).ok());
    Ok(entries
        .map(|(id, QueueEntry { attempts, error, item, .. })| DeadLetter {
            id,
            attempts,
            error,
            item,
        })
        .collect())
}

fn select(rest: &str) -> String {
    format!("SELECT {}, {ENTRY_COLUMNS} FROM queue {rest}", row::columns::<QueueItem>())
}

async fn load(
    conn: &Connection,
    rest: &str,
    params: &Params<'_>,
) -> Result<Option<(i64, QueueEntry)>, PostgresError> {
    row::query_opt(conn, &select(rest), params).await?.map(|row| entry(&row)).transpose()
}

async fn by_id(conn: &Connection, id: i64) -> Result<Option<QueueEntry>, PostgresError> {
    Ok(load(conn, "WHERE id = $1 FOR UPDATE", &[&id]).await?.map(|(_, entry)| entry))
}

/// The entry of a claim, if the claim still holds it, with its line locked.
async fn claimed_entry(
    conn: &Connection,
    claim: &Claim,
) -> Result<Option<QueueEntry>, PostgresError> {
    // Lock the line before the entry, in the same order as an offer, to avoid a deadlock.
    let (_, line) = claim.item.run_and_line();
    lock_line(conn, line.map(|(run, _)| run)).await?;
    Ok(by_id(conn, claim.id).await?.filter(|entry| entry.is_held_by(claim)))
}

async fn lock_line(conn: &Connection, run: Option<RunKey>) -> Result<(), PostgresError> {
    if let Some(run) = run {
        row::query(conn, "SELECT pg_advisory_xact_lock($1)", &[&run.0]).await?;
    }
    Ok(())
}

pub(super) fn entry(row: &Row) -> Result<(i64, QueueEntry), PostgresError> {
    let item: QueueItem = row::take(row)?;
    let next: Option<Vec<u8>> = row.get(13);
    let damaged = |error| PostgresError::Damaged(item.thread, error);
    let next = next.map(|next| QueueItem::decode(&next)).transpose().map_err(damaged)?;
    let free_at: i64 = row.get(7);
    let (about, line) = item.run_and_line();
    let entry = QueueEntry {
        about,
        line,
        item,
        next,
        free_at: (free_at != BLOCKED).then(|| Timestamp::from_micros(free_at)),
        fence: row.get::<_, i64>(8).cast_unsigned(),
        attempts: u32::try_from(row.get::<_, i64>(9)).unwrap_or(u32::MAX),
        is_held: row.get(10),
        is_dead: row.get(11),
        error: String::from_utf8_lossy(row.get(12)).into_owned(),
    };
    Ok((row.get(1), entry))
}

/// Writes an entry that is settled with its line.
pub(super) fn entry_statement(entry: &QueueEntry) -> RowStatement<'_> {
    RowStatement::new(STORE, entry_params(entry))
}

/// Reads every entry: the statement for [`entry`].
pub(super) fn select_all() -> String {
    select("ORDER BY id")
}

/// The values of an entry for [`STORE`].
fn entry_params(entry: &QueueEntry) -> Vec<Param<'_>> {
    let columns = entry.item.columns();
    let mut params = bind(&entry.item, columns.as_ref());
    params.extend(entry.state_columns().map(Param::Column));
    let next = entry.next.as_ref().map(Record::encode);
    params.push(next.map_or(Param::Column(Column::Null), Param::Body));
    params
}

/// Writes an entry, and settles its line and the line in which it was before.
async fn store(
    conn: &Connection,
    entry: &QueueEntry,
    before: Option<(RunKey, u64)>,
) -> Result<(), PostgresError> {
    let params = entry_params(entry);
    row::execute(conn, STORE, &refs(&params)).await?;
    let (run, before) = (entry.line.map(|(run, _)| run), before.map(|(run, _)| run));
    if before != run {
        settle(conn, before).await?;
    }
    settle(conn, run).await
}

/// Frees the first item of a line, unless an item of the line is held.
async fn settle(conn: &Connection, run: Option<RunKey>) -> Result<(), PostgresError> {
    let Some(run) = run else { return Ok(()) };
    let free = concat!(
        "SELECT id, held FROM queue",
        " WHERE run = $1 AND NOT dead AND free_at < 9223372036854775807"
    );
    let free = row::query_opt(conn, free, &[&run.0]).await?.map(|row| (row.get(0), row.get(1)));
    let first = "SELECT id FROM queue WHERE run = $1 AND NOT dead ORDER BY place, id LIMIT 1";
    let first = row::query_opt(conn, first, &[&run.0]).await?.map(|row| row.get(0));
    let Some(change) = settle_line(free, first) else { return Ok(()) };
    if let Some(id) = change.blocked {
        row::execute(conn, "UPDATE queue SET free_at = $2 WHERE id = $1", &[&id, &BLOCKED]).await?;
    }
    if let Some(id) = change.freed {
        row::execute(conn, "UPDATE queue SET free_at = due WHERE id = $1", &[&id]).await?;
    }
    Ok(())
}

async fn dead_letter(conn: &Connection, id: i64, why: &str) -> Result<(), PostgresError> {
    tracing::error!(id, why, "a queue item was given up");
    let sql =
        "UPDATE queue SET dead = TRUE, error = $2, fence = fence + 1 WHERE id = $1 RETURNING run";
    let buried = row::query_opt(conn, sql, &[&id, &why.as_bytes()]).await?;
    let run: Option<i64> = buried.and_then(|row| row.get(0));
    settle(conn, run.map(RunKey)).await
}
