//! The queue on this engine: its port, and the statements that name its indexes. The steps are in [`crate::sql::queue`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};
use tokio::sync::Notify;
use trilogue_domain::error::Result;
use trilogue_domain::{Scope, Timestamp};

use super::SqliteStore;
use super::error::SqliteError;
use super::job::WorkKind;
use super::row::{self, run_to_end};
use crate::port::Queue;
use crate::rows::{Claim, QueueItem, QueueKind, RetryDecision};
use crate::sql::SqlError;
use crate::sql::queue::{self, QueueConnection, QueueStatements};

/// Due items. Items of a removed thread may still be in the table.
pub(super) const CLAIMABLE: &str = concat!(
    "SELECT id FROM queue WHERE kind = ?1 AND dead = 0 AND free_at <= ?2",
    " AND (thread IS NULL OR EXISTS (SELECT 1 FROM threads WHERE threads.key = queue.thread))",
    " ORDER BY free_at, id LIMIT ?3"
);
/// The most items that one transaction makes due earlier.
const MAX_MOVED_AT_ONCE: i64 = 256;

// === impl Connection ===

impl QueueConnection for Connection {
    const STATEMENTS: QueueStatements = QueueStatements {
        dead: concat!(
            "WHERE tenant = ?1 AND dead = 1 AND kind = ?2 AND id < ?3",
            " AND (thread IS NULL OR EXISTS (SELECT 1 FROM threads WHERE threads.key = queue.thread))",
            " ORDER BY id DESC"
        ),
        free_in_line: concat!(
            "SELECT id, held FROM queue INDEXED BY queue_first_in_line",
            " WHERE run = ?1 AND dead = 0 AND free_at < 9223372036854775807"
        ),
        first_in_line: concat!(
            "SELECT id FROM queue INDEXED BY queue_in_line WHERE run = ?1 AND dead = 0",
            " ORDER BY place, id LIMIT 1"
        ),
    };
}

// === impl SqliteStore ===

#[async_trait]
impl Queue for SqliteStore {
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>> {
        // Workers poll an empty queue often, and a poll must not cost a write.
        match self.next_due(kind).await? {
            Some(due) if due <= now => {}
            _ => return Ok(Vec::new()),
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.write_vital(async move |conn| {
            let values = params![kind.as_str(), now.as_micros(), limit];
            let due = row::integers(conn, CLAIMABLE, values)?;
            queue::claim(conn, due, now, lease_until).await
        })
        .await
    }

    async fn bring_forward(&self, by: Duration) -> Result<()> {
        let mut behind = 0;
        let part = async |behind: i64| {
            self.write_vital(async move |conn| bring_forward(conn, behind, by).await).await
        };
        while let Some(last) = part(behind).await? {
            behind = last;
        }
        Ok(())
    }

    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool> {
        let claim = claim.clone();
        self.write_vital(async move |conn| queue::extend(conn, &claim, lease_until).await).await
    }

    async fn finish(&self, claim: &Claim) -> Result<bool> {
        let claim = claim.clone();
        self.write_vital(async move |conn| queue::finish(conn, &claim).await).await
    }

    async fn abandon(&self, claim: &Claim, how: RetryDecision, error: &str) -> Result<bool> {
        let (claim, error) = (claim.clone(), error.to_owned());
        let is_back = matches!(how, RetryDecision::RetryAt(_));
        let held = self
            .write_vital(async move |conn| queue::abandon(conn, &claim, &how, &error).await)
            .await?;
        if held && is_back {
            self.context.offered.wake();
        }
        Ok(held)
    }

    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>> {
        let sql = "SELECT min(free_at) FROM queue WHERE kind = ?1 AND dead = 0";
        let free_at: Option<i64> = self
            .read(move |conn, _| {
                Ok(conn.prepare_cached(sql)?.query_row([kind.as_str()], |row| row.get(0))?)
            })
            .await?;
        Ok(free_at.map(Timestamp::from_micros))
    }

    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool> {
        let scope = scope.clone();
        let revive = async move |conn: &Connection| queue::revive(conn, &scope, id, now).await;
        let is_back = self.write_kind(WorkKind::USUAL, revive).await?;
        if is_back {
            self.context.offered.wake();
        }
        Ok(is_back)
    }

    fn offer_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.context.offered.0)
    }
}

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
    run_to_end(queue::offer_callback(conn, item))
}

/// Makes some live items with a greater id due earlier by `by`. Returns the id of the last one.
async fn bring_forward(
    conn: &Connection,
    behind: i64,
    by: Duration,
) -> Result<Option<i64>, SqliteError> {
    let sql = "SELECT id FROM queue WHERE id > ?1 AND dead = 0 ORDER BY id LIMIT ?2";
    let ids = row::integers(conn, sql, params![behind, MAX_MOVED_AT_ONCE])?;
    for id in &ids {
        match queue::by_id(conn, *id).await {
            Ok(Some(mut entry)) => {
                let line = entry.line;
                entry.bring_forward(by);
                queue::store(conn, &entry, line).await?;
            }
            Ok(None) => {}
            // The damage is reported when the item is claimed.
            Err(fail) => drop(fail.into_damage()?),
        }
    }
    Ok(ids.last().copied())
}
