use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, IdKind, InterruptId, MessageId, PrincipalId, RunId,
    RunKey, Scope, ShortId, ThreadActivity, ThreadId, ThreadKey,
};

use super::MemoryStore;
use super::listing::{MetadataFilter, ThreadFacts};
use super::state::State;
use super::thread::ThreadEntry;
use crate::core::health::OwnedRow;
use crate::core::page::PageBuilder;
use crate::core::tail::bounded;
use crate::port::{Range, Read, Tail};
use crate::record::Frame;
use crate::rows::{
    BindingRow, CheckpointRow, DeadLetter, InterruptFilter, InterruptRow, Listing, MessageRow,
    Page, RunFilter, RunRow, ThreadFilter, ThreadRow,
};

// === impl MemoryStore ===

#[async_trait]
impl Read for MemoryStore {
    async fn thread(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadRow>> {
        self.visible(scope, |state| {
            let key = state.tenants.get(&scope.tenant)?.threads.get(id)?;
            Some(Arc::clone(&state.threads.get(key)?.row))
        })
    }

    async fn thread_of(&self, scope: &Scope, key: ThreadKey) -> Result<Option<ThreadRow>> {
        self.visible(scope, |state| Some(Arc::clone(&state.threads.get(&key)?.row)))
    }

    async fn activities(
        &self,
        scope: &Scope,
        threads: &[ThreadKey],
    ) -> Result<Vec<ThreadActivity>> {
        let state = self.open()?;
        let is_seen = |key: &ThreadKey| {
            let thread = state.threads.get(key);
            thread.is_some_and(|thread| scope.can_see(&thread.row.tenant, &thread.row.owner))
                && state.quarantine.check(*key).is_ok()
        };
        let stands = |key: &ThreadKey| {
            if is_seen(key) { state.activity(*key) } else { ThreadActivity::Idle }
        };
        Ok(threads.iter().map(stands).collect())
    }

    async fn threads(
        &self,
        scope: &Scope,
        filter: &ThreadFilter,
        page: &Page,
    ) -> Result<Listing<ThreadRow>> {
        let candidates: Vec<_> = {
            let state = self.open()?;
            let Some(tenant) = state.tenants.get(&scope.tenant) else {
                return Ok(Listing::empty());
            };
            let rows = tenant.listed.range(..ThreadKey(page.before())).rev();
            let rows = rows.filter_map(|key| state.threads.get(key));
            let rows = rows.filter(|thread| scope.can_see(&thread.row.tenant, &thread.row.owner));
            let is_plain = *filter == ThreadFilter::default();
            let limit = if is_plain { page.rows_read() } else { usize::MAX };
            let beside = |thread: &ThreadEntry| {
                let beside = ThreadFacts::of(&state, thread, filter);
                (Arc::clone(&thread.row), beside)
            };
            rows.map(|thread| beside(thread)).take(limit).collect()
        };
        let mut residual = MetadataFilter::new(&filter.metadata);
        let mut pages = PageBuilder::new(page);
        for (row, beside) in candidates {
            if residual.fits(&row.metadata)?
                && beside.fits(&row, filter, &mut residual)?
                && !pages.add(row.key.0, row)
            {
                break;
            }
        }
        Ok(pages.finish().map(Arc::unwrap_or_clone))
    }

    async fn run_of(&self, scope: &Scope, key: RunKey) -> Result<Option<RunRow>> {
        self.visible(scope, |state| Some(Arc::clone(&state.runs.get(&key)?.row)))
    }

    async fn run(&self, scope: &Scope, id: &RunId) -> Result<Option<RunRow>> {
        self.visible(scope, |state| {
            let key = state.tenants.get(&scope.tenant)?.runs.get(id)?;
            Some(Arc::clone(&state.runs.get(key)?.row))
        })
    }

    async fn runs(
        &self,
        scope: &Scope,
        filter: &RunFilter,
        page: &Page,
    ) -> Result<Listing<RunRow>> {
        let candidates: Vec<_> = {
            let state = self.open()?;
            let Some(tenant) = state.tenants.get(&scope.tenant) else {
                return Ok(Listing::empty());
            };
            let before = RunKey(page.before());
            // A thread's runs are looked up through the thread.
            let keys = match &filter.thread {
                None => Some(&tenant.run_keys),
                Some(id) => tenant
                    .threads
                    .get(id)
                    .and_then(|key| state.threads.get(key))
                    .map(|thread| &thread.runs),
            };
            let Some(keys) = keys else { return Ok(Listing::empty()) };
            let rows = keys.range(..before).rev();
            let rows = rows.filter_map(|key| state.runs.get(key)).map(|run| &run.row);
            let rows = rows.filter(|row| {
                scope.can_see(&row.tenant, &row.principal)
                    && filter.agent.as_ref().is_none_or(|agent| *agent == row.agent)
                    && (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
            });
            let limit = if filter.metadata.is_empty() { page.rows_read() } else { usize::MAX };
            rows.take(limit).cloned().collect()
        };
        let mut residual = MetadataFilter::new(&filter.metadata);
        let mut pages = PageBuilder::new(page);
        for row in candidates {
            if residual.fits(&row.metadata)? && !pages.add(row.key.0, row) {
                break;
            }
        }
        Ok(pages.finish().map(Arc::unwrap_or_clone))
    }

    async fn interrupt(&self, scope: &Scope, id: &InterruptId) -> Result<Option<InterruptRow>> {
        self.visible(scope, |state| {
            let key = state.tenants.get(&scope.tenant)?.interrupts.get(id)?;
            state.interrupts.get(key).cloned()
        })
    }

    async fn interrupts(
        &self,
        scope: &Scope,
        filter: &InterruptFilter,
        page: &Page,
    ) -> Result<Listing<InterruptRow>> {
        let state = self.open()?;
        let Some(tenant) = state.tenants.get(&scope.tenant) else { return Ok(Listing::empty()) };
        let rows = tenant.interrupt_keys.range(..page.before()).rev();
        let rows = rows.filter_map(|key| Some((*key, state.interrupts.get(key)?)));
        let rows = rows.filter(|(_, row)| {
            scope.can_see(&row.tenant, &row.principal)
                && filter.thread.as_ref().is_none_or(|id| *id == row.thread_id)
                && filter.run.as_ref().is_none_or(|id| *id == row.run_id)
                && !(filter.pending && row.resolution.is_some())
        });
        let mut pages = PageBuilder::new(page);
        for (key, row) in rows {
            if !pages.add(key, row) {
                break;
            }
        }
        Ok(pages.finish().map(|row| InterruptRow::clone(row)))
    }

    async fn resolve_short_id(
        &self,
        scope: &Scope,
        kind: IdKind,
        short: &ShortId,
        limit: usize,
    ) -> Result<Vec<String>> {
        let state = self.open()?;
        let Some(tenant) = state.tenants.get(&scope.tenant) else { return Ok(Vec::new()) };
        let sees = |owner: &PrincipalId| scope.can_see(&scope.tenant, owner);
        let means = |id: &str| short.matches(id);
        let mut ids: Vec<&str> = match kind {
            IdKind::Thread => {
                let meant = tenant.threads.iter().filter(|(id, _)| means(id.as_str()));
                let is_seen = |key| state.threads.get(key).is_some_and(|it| sees(&it.row.owner));
                meant.filter(|(_, key)| is_seen(*key)).map(|(id, _)| id.as_str()).collect()
            }
            IdKind::Run => {
                let meant = tenant.runs.iter().filter(|(id, _)| means(id.as_str()));
                let is_seen = |key| state.runs.get(key).is_some_and(|it| sees(&it.row.principal));
                meant.filter(|(_, key)| is_seen(*key)).map(|(id, _)| id.as_str()).collect()
            }
            IdKind::Interrupt => {
                let meant = tenant.interrupts.iter().filter(|(id, _)| means(id.as_str()));
                let is_seen = |key| state.interrupts.get(key).is_some_and(|it| sees(&it.principal));
                meant.filter(|(_, key)| is_seen(*key)).map(|(id, _)| id.as_str()).collect()
            }
        };
        if ids.contains(&short.as_str()) {
            return Ok(vec![short.as_str().to_owned()]);
        }
        ids.sort_unstable();
        Ok(ids.into_iter().take(limit).map(str::to_owned).collect())
    }

    async fn message(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &MessageId,
    ) -> Result<Option<MessageRow>> {
        let state = self.open()?;
        // The run decides whether the scope sees the message: the thread may belong to another principal.
        let tenant = Scope::of_tenant(&scope.tenant);
        let Some(thread) = state.visible_thread(&tenant, thread) else { return Ok(None) };
        state.quarantine.check(thread.row.key)?;
        let Some(held) = thread.messages.get(id) else { return Ok(None) };
        let creator = state.runs.get(&held.row.run).map(|run| &run.row.principal);
        let is_seen = creator.is_some_and(|creator| scope.can_see(&held.row.tenant, creator));
        Ok(is_seen.then(|| MessageRow::clone(&held.row)))
    }

    async fn message_in(&self, thread: ThreadKey, id: &MessageId) -> Result<Option<MessageRow>> {
        let state = self.open()?;
        state.quarantine.check(thread)?;
        let row = state.threads.get(&thread).and_then(|held| held.message(id));
        Ok(row.map(|row| MessageRow::clone(row)))
    }

    async fn checkpoint(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &CheckpointId,
    ) -> Result<Option<CheckpointRow>> {
        let state = self.open()?;
        let Some(thread) = state.visible_thread(scope, thread) else { return Ok(None) };
        state.quarantine.check(thread.row.key)?;
        let row = thread.checkpoints.get(id).and_then(|key| state.checkpoints.get(key));
        Ok(row.map(|row| CheckpointRow::clone(row)))
    }

    async fn path(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        from: Option<CheckpointKey>,
        limit: usize,
    ) -> Result<Vec<CheckpointRow>> {
        let state = self.open()?;
        let Some(thread) = state.visible_thread(scope, thread) else { return Ok(Vec::new()) };
        let key = thread.row.key;
        state.quarantine.check(key)?;
        let checkpoint = |at: CheckpointKey| {
            state
                .checkpoints
                .get(&at)
                .filter(|row| row.thread == key)
                .map(|row| CheckpointRow::clone(row))
        };
        let first = from.or(thread.row.head).and_then(checkpoint);
        let path = std::iter::successors(first, |row| row.parent.and_then(checkpoint));
        Ok(path.take(limit).collect())
    }

    async fn binding(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        agent: &AgentName,
    ) -> Result<Option<BindingRow>> {
        let state = self.open()?;
        let Some(thread) = state.visible_thread(scope, thread) else { return Ok(None) };
        state.quarantine.check(thread.row.key)?;
        Ok(thread.bindings.get(agent).cloned())
    }

    async fn frames(&self, thread: ThreadKey, range: Range) -> Result<Vec<Arc<Frame>>> {
        let state = self.open()?;
        state.quarantine.check(thread)?;
        if let Some(frames) = self.inner.tails.frames(thread, range) {
            return Ok(frames);
        }
        let Some(held) = state.threads.get(&thread) else { return Ok(Vec::new()) };
        // A copy, because readers decode its events and the store must not keep decoded events.
        let copy = |frame: &Frame| Arc::new(frame.undecoded());
        let Some(run) = range.run else {
            // The frame that contains `after` begins at or before it.
            let before = held.frames.range(..=range.after).next_back();
            let begin = before.map_or(0, |(first, frame)| {
                if frame.last() > range.after { *first } else { range.after.saturating_add(1) }
            });
            let frames = held.frames.range(begin..).map(|(_, frame)| copy(frame));
            let frames = bounded(frames, range.max_bytes);
            self.inner.tails.prepend(thread, &frames);
            return Ok(frames);
        };
        let firsts = held.parts.get(&run).map_or(&[][..], |parts| &parts.frames);
        let begin = firsts.partition_point(|(_, last)| *last <= range.after);
        let frames = firsts.iter().skip(begin);
        let frames = frames.filter_map(|(first, _)| held.frames.get(first)).map(copy);
        Ok(bounded(frames, range.max_bytes))
    }

    async fn last_number(&self, thread: ThreadKey) -> Result<u64> {
        let state = self.open()?;
        state.quarantine.check(thread)?;
        Ok(state.threads.get(&thread).map_or(0, |held| held.last))
    }

    fn tail(&self, thread: ThreadKey) -> Tail {
        let (tail, first) = self.inner.tails.attach(thread);
        if let Some(entry) = first {
            let last = self.inner.lock().threads.get(&thread).map_or(0, |held| held.last);
            self.inner.tails.set_end(thread, entry, last);
        }
        tail
    }

    async fn blob(&self, thread: ThreadKey, blob: &BlobRef) -> Result<Option<Bytes>> {
        let state = self.open()?;
        state.quarantine.check(thread)?;
        let Some(held) = state.threads.get(&thread) else { return Ok(None) };
        let named = held.blobs.get(&blob.hash).into_iter().flatten();
        let is_named = named.into_iter().any(|one| one.length == blob.length);
        Ok(if is_named { state.blobs.get(&held.row.tenant, blob) } else { None })
    }

    async fn blob_by_hash(
        &self,
        thread: ThreadKey,
        hash: &[u8; 32],
    ) -> Result<Option<(BlobRef, Bytes)>> {
        let state = self.open()?;
        state.quarantine.check(thread)?;
        let Some(held) = state.threads.get(&thread) else { return Ok(None) };
        let named = held.blobs.get(hash).and_then(|named| named.first());
        Ok(named.and_then(|blob| Some((blob.clone(), state.blobs.get(&held.row.tenant, blob)?))))
    }

    async fn dead_deliveries(&self, scope: &Scope, page: &Page) -> Result<Listing<DeadLetter>> {
        let state = self.open()?;
        let mut pages = PageBuilder::new(page);
        for (id, entry) in state.queue.dead(scope, page.before()) {
            let (error, item) = (entry.error.clone(), entry.item.clone());
            let dead = DeadLetter { id, attempts: entry.attempts, error, item };
            if !pages.add(id, dead) {
                break;
            }
        }
        Ok(pages.finish())
    }
}

impl MemoryStore {
    /// The row that is found, if the scope sees it. It is copied without the lock.
    fn visible<R: OwnedRow + Clone>(
        &self,
        scope: &Scope,
        find: impl FnOnce(&State) -> Option<Arc<R>>,
    ) -> Result<Option<R>> {
        let state = self.open()?;
        let found = state.quarantine.visible(scope, find(&state))?;
        drop(state);
        Ok(found.map(Arc::unwrap_or_clone))
    }
}
