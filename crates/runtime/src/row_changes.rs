//! Publishes which rows an append has changed, for watchers of lists.

use std::sync::Arc;

use tokio::sync::broadcast;
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Batch, Change, ChangedRow, RowChange};

/// The most appends that wait for one watcher; beyond that it gets `Lagged`.
const MAX_WAITING: usize = 1_024;

/// A message to a watcher of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowNews {
    /// The changes of an append.
    Changed(Arc<[RowChange]>),
    /// This node has missed changes of other nodes.
    Missed,
}

/// Publishes the changes of appends. Without watchers, an append has no extra cost.
#[derive(Debug)]
pub(crate) struct RowChanges(broadcast::Sender<RowNews>);

// === impl RowChanges ===

impl RowChanges {
    pub(crate) fn watch(&self) -> broadcast::Receiver<RowNews> {
        self.0.subscribe()
    }

    /// Returns the changes of a thread's batch; `None` if there are no changes, or neither a watcher nor another node.
    pub(crate) fn of(
        &self,
        batch: &Batch,
        thread: Option<&ThreadRow>,
        has_peers: bool,
    ) -> Option<Arc<[RowChange]>> {
        if self.0.receiver_count() == 0 && !has_peers {
            return None;
        }
        let changes: Arc<[_]> =
            batch.changes.iter().filter_map(|change| row_change(change, thread)).collect();
        (!changes.is_empty()).then_some(changes)
    }

    /// Publishes the changes of an append on this or another node.
    pub(crate) fn publish(&self, changes: Arc<[RowChange]>) {
        // The last watcher may have left meanwhile.
        drop(self.0.send(RowNews::Changed(changes)));
    }

    pub(crate) fn publish_missed(&self) {
        // The last watcher may have left meanwhile.
        drop(self.0.send(RowNews::Missed));
    }
}

impl Default for RowChanges {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_WAITING))
    }
}

fn row_change(change: &Change, thread: Option<&ThreadRow>) -> Option<RowChange> {
    let of_thread = |row: &ThreadRow, changed| RowChange {
        tenant: row.tenant.clone(),
        principal: row.owner.clone(),
        thread: row.id.clone(),
        row: changed,
    };
    Some(match change {
        Change::Thread(row) => of_thread(row, ChangedRow::Thread),
        Change::RemoveRun(_) => of_thread(thread?, ChangedRow::Thread),
        Change::RemoveThread => of_thread(thread?, ChangedRow::NoThread),
        Change::Run(row) => RowChange {
            tenant: row.tenant.clone(),
            principal: row.principal.clone(),
            thread: row.thread_id.clone(),
            row: ChangedRow::Run {
                id: row.id.clone(),
                agent: row.agent.clone(),
                status: row.status,
            },
        },
        Change::Interrupt(row) => RowChange {
            tenant: row.tenant.clone(),
            principal: row.principal.clone(),
            thread: row.thread_id.clone(),
            row: ChangedRow::Interrupt {
                id: row.interrupt.id.clone(),
                run: row.run_id.clone(),
                is_pending: row.resolution.is_none(),
            },
        },
        _ => return None,
    })
}
