use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::params;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, IdKind, InterruptId, MessageId, RunId, RunKey, Scope,
    ShortId, ThreadActivity, ThreadId, ThreadKey,
};

use super::lookups::{BY_ALIAS, BY_ID, damaged_thread, path};
use super::row::{one, run_to_end};
use super::{SqliteStore, blob, frames, heads, listing, short_id, thread_listing};
use crate::port::{Range, Read, Tail};
use crate::record::Frame;
use crate::rows::{
    BindingRow, CheckpointRow, DeadLetter, InterruptFilter, InterruptRow, Listing, MessageRow,
    Page, RunFilter, RunRow, ThreadFilter, ThreadRow,
};
use crate::sql::short_id::resolve;
use crate::sql::{lookups, queue};

#[async_trait]
impl Read for SqliteStore {
    async fn thread(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadRow>> {
        self.context.health.check_read()?;
        if let Some(row) = self.context.hot.thread(&scope.tenant, id) {
            return self.context.health.visible(scope, Some(row));
        }
        let (scope, id) = (scope.clone(), id.clone());
        self.look_up(async move |conn, health| {
            lookups::by_id(conn, health, &scope, id.as_str()).await
        })
        .await
    }

    fn damage(&self, thread: ThreadKey) -> Option<String> {
        self.context.health.quarantine.reason(thread)
    }

    async fn damaged_thread(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadRow>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.read(move |conn, context| damaged_thread(conn, context, &scope, &id)).await
    }

    async fn thread_of(&self, scope: &Scope, key: ThreadKey) -> Result<Option<ThreadRow>> {
        self.context.health.check_read()?;
        if let Some(row) = self.context.hot.thread_of(key) {
            return self.context.health.visible(scope, Some(row));
        }
        let scope = scope.clone();
        self.look_up(async move |conn, health| lookups::by_key(conn, health, &scope, key.0).await)
            .await
    }

    async fn activities(
        &self,
        scope: &Scope,
        threads: &[ThreadKey],
    ) -> Result<Vec<ThreadActivity>> {
        let (scope, threads) = (scope.clone(), threads.to_vec());
        self.read(move |conn, context| {
            let snapshot = conn.unchecked_transaction()?;
            run_to_end(lookups::activities(&*snapshot, &context.health, &scope, &threads))
        })
        .await
    }

    async fn threads(
        &self,
        scope: &Scope,
        filter: &ThreadFilter,
        page: &Page,
    ) -> Result<Listing<ThreadRow>> {
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        self.read(move |conn, context| {
            thread_listing::threads(conn, context, &scope, &filter, &page)
        })
        .await
    }

    async fn run(&self, scope: &Scope, id: &RunId) -> Result<Option<RunRow>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.look_up(async move |conn, health| {
            lookups::by_id(conn, health, &scope, id.as_str()).await
        })
        .await
    }

    async fn run_of(&self, scope: &Scope, key: RunKey) -> Result<Option<RunRow>> {
        let scope = scope.clone();
        self.look_up(async move |conn, health| lookups::by_key(conn, health, &scope, key.0).await)
            .await
    }

    async fn runs(
        &self,
        scope: &Scope,
        filter: &RunFilter,
        page: &Page,
    ) -> Result<Listing<RunRow>> {
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        self.read(move |conn, context| listing::runs(conn, context, &scope, &filter, &page)).await
    }

    async fn interrupt(&self, scope: &Scope, id: &InterruptId) -> Result<Option<InterruptRow>> {
        let (scope, id) = (scope.clone(), id.clone());
        self.look_up(async move |conn, health| {
            lookups::by_id(conn, health, &scope, id.as_str()).await
        })
        .await
    }

    async fn interrupts(
        &self,
        scope: &Scope,
        filter: &InterruptFilter,
        page: &Page,
    ) -> Result<Listing<InterruptRow>> {
        let (scope, filter, page) = (scope.clone(), filter.clone(), page.clone());
        self.read(move |conn, context| listing::interrupts(conn, context, &scope, &filter, &page))
            .await
    }

    async fn resolve_short_id(
        &self,
        scope: &Scope,
        kind: IdKind,
        short: &ShortId,
        limit: usize,
    ) -> Result<Vec<String>> {
        let (scope, short) = (scope.clone(), short.clone());
        self.look_up(async move |conn, _| {
            resolve(conn, short_id::STATEMENTS, &scope, kind, &short, limit).await
        })
        .await
    }

