use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, IdKind, InterruptId, MessageId, RunId, RunKey, Scope,
    ShortId, ThreadActivity, ThreadId, ThreadKey,
};

use super::append::last_number;
use super::lookups::path;
use super::short_id::STATEMENTS;
use super::{PostgresStore, blob, frames, listing};
use crate::core::table::columns;
use crate::port::{Range, Read, Tail};
use crate::record::Frame;
use crate::rows::{
    BindingRow, CheckpointRow, DeadLetter, InterruptFilter, InterruptRow, Listing, MessageRow,
    Page, RunFilter, RunRow, ThreadFilter, ThreadRow,
};
use crate::sql::short_id::resolve;
use crate::sql::{lookups, one, queue};

#[async_trait]
impl Read for PostgresStore {
    async fn thread(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::by_id(&conn, health, scope, id.as_str()).await })
            .await
    }

    async fn thread_of(&self, scope: &Scope, key: ThreadKey) -> Result<Option<ThreadRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::by_key(&conn, health, scope, key.0).await })
            .await
    }

    async fn activities(
        &self,
        scope: &Scope,
        threads: &[ThreadKey],
    ) -> Result<Vec<ThreadActivity>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::activities(&conn, health, scope, threads).await })
            .await
    }

    async fn threads(
        &self,
        scope: &Scope,
        filter: &ThreadFilter,
        page: &Page,
    ) -> Result<Listing<ThreadRow>> {
        let database = &self.database;
        database
            .read(
                |conn| async move { listing::threads(&conn, database, scope, filter, page).await },
            )
            .await
    }

    async fn run(&self, scope: &Scope, id: &RunId) -> Result<Option<RunRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::by_id(&conn, health, scope, id.as_str()).await })
            .await
    }

    async fn run_of(&self, scope: &Scope, key: RunKey) -> Result<Option<RunRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::by_key(&conn, health, scope, key.0).await })
            .await
    }

    async fn runs(
        &self,
        scope: &Scope,
        filter: &RunFilter,
        page: &Page,
    ) -> Result<Listing<RunRow>> {
        let database = &self.database;
        database
            .read(|conn| async move { listing::runs(&conn, database, scope, filter, page).await })
            .await
    }

    async fn interrupt(&self, scope: &Scope, id: &InterruptId) -> Result<Option<InterruptRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::by_id(&conn, health, scope, id.as_str()).await })
            .await
    }

    async fn interrupts(
        &self,
        scope: &Scope,
        filter: &InterruptFilter,
        page: &Page,
    ) -> Result<Listing<InterruptRow>> {
        let database = &self.database;
        database
            .read(|conn| async move { listing::interrupts(&conn, database, scope, filter, page).await })
            .await
    }

    async fn resolve_short_id(
        &self,
        scope: &Scope,
        kind: IdKind,
        short: &ShortId,
        limit: usize,
    ) -> Result<Vec<String>> {
        self.database
            .read(|conn| async move { resolve(&conn, STATEMENTS, scope, kind, short, limit).await })
            .await
    }

    async fn message(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &MessageId,
    ) -> Result<Option<MessageRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::message(&conn, health, scope, thread, id).await })
            .await
    }

    async fn message_in(&self, thread: ThreadKey, id: &MessageId) -> Result<Option<MessageRow>> {
        self.database.health.check_thread(thread)?;
        let rest = concat!(
            "WHERE thread = ?1 AND (id = ?2 OR alias = ?2)",
            " ORDER BY (id = ?2) DESC, key LIMIT 1"
        );
        self.database
            .read(|conn| async move { one(&conn, rest, &columns![thread, id]).await })
            .await
    }

    async fn checkpoint(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &CheckpointId,
    ) -> Result<Option<CheckpointRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::checkpoint(&conn, health, scope, thread, id).await })
            .await
    }

    async fn path(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        from: Option<CheckpointKey>,
        limit: usize,
    ) -> Result<Vec<CheckpointRow>> {
        let database = &self.database;
        database
            .read(|conn| async move { path(&conn, database, scope, thread, from, limit).await })
            .await
    }

    async fn binding(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        agent: &AgentName,
    ) -> Result<Option<BindingRow>> {
        let health = &self.database.health;
        self.database
            .read(|conn| async move { lookups::binding(&conn, health, scope, thread, agent).await })
            .await
    }

    async fn frames(&self, thread: ThreadKey, range: Range) -> Result<Vec<Arc<Frame>>> {
        let health = &self.database.health;
        health.check_read()?;
        health.check_thread(thread)?;
        if let Some(frames) = self.database.tails.frames(thread, range) {
            return Ok(frames);
        }
        // A read that began before a commit does not include it. Readers that the commit wakes start a new read.
        let committed = self.database.tails.end(thread);
        let database = &self.database;
        let read = database
            .read(|conn| async move { frames::read(&conn, &database.reader, thread, range).await });
        self.flights.join((thread, range, committed), read).await
    }

    async fn last_number(&self, thread: ThreadKey) -> Result<u64> {
        self.database.health.quarantine.check(thread)?;
        let last =
            self.database.read(|conn| async move { last_number(&conn, thread).await }).await?;
        // Another node may have written events that the tail does not know yet. The caller can read them now.
        self.database.tails.advance_end(thread, last);
        Ok(last)
    }

    fn tail(&self, thread: ThreadKey) -> Tail {
        let (tail, first) = self.database.tails.attach(thread);
        // Only the first reader of a thread needs the end of its log.
        let Some(entry) = first else { return tail };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let database = Arc::clone(&self.database);
            runtime.spawn(async move {
                let look_up = database.read(|conn| async move { last_number(&conn, thread).await });
                // If the thread cannot be read, the look-up wakes no reader; the next read reports the reason.
                if let Ok(last) = look_up.await {
                    database.tails.set_end(thread, entry, last);
                }
            });
        }
        tail
    }

    async fn blob(&self, thread: ThreadKey, blob: &BlobRef) -> Result<Option<Bytes>> {
        self.database.health.check_thread(thread)?;
        let found = blob::read(&self.database, thread, &blob.hash, Some(blob.length)).await?;
        Ok(found.map(|(_, bytes)| bytes))
    }

    async fn blob_by_hash(
        &self,
        thread: ThreadKey,
        hash: &[u8; 32],
    ) -> Result<Option<(BlobRef, Bytes)>> {
        self.database.health.check_thread(thread)?;
        blob::read(&self.database, thread, hash, None).await
    }

    async fn dead_deliveries(&self, scope: &Scope, page: &Page) -> Result<Listing<DeadLetter>> {
        self.database
            .read(|conn| async move { queue::dead_deliveries(&conn, scope, page).await })
            .await
    }
}
