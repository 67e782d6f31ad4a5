//! Recovery, queue workers and retention.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{
    CheckpointKey, RunId, RunKey, Scope, ThreadId, ThreadKey, Timestamp, limits,
};

use super::state::State;
use super::{MemoryStore, size_estimate};
use crate::core::retention::{BeyondCounts, EndedRun, RetentionPass};
use crate::core::table::ended_at;
use crate::port::Housekeeping;
use crate::rows::{
    CheckpointRow, IdempotencyKey, IdempotencyRow, RetentionPolicy, RunRow, ThreadRow,
};

// === impl MemoryStore ===

#[async_trait]
impl Housekeeping for MemoryStore {
    async fn open_threads(&self) -> Result<Vec<ThreadKey>> {
        let state = self.open()?;
        let open = state.runs.values().filter(|run| !run.row.status.is_terminal());
        let threads: BTreeSet<_> = open.map(|run| run.row.thread).collect();
        Ok(threads.into_iter().filter(|key| state.quarantine.check(*key).is_ok()).collect())
    }

    async fn thread_by_key(&self, key: ThreadKey) -> Result<Option<ThreadRow>> {
        let state = self.open()?;
        state.quarantine.check(key)?;
        Ok(state.threads.get(&key).map(|thread| ThreadRow::clone(&thread.row)))
    }

    async fn run_by_key(&self, key: RunKey) -> Result<Option<RunRow>> {
        let state = self.open()?;
        let Some(run) = state.runs.get(&key) else { return Ok(None) };
        state.quarantine.check(run.row.thread)?;
        Ok(Some(RunRow::clone(&run.row)))
    }

    async fn checkpoint_by_key(&self, key: CheckpointKey) -> Result<Option<CheckpointRow>> {
        let state = self.open()?;
        let Some(row) = state.checkpoints.get(&key) else { return Ok(None) };
        state.quarantine.check(row.thread)?;
        Ok(Some(CheckpointRow::clone(row)))
    }

    async fn idempotency(
        &self,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRow>> {
        let kept_since = now.before(limits::IDEMPOTENCY_KEPT);
        let state = self.open()?;
        let row = state.idempotency.get(key).filter(|row| row.created_at >= kept_since);
        Ok(row.map(|row| IdempotencyRow::clone(row)))
    }

    async fn idempotency_of_run(
        &self,
        thread: ThreadKey,
        run: &RunId,
    ) -> Result<Vec<IdempotencyRow>> {
        let state = self.open()?;
        let keys = state.threads.get(&thread).and_then(|thread| thread.idempotency.get(run));
        let rows = keys.into_iter().flatten().filter_map(|key| state.idempotency.get(key));
        Ok(rows.map(|row| IdempotencyRow::clone(row)).collect())
    }

    async fn expired_runs(
        &self,
        policy: &RetentionPolicy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<RunRow>> {
        let mut ended: Vec<Arc<RunRow>> = {
            let mut state = self.open()?;
            state.forget_old_idempotency(now);
            state.ended_runs()
        };
        ended.sort_by_key(|row| Reverse(row.key));
        let mut by_place = RetentionPass::new(policy);
        let places: HashMap<RunKey, BeyondCounts> =
            ended.iter().map(|row| (row.key, by_place.count(&judged(row)))).collect();
        ended.sort_by_key(|row| Reverse((ended_at(row), row.key)));
        let mut by_end = RetentionPass::new(policy);
        ended.retain(|row| {
            let run = judged(row);
            let beyond = by_end.count(&run);
            let is_beyond = places.get(&row.key).is_some_and(|place| place.agrees_with(beyond));
            is_beyond || policy.is_too_old(&run, now)
        });
        // A run with an undelivered callback stays.
        let state = self.open()?;
        ended.retain(|row| !state.queue.is_in_line(row.key));
        drop(state);
        Ok(ended.iter().rev().take(limit).map(|row| RunRow::clone(row)).collect())
    }

    async fn erase_quarantined(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadKey>> {
        let mut state = self.open()?;
        let found = state.threads.values().map(|thread| &thread.row).find(|row| {
            row.id == *id
                && scope.can_see(&row.tenant, &row.owner)
                && state.quarantine.check(row.key).is_err()
        });
        let Some(key) = found.map(|row| row.key) else { return Ok(None) };
        state.remove_thread(key);
        Ok(Some(key))
    }

    async fn remove_ephemeral(&self, threads: &[ThreadKey]) -> Result<Vec<ThreadKey>> {
        let (ended, removed) = {
            let mut state = self.open()?;
            let ended: Vec<_> =
                threads.iter().copied().filter(|key| state.is_ended_ephemeral(*key)).collect();
            for key in &ended {
                state.remove_thread(*key);
            }
            (ended, std::mem::take(&mut state.removed))
        };
        // Free it outside the lock: it may be much.
        drop(removed);
        Ok(ended)
    }

    fn quarantine(&self, thread: ThreadKey, why: &str) {
        self.inner.lock().quarantine.add(thread, why);
    }
}

fn judged(row: &RunRow) -> EndedRun<'_> {
    EndedRun {
        key: row.key,
        thread: row.thread,
        tenant: row.tenant.as_str(),
        ended_at: ended_at(row).unwrap_or(row.created_at),
        is_stateless: row.stateless,
    }
}

// === impl State ===

impl State {
    /// Ended runs of threads that are not quarantined.
    fn ended_runs(&self) -> Vec<Arc<RunRow>> {
        let runs = self.ended.keys().filter_map(|key| self.runs.get(&key));
        runs.filter(|run| self.quarantine.check(run.row.thread).is_ok())
            .map(|run| Arc::clone(&run.row))
            .collect()
    }

    /// Whether a thread is ephemeral, undamaged, and has no open run.
    fn is_ended_ephemeral(&self, key: ThreadKey) -> bool {
        let is_open =
            |run: &RunKey| self.runs.get(run).is_some_and(|run| !run.row.status.is_terminal());
        self.quarantine.check(key).is_ok()
            && self
                .threads
                .get(&key)
                .is_some_and(|thread| thread.row.ephemeral && !thread.runs.iter().any(is_open))
    }

    fn forget_old_idempotency(&mut self, now: Timestamp) {
        let kept_since = now.before(limits::IDEMPOTENCY_KEPT);
        let old = self.idempotency.values().filter(|row| row.created_at < kept_since);
        let old: Vec<_> = old.map(|row| row.key.clone()).collect();
        for key in old {
            self.forget_idempotency(&key);
        }
    }

    pub(super) fn forget_idempotency(&mut self, key: &IdempotencyKey) {
        let Some(row) = self.idempotency.remove(key) else { return };
        let Some(thread) = self.threads.get_mut(&row.thread) else { return };
        if let Some(keys) = thread.idempotency.get_mut(&row.run) {
            keys.retain(|one| one != key);
            if keys.is_empty() {
                thread.idempotency.remove(&row.run);
            }
        }
        thread.bytes = thread.bytes.saturating_sub(size_estimate::SMALL_ROW_BYTES);
        self.bytes = self.bytes.saturating_sub(size_estimate::SMALL_ROW_BYTES);
    }
}
