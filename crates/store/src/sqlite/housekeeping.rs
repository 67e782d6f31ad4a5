use async_trait::async_trait;
use rusqlite::OptionalExtension;
use trilogue_domain::error::Result;
use trilogue_domain::limits::IDEMPOTENCY_KEPT;
use trilogue_domain::{CheckpointKey, RunId, RunKey, Scope, ThreadId, ThreadKey, Timestamp};

use super::job::{WorkKind, WriteContext};
use super::row::run_to_end;
use super::{SqliteStore, row, thread_removal};
use crate::core::table::columns;
use crate::port::Housekeeping;
use crate::rows::{
    CheckpointRow, IdempotencyKey, IdempotencyRow, RetentionPolicy, RunRow, ThreadRow,
};
use crate::sql::{lookups, many};

#[async_trait]
impl Housekeeping for SqliteStore {
    async fn open_threads(&self) -> Result<Vec<ThreadKey>> {
        self.read(|conn, context| {
            let mut statement = conn.prepare_cached(
                "SELECT DISTINCT thread FROM runs WHERE ended_at IS NULL ORDER BY thread",
            )?;
            let keys = statement.query_map([], |row| row.get(0).map(ThreadKey))?;
            let mut keys = keys.collect::<rusqlite::Result<Vec<_>>>()?;
            keys.retain(|key| context.health.check_thread(*key).is_ok());
            Ok(keys)
        })
        .await
    }

    async fn thread_by_key(&self, key: ThreadKey) -> Result<Option<ThreadRow>> {
        self.context.health.quarantine.check(key)?;
        self.read(move |conn, _| row::one(conn, "WHERE key = ?1", [key.0])).await
    }

    async fn run_by_key(&self, key: RunKey) -> Result<Option<RunRow>> {
        let run = self.read(move |conn, _| row::one::<RunRow>(conn, "WHERE key = ?1", [key.0]));
        self.context.health.unless_quarantined(run.await?, |run| run.thread)
    }

    async fn checkpoint_by_key(&self, key: CheckpointKey) -> Result<Option<CheckpointRow>> {
        let found =
            self.read(move |conn, _| row::one::<CheckpointRow>(conn, "WHERE key = ?1", [key.0]));
        self.context.health.unless_quarantined(found.await?, |checkpoint| checkpoint.thread)
    }

    async fn idempotency(
        &self,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRow>> {
        let key = key.clone();
        let found = self.look_up(async move |conn, _| lookups::idempotency(conn, &key, now).await);
        self.context.health.unless_quarantined(found.await?, |row| row.thread)
    }

    async fn idempotency_of_run(
        &self,
        thread: ThreadKey,
        run: &RunId,
    ) -> Result<Vec<IdempotencyRow>> {
        let run = run.clone();
        let rest = "WHERE thread = ?1 AND run = ?2";
        self.look_up(async move |conn, _| many(conn, rest, &columns![thread, &run]).await).await
    }

    async fn expired_runs(
        &self,
        policy: &RetentionPolicy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<RunRow>> {
        let forgotten = now.before(IDEMPOTENCY_KEPT).as_micros();
        let is_due = self
            .read(move |conn, _| {
                let mut statement =
                    conn.prepare_cached("SELECT 1 FROM idempotency WHERE created_at < ?1")?;
                Ok(statement.exists([forgotten])?)
            })
            .await?;
        if is_due {
            let sql = "DELETE FROM idempotency WHERE created_at < ?1";
            self.write_vital(async move |conn| {
                Ok(conn.prepare_cached(sql)?.execute([forgotten])?)
            })
            .await?;
        }
        let policy = *policy;
        self.read(move |conn, context| {
            let keys = context.retention.expired(conn, &policy, now, limit)?;
            run_to_end(lookups::undamaged_runs(conn, &context.health, keys))
        })
        .await
    }

    async fn erase_quarantined(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadKey>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            // Only the key columns are read: the row itself may be damaged.
            let found: Option<(i64, String)> = writer
                .conn
                .prepare_cached("SELECT key, owner FROM threads WHERE tenant = ?1 AND id = ?2")?
                .query_row([scope.tenant.as_str(), id.as_str()], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            let visible = |owner: &str| {
                scope.owner.as_ref().is_none_or(|principal| principal.as_str() == owner)
            };
            let Some((key, _)) = found.filter(|(_, owner)| visible(owner)) else {
                return Ok(None);
            };
            let key = ThreadKey(key);
            if writer.context.health.quarantine.check(key).is_ok() {
                return Ok(None);
            }
            thread_removal::remove(writer, &[key])?;
            Ok(Some(key))
        })
        .await
    }

    async fn remove_ephemeral(&self, threads: &[ThreadKey]) -> Result<Vec<ThreadKey>> {
        let threads = threads.to_vec();
        self.write(WorkKind::VITAL, move |writer: &mut WriteContext<'_>| {
            let ended = thread_removal::removable_threads(writer, &threads)?;
            thread_removal::remove(writer, &ended)?;
            Ok(ended)
        })
        .await
    }

    fn quarantine(&self, thread: ThreadKey, why: &str) {
        self.context.health.quarantine.add(thread, why);
    }
}
