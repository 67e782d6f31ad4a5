//! The indexes of one tenant: by id, and for listings.

use std::collections::{BTreeSet, HashMap};

use trilogue_domain::{InterruptId, RunId, RunKey, ThreadId, ThreadKey};

#[derive(Debug, Default)]
pub(super) struct TenantIndex {
    pub(super) threads: HashMap<ThreadId, ThreadKey>,
    /// The threads of listings: all except ephemeral ones.
    pub(super) listed: BTreeSet<ThreadKey>,
    pub(super) runs: HashMap<RunId, RunKey>,
    pub(super) run_keys: BTreeSet<RunKey>,
    pub(super) interrupts: HashMap<InterruptId, i64>,
    pub(super) interrupt_keys: BTreeSet<i64>,
}
