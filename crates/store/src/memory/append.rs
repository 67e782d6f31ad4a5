//! Appends: one batch, whole or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{CheckpointKey, RunKey, TenantId, ThreadKey};

use super::state::State;
use super::{MemoryStore, REFUSING_FACTOR};
use crate::core::batch::blob_ref;
use crate::core::no_thread;
use crate::core::ownership::{Acquisition, Ownership, acquisition};
use crate::port::{Append, Batch, Change, Nodes, OwnedThread};
use crate::rows::{InterruptRow, RunRow, ThreadRow};

// === impl MemoryStore ===

/// One process holds the store.
impl Nodes for MemoryStore {}

#[async_trait]
impl Append for MemoryStore {
    fn next_thread_key(&self) -> ThreadKey {
        ThreadKey(next(&self.inner.next_thread))
    }

    fn next_run_key(&self) -> RunKey {
        RunKey(next(&self.inner.next_run))
    }

    fn next_checkpoint_key(&self) -> CheckpointKey {
        CheckpointKey(next(&self.inner.next_checkpoint))
    }

    async fn append(&self, batch: Batch) -> Result<()> {
        let thread = batch.thread;
        let offers = batch.changes.iter().any(|change| matches!(change, Change::Offer(_)));
        let last = batch.last();
        let removed = {
            let mut state = self.open()?;
            self.check_room(&state, batch.vital)?;
            state.check(&batch)?;
            state.apply(batch);
            state.evict(&self.inner.options);
            std::mem::take(&mut state.removed)
        };
        // Freed outside the lock, because a thread can be large.
        drop(removed);
        // Wake readers outside the lock, because they take it next. Wake them without new frames too, because rows changed.
        self.inner.tails.wake(thread, last);
        if offers {
            self.inner.offered.notify_waiters();
        }
        Ok(())
    }

    async fn put_blob(&self, tenant: &TenantId, bytes: Bytes, is_text: bool) -> Result<BlobRef> {
        let blob = blob_ref(&bytes, is_text)?;
        let mut state = self.open()?;
        if !state.blobs.has(tenant, &blob) {
            self.check_room(&state, false)?;
        }
        state.blobs.put(tenant, &blob, bytes, Instant::now());
        Ok(blob)
    }

    async fn acquire(&self, thread: ThreadKey, node: &str) -> Result<OwnedThread> {
        let mut state = self.open()?;
        state.quarantine.check(thread)?;
        let Some(held) = state.threads.get_mut(&thread) else {
            return Err(no_thread(thread));
        };
        // No other process shares the store.
        let ownership = Ownership::of_one_process(held.row.owner_node == node, held.row.epoch);
        let is_taken_over = match acquisition(ownership) {
            Acquisition::TakeOver { epoch } => {
                let row = Arc::make_mut(&mut held.row);
                row.epoch = epoch;
                node.clone_into(&mut row.owner_node);
                true
            }
            _ => false,
        };
        let (row, last) = (ThreadRow::clone(&held.row), held.last);
        let state = &*state;
        let held = state.threads.get(&thread);
        let runs =
            held.into_iter().flat_map(|held| &held.runs).filter_map(|key| state.runs.get(key));
        let open_runs = runs.filter(|run| !run.row.status.is_terminal()).map(|run| {
            let mut row = RunRow::clone(&run.row);
            let parts = held.and_then(|held| held.parts.get(&row.key));
            let last = parts.and_then(|parts| parts.frames.last()).map_or(0, |(_, last)| *last);
            // The row was written at a boundary; the log may have grown since.
            row.last_run_number = row.last_run_number.max(last);
            row
        });
        let interrupts = held.into_iter().flat_map(|held| &held.interrupts);
        let pending = interrupts
            .filter_map(|key| state.interrupts.get(key))
            .filter(|row| row.resolution.is_none())
            .map(|row| InterruptRow::clone(row));
        Ok(OwnedThread {
            is_taken_over,
            thread: row,
            last,
            open_runs: open_runs.collect(),
            pending: pending.collect(),
        })
    }
}

impl MemoryStore {
    pub(super) fn check_room(&self, state: &State, is_vital: bool) -> Result<()> {
        let most = self.inner.options.max_bytes.saturating_mul(REFUSING_FACTOR);
        if is_vital || state.total_bytes() <= most {
            return Ok(());
        }
        Err(Error::new(
            Code::DiskFull,
            format!("runs that have not ended hold more than {most} bytes of memory"),
        )
        .hint("wait until runs have ended, or use a store on disk: [store] url = \"sqlite:PATH\""))
    }
}

fn next(counter: &AtomicI64) -> i64 {
    counter.fetch_add(1, Ordering::Relaxed)
}
