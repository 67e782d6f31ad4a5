//! What is looked up by a tenant's ids, and listed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use trilogue_domain::{InterruptId, MessageId, RunId, RunKey, ThreadId, ThreadKey};

use crate::rows::MessageRow;

/// The ids of one tenant.
#[derive(Debug, Default)]
pub(super) struct Tenant {
    pub(super) threads: HashMap<ThreadId, ThreadKey>,
    /// The threads that listings show: all but ephemeral ones.
    pub(super) listed: BTreeSet<ThreadKey>,
    pub(super) runs: HashMap<RunId, RunKey>,
    pub(super) run_keys: BTreeSet<RunKey>,
    pub(super) messages: HashMap<MessageId, Arc<MessageRow>>,
    pub(super) interrupts: HashMap<InterruptId, i64>,
    pub(super) interrupt_keys: BTreeSet<i64>,
}
