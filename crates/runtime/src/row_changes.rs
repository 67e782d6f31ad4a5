//! Which rows an append has changed, for those who watch lists of them.

use std::sync::Arc;

use tokio::sync::broadcast;
use trilogue_domain::{AgentName, InterruptId, PrincipalId, RunId, RunStatus, TenantId, ThreadId};
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Batch, Change};

/// The most appends that wait for one watcher; it is told that it missed some when there are more.
const MAX_WAITING: usize = 1_024;

/// A row that changed. Whoever sees things of this tenant and principal may know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowChange {
    pub tenant: TenantId,
    pub principal: PrincipalId,
    pub thread: ThreadId,
    pub row: ChangedRow,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangedRow {
    /// The thread is new, or something of it changed: also that one of its runs was removed.
    Thread,
    /// The thread was removed with everything in it.
    NoThread,
    Run {
        id: RunId,
        agent: AgentName,
        status: RunStatus,
    },
    Interrupt {
        id: InterruptId,
        run: RunId,
        is_pending: bool,
    },
}

/// Tells watchers what appends change. Without any, an append costs nothing more.
#[derive(Debug)]
pub(crate) struct RowChanges(broadcast::Sender<Arc<[RowChange]>>);

// === impl RowChanges ===

impl RowChanges {
    pub(crate) fn watch(&self) -> broadcast::Receiver<Arc<[RowChange]>> {
        self.0.subscribe()
    }

    /// What a batch of a thread will change; `None` where nobody watches.
    pub(crate) fn of(&self, batch: &Batch, thread: Option<&ThreadRow>) -> Option<Arc<[RowChange]>> {
        if self.0.receiver_count() == 0 {
            return None;
        }
        Some(batch.changes.iter().filter_map(|change| changed(change, thread)).collect())
    }

    /// Tells what an append has changed.
    pub(crate) fn tell(&self, changes: Option<Arc<[RowChange]>>) {
        if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
            // The last watcher may have left meanwhile.
            let _: Result<_, _> = self.0.send(changes);
        }
    }
}

impl Default for RowChanges {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_WAITING))
    }
}

fn changed(change: &Change, thread: Option<&ThreadRow>) -> Option<RowChange> {
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
