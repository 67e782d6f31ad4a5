use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::limits::IDEMPOTENCY_KEPT;
use trilogue_domain::{CheckpointKey, RunId, RunKey, Scope, ThreadId, ThreadKey, Timestamp};

use super::connection::Connection;
use super::node::not_elsewhere;
use super::{PostgresStore, remove, retention, row};
use crate::core::table::columns;
use crate::port::Housekeeping;
use crate::rows::{
    CheckpointRow, IdempotencyKey, IdempotencyRow, RetentionPolicy, RunRow, ThreadRow,
};
use crate::sql::lookups::{self, BY_KEY};
use crate::sql::{many, one};

/// The given threads that are ephemeral and have no open run. Their heads are locked, so that no run begins meanwhile.
const ENDED: &str = concat!(
    "SELECT h.thread FROM heads h JOIN threads t ON t.key = h.thread",
    " WHERE h.thread = ANY($1) AND t.ephemeral AND NOT EXISTS (SELECT 1 FROM runs",
    " WHERE runs.thread = h.thread AND runs.ended_at IS NULL) ORDER BY h.thread FOR UPDATE OF h"
);

const OPEN: &str = concat!(
    "SELECT DISTINCT thread FROM runs WHERE ended_at IS NULL AND ",
    not_elsewhere!("runs.thread", "$1", "$2"),
    " ORDER BY thread"
);
/// Open threads of nodes that are dead or have left.
const ABANDONED: &str = concat!(
    "SELECT DISTINCT runs.thread FROM runs JOIN heads ON heads.thread = runs.thread",
    " WHERE runs.ended_at IS NULL AND heads.owner_node <> $1 AND ",
    not_elsewhere!("runs.thread", "$1", "$2"),
    " ORDER BY runs.thread LIMIT 1024"
);

#[async_trait]
impl Housekeeping for PostgresStore {
    async fn open_threads(&self) -> Result<Vec<ThreadKey>> {
        let database = &self.database;
        let (me, dead) = database.ownership();
        let found = database
            .read(|conn| async move { row::query(&conn, OPEN, &[&me, &dead]).await })
            .await?;
        let keys = found.iter().map(|row| ThreadKey(row.get(0)));
        Ok(keys.filter(|key| database.health.check_thread(*key).is_ok()).collect())
    }

    async fn abandoned_threads(&self) -> Result<Vec<ThreadKey>> {
        let database = &self.database;
        let Some(node) = &database.node else { return Ok(Vec::new()) };
        let (me, dead) = (&node.id, node.dead_after());
        let look_up = |conn: Connection| async move {
            if database.leaves_work(&conn).await? {
                return Ok(Vec::new());
            }
            row::query(&conn, ABANDONED, &[me, &dead]).await
        };
        let found = database.read(look_up).await?;
        let keys = found.iter().map(|row| ThreadKey(row.get(0)));
        Ok(keys.filter(|key| database.health.check_thread(*key).is_ok()).collect())
    }

    async fn thread_by_key(&self, key: ThreadKey) -> Result<Option<ThreadRow>> {
        self.database.health.quarantine.check(key)?;
        self.database.read(|conn| async move { one(&conn, BY_KEY, &columns![key]).await }).await
    }

    async fn run_by_key(&self, key: RunKey) -> Result<Option<RunRow>> {
        let run = self
            .database
            .read(|conn| async move { one::<RunRow, _>(&conn, BY_KEY, &columns![key]).await });
        self.database.health.unless_quarantined(run.await?, |run| run.thread)
    }

    async fn checkpoint_by_key(&self, key: CheckpointKey) -> Result<Option<CheckpointRow>> {
        let found = self.database.read(|conn| async move {
            one::<CheckpointRow, _>(&conn, BY_KEY, &columns![key]).await
        });
        self.database.health.unless_quarantined(found.await?, |checkpoint| checkpoint.thread)
    }

    async fn idempotency(
        &self,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRow>> {
        let found =
            self.database.read(|conn| async move { lookups::idempotency(&conn, key, now).await });
        self.database.health.unless_quarantined(found.await?, |row| row.thread)
    }

    async fn idempotency_of_run(
        &self,
        thread: ThreadKey,
        run: &RunId,
    ) -> Result<Vec<IdempotencyRow>> {
        let rest = "WHERE thread = ?1 AND run = ?2";
        self.database
            .read(|conn| async move { many(&conn, rest, &columns![thread, run]).await })
            .await
    }

    async fn expired_runs(
        &self,
        policy: &RetentionPolicy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<RunRow>> {
        let database = &self.database;
        let forgotten = now.before(IDEMPOTENCY_KEPT).as_micros();
        let sql = "DELETE FROM idempotency WHERE created_at < $1";
        database.write(|conn| async move { row::execute(&conn, sql, &[&forgotten]).await }).await?;
        database
            .read(|conn| async move {
                let keys = retention::expired(&conn, database, policy, now, limit).await?;
                lookups::undamaged_runs(&conn, &database.health, keys).await
            })
            .await
    }

    async fn erase_quarantined(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadKey>> {
        let database = &self.database;
        let sql = concat!(
            "SELECT key FROM threads WHERE tenant = $1 AND id = $2",
            " AND ($3::text IS NULL OR owner = $3)"
        );
        let erased = database
            .write(|conn| async move {
                // Only the key columns are read: the row itself may be damaged.
                let owner = scope.owner.as_ref().map(|owner| owner.as_str().to_owned());
                let params: &row::Params<'_> = &[&scope.tenant.as_str(), &id.as_str(), &owner];
                let found = row::query_opt(&conn, sql, params).await?;
                let Some(key) = found.map(|row| ThreadKey(row.get(0))) else { return Ok(None) };
                if database.health.quarantine.check(key).is_ok() {
                    return Ok(None);
                }
                remove::threads(&conn, &[key]).await?;
                Ok(Some(key))
            })
            .await?;
        if let Some(thread) = erased {
            database.forget_all(&[thread]);
        }
        Ok(erased)
    }

    async fn remove_ephemeral(&self, threads: &[ThreadKey]) -> Result<Vec<ThreadKey>> {
        let database = &self.database;
        let keys: &Vec<i64> = &threads.iter().map(|thread| thread.0).collect();
        let ended = database
            .write(|conn| async move {
                let found = row::query(&conn, ENDED, &[keys]).await?;
                let mut ended: Vec<_> = found.iter().map(|row| ThreadKey(row.get(0))).collect();
                ended.retain(|key| database.health.check_thread(*key).is_ok());
                remove::threads(&conn, &ended).await?;
                Ok(ended)
            })
            .await?;
        database.forget_all(&ended);
        Ok(ended)
    }

    fn quarantine(&self, thread: ThreadKey, why: &str) {
        self.database.health.quarantine.add(thread, why);
    }
}
