//! References to logs.

use trilogue_store::rows::{RunRow, ThreadRow};

/// Enough of the thread of a run that was looked up in the caller's scope to read its log: looking it up again would cost a query a run.
pub(crate) fn log_of(run: &RunRow) -> ThreadRow {
    ThreadRow {
        key: run.thread,
        id: run.thread_id.clone(),
        tenant: run.tenant.clone(),
        owner: run.principal.clone(),
        metadata: trilogue_domain::Json::empty_object(),
        created_at: run.created_at,
        updated_at: run.created_at,
        head: None,
        owner_node: String::new(),
        epoch: 0,
        ephemeral: false,
    }
}