    async fn message(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &MessageId,
    ) -> Result<Option<MessageRow>> {
        let (scope, thread, id) = (scope.clone(), thread.clone(), id.clone());
        self.look_up(async move |conn, health| {
            lookups::message(conn, health, &scope, &thread, &id).await
        })
        .await
    }

    async fn message_in(&self, thread: ThreadKey, id: &MessageId) -> Result<Option<MessageRow>> {
        let id = id.clone();
        self.read(move |conn, context| {
            context.health.check_thread(thread)?;
            let params = params![thread.0, id.as_str()];
            match one(conn, BY_ID, params)? {
                Some(row) => Ok(Some(row)),
                None => one(conn, BY_ALIAS, params),
            }
        })
        .await
    }

    async fn checkpoint(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &CheckpointId,
    ) -> Result<Option<CheckpointRow>> {
        let (scope, thread, id) = (scope.clone(), thread.clone(), id.clone());
        self.look_up(async move |conn, health| {
            lookups::checkpoint(conn, health, &scope, &thread, &id).await
        })
        .await
    }

    async fn path(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        from: Option<CheckpointKey>,
        limit: usize,
    ) -> Result<Vec<CheckpointRow>> {
        let (scope, thread) = (scope.clone(), thread.clone());
        self.read(move |conn, context| path(conn, context, &scope, &thread, from, limit)).await
    }

    async fn binding(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        agent: &AgentName,
    ) -> Result<Option<BindingRow>> {
        self.context.health.check_read()?;
        if let Some((row, binding)) = self.context.hot.binding(&scope.tenant, thread, agent) {
            return Ok(self.context.health.visible(scope, Some(row))?.map(|_| binding));
        }
        let (scope, thread, agent) = (scope.clone(), thread.clone(), agent.clone());
        self.look_up(async move |conn, health| {
            lookups::binding(conn, health, &scope, &thread, &agent).await
        })
        .await
    }

    async fn frames(&self, thread: ThreadKey, range: Range) -> Result<Vec<Arc<Frame>>> {
        let health = &self.context.health;
        health.check_read()?;
        if health.hidden.contains(thread) {
            return Ok(Vec::new());
        }
        health.check_thread(thread)?;
        if let Some(frames) = self.context.tails.frames(thread, range) {
            return Ok(frames);
        }
        // A read that began before a commit does not include it. Readers that the commit wakes start a new read.
        let committed = self.context.tails.end(thread);
        let read = self.read(move |conn, context| frames::read(conn, context, thread, range));
        self.flights.join((thread, range, committed), read).await
    }

    async fn last_number(&self, thread: ThreadKey) -> Result<u64> {
        self.context.health.check_read()?;
        self.context.health.quarantine.check(thread)?;
        match self.context.heads.last(thread) {
            Some(last) => Ok(last),
            None => self.read(move |conn, context| heads::last(conn, context, thread)).await,
        }
    }

    fn tail(&self, thread: ThreadKey) -> Tail {
        let (tail, first) = self.context.tails.attach(thread);
        // Only the first reader of a thread needs the end of its log.
        let Some(entry) = first else { return tail };
        if let Some(last) = self.context.heads.last(thread) {
            self.context.tails.set_end(thread, entry, last);
            return tail;
        }
        // The look-up reads a frame, so it does not run on this thread. It wakes the reader when it is done.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let context = Arc::clone(&self.context);
            runtime.spawn(async move {
                let look_up = context.read(move |conn, context| heads::last(conn, context, thread));
                // If the thread cannot be read, the look-up wakes no reader; the next read reports the reason.
                if let Ok(last) = look_up.await {
                    context.tails.set_end(thread, entry, last);
                }
            });
        }
        tail
    }

    async fn blob(&self, thread: ThreadKey, blob: &BlobRef) -> Result<Option<Bytes>> {
        self.context.health.check_thread(thread)?;
        let (hash, length) = (blob.hash, Some(blob.length));
        let found = self.read(move |conn, _| blob::read(conn, thread, &hash, length)).await?;
        Ok(found.map(|(_, bytes)| bytes))
    }

    async fn blob_by_hash(
        &self,
        thread: ThreadKey,
        hash: &[u8; 32],
    ) -> Result<Option<(BlobRef, Bytes)>> {
        let hash = *hash;
        self.context.health.check_thread(thread)?;
        self.read(move |conn, _| blob::read(conn, thread, &hash, None)).await
    }

    async fn dead_deliveries(&self, scope: &Scope, page: &Page) -> Result<Listing<DeadLetter>> {
        let (scope, page) = (scope.clone(), page.clone());
        self.look_up(async move |conn, _| queue::dead_deliveries(conn, &scope, &page).await).await
    }
}
