//! References to logs.

use trilogue_domain::{Scope, TenantId, ThreadId, ThreadKey};
use trilogue_store::rows::{RunRow, ThreadRow};

/// A thread whose log the caller can read, because a lookup in the caller's scope found the thread or one of its runs.
#[derive(Clone, Debug)]
pub(crate) struct LogRef {
    pub(crate) key: ThreadKey,
    pub(crate) id: ThreadId,
    pub(crate) tenant: TenantId,
}

// === impl LogRef ===

impl LogRef {
    /// Returns the scope for rows of this thread: the whole tenant.
    pub(crate) fn scope(&self) -> Scope {
        Scope::of_tenant(&self.tenant)
    }
}

impl From<&ThreadRow> for LogRef {
    fn from(row: &ThreadRow) -> Self {
        Self { key: row.key, id: row.id.clone(), tenant: row.tenant.clone() }
    }
}

impl From<&RunRow> for LogRef {
    fn from(row: &RunRow) -> Self {
        Self { key: row.thread, id: row.thread_id.clone(), tenant: row.tenant.clone() }
    }
}
