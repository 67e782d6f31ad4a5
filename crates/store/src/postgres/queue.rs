//! The queue on this engine: its port, the statements that name its locks, and those that leave work to other nodes. The steps are in [`crate::sql::queue`].

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use tokio::sync::Notify;
use trilogue_domain::error::Result;
use trilogue_domain::{RunKey, Scope, Timestamp};

use super::PostgresStore;
use super::change::RowStatement;
use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::node::not_elsewhere;
use super::row::{self, Param, Params, bind, numbered};
use crate::core::queue::QueueEntry;
use crate::core::table::{Column, TableRow};
use crate::port::Queue;
use crate::record::Record;
use crate::rows::{Claim, QueueKind, RetryDecision};
use crate::sql::queue::{self, QueueConnection, QueueStatements, STORE};

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

// === impl Connection ===

impl QueueConnection for Connection {
    const STATEMENTS: QueueStatements = QueueStatements {
        dead: "WHERE tenant = ?1 AND dead AND kind = ?2 AND id < ?3 ORDER BY id DESC",
        free_in_line: concat!(
            "SELECT id, held FROM queue",
            " WHERE run = ?1 AND NOT dead AND free_at < 9223372036854775807"
        ),
        first_in_line: "SELECT id FROM queue WHERE run = ?1 AND NOT dead ORDER BY place, id LIMIT 1",
    };

    async fn lock_line(&self, run: Option<RunKey>) -> Result<(), PostgresError> {
        if let Some(run) = run {
            row::query(self, "SELECT pg_advisory_xact_lock($1)", &[&run.0]).await?;
        }
        Ok(())
    }
}

// === impl PostgresStore ===

#[async_trait]
impl Queue for PostgresStore {
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>> {
        // Workers poll an empty queue often, and a poll must not cost a transaction.
        match self.next_due(kind).await? {
            Some(due) if due <= now => {}
            _ => return Ok(Vec::new()),
        }
        let database = &self.database;
        database
            .write(|conn| async move {
                let due = claimable(&conn, database, kind, now, limit).await?;
                queue::claim(&**conn, due, now, lease_until).await
            })
            .await
    }

    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool> {
        self.database
            .write(|conn| async move { queue::extend(&**conn, claim, lease_until).await })
            .await
    }

    async fn finish(&self, claim: &Claim) -> Result<bool> {
        self.database.write(|conn| async move { queue::finish(&**conn, claim).await }).await
    }

    async fn abandon(&self, claim: &Claim, how: RetryDecision, error: &str) -> Result<bool> {
        let (how, is_back) = (&how, matches!(how, RetryDecision::RetryAt(_)));
        let held = self
            .database
            .write(|conn| async move { queue::abandon(&**conn, claim, how, error).await })
            .await?;
        if held && is_back {
            self.database.offered.wake();
        }
        Ok(held)
    }

    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>> {
        let database = &self.database;
        database.read(|conn| async move { next_due(&conn, database, kind).await }).await
    }

    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool> {
        let is_back = self
            .database
            .write(|conn| async move { queue::revive(&**conn, scope, id, now).await })
            .await?;
        if is_back {
            self.database.offered.wake();
        }
        Ok(is_back)
    }

    fn offer_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.database.offered.0)
    }
}

/// The ids of due items, locked until the transaction ends.
async fn claimable(
    conn: &Connection,
    database: &Database,
    kind: QueueKind,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<i64>, PostgresError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (me, dead) = database.ownership();
    let (foreign, only_own) = (database.foreign_agents(), database.leaves_work(conn).await?);
    let params: &Params<'_> =
        &[&kind.as_str(), &now.as_micros(), &limit, &me, &dead, &foreign, &only_own];
    let due = row::query(conn, CLAIMABLE, params).await?;
    Ok(due.iter().map(|row| row.get(0)).collect())
}

async fn next_due(
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

/// Writes an entry that is settled with its line.
pub(super) fn entry_statement(entry: &QueueEntry) -> RowStatement<'_> {
    static SQL: LazyLock<String> = LazyLock::new(|| numbered(STORE));
    let columns = entry.item.columns();
    let mut params = bind(&entry.item, columns.as_ref());
    params.extend(entry.state_columns().map(Param::Column));
    let next = entry.next.as_ref().map(Record::encode);
    params.push(next.map_or(Param::Column(Column::Null), Param::Body));
    RowStatement::new(&SQL, params)
}
