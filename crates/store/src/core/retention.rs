//! Which ended runs a policy removes.

use std::collections::HashMap;
use std::hash::Hash;

use trilogue_domain::{RunKey, ThreadKey, Timestamp};

use crate::rows::RetentionPolicy;

/// An ended run, as far as retention judges it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRun<'a> {
    pub(crate) key: RunKey,
    pub(crate) thread: ThreadKey,
    pub(crate) tenant: &'a str,
    pub(crate) ended_at: Timestamp,
    pub(crate) is_stateless: bool,
}

/// One pass over the ended runs, newest first. A run with an undelivered callback counts, but stays: that is the engine's to see.
#[derive(Debug)]
pub(crate) struct RetentionPass {
    /// A run that ended before this is too old.
    oldest: Option<Timestamp>,
    oldest_stateless: Option<Timestamp>,
    of_thread: RunCounts<ThreadKey>,
    of_tenant: RunCounts<String>,
}

/// How many runs of each holder were seen.
#[derive(Debug)]
struct RunCounts<K> {
    most: Option<u64>,
    seen: HashMap<K, u64>,
}

// === impl RetentionPolicy ===

impl RetentionPolicy {
    /// Whether it counts runs: then a pass begins with the newest. Otherwise the order does not matter.
    pub(crate) fn counts(&self) -> bool {
        self.max_runs_per_thread.is_some() || self.max_runs_per_tenant.is_some()
    }
}

// === impl RetentionPass ===

impl RetentionPass {
    pub(crate) fn new(policy: &RetentionPolicy, now: Timestamp) -> Self {
        Self {
            oldest: policy.max_age.map(|age| now.before(age)),
            oldest_stateless: policy.max_stateless_age.map(|age| now.before(age)),
            of_thread: RunCounts { most: policy.max_runs_per_thread, seen: HashMap::new() },
            of_tenant: RunCounts { most: policy.max_runs_per_tenant, seen: HashMap::new() },
        }
    }

    /// Whether the policy removes a run.
    pub(crate) fn removes(&mut self, run: EndedRun<'_>) -> bool {
        let is_older = |than: Option<Timestamp>| than.is_some_and(|than| run.ended_at < than);
        // Every count is kept, whichever condition holds.
        let is_over_in_thread = self.of_thread.is_over(&run.thread);
        let is_over_in_tenant = self.of_tenant.is_over(run.tenant);
        is_over_in_thread
            || is_over_in_tenant
            || is_older(self.oldest)
            || (run.is_stateless && is_older(self.oldest_stateless))
    }
}

// === impl RunCounts ===

impl<K: Hash + Eq> RunCounts<K> {
    /// Counts one; whether it is more than the holder may keep.
    fn is_over<Q: ?Sized + Hash + Eq + ToOwned<Owned = K>>(&mut self, holder: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        let Some(most) = self.most else { return false };
        match self.seen.get_mut(holder) {
            Some(seen) => {
                *seen += 1;
                *seen > most
            }
            None => {
                self.seen.insert(holder.to_owned(), 1);
                most == 0
            }
        }
    }
}
