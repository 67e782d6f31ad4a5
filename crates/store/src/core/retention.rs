//! Which ended runs a policy removes.
//!
//! A count keeps the newest runs. A run exceeds a count only if it does so in both orders: by its position in lists and by its end. Ends alone are not enough, because a clock can be set back. Positions alone are not enough, because an old run that ends now has the newest result of its thread.

use std::collections::HashMap;
use std::hash::Hash;

use trilogue_domain::{RunKey, ThreadKey, Timestamp};

use crate::rows::RetentionPolicy;

/// The facts about an ended run that retention uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedRun<'a> {
    pub(crate) key: RunKey,
    pub(crate) thread: ThreadKey,
    pub(crate) tenant: &'a str,
    pub(crate) ended_at: Timestamp,
    pub(crate) is_stateless: bool,
}

/// The counts of one pass over the ended runs, newest first in one of the two orders. A run with an undelivered callback counts but stays; the engine checks that.
#[derive(Debug)]
pub(crate) struct RetentionPass {
    of_thread: RunCounts<ThreadKey>,
    of_tenant: RunCounts<String>,
}

/// The counts that a run exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BeyondCounts {
    in_thread: bool,
    in_tenant: bool,
}

/// How many runs of each holder were seen.
#[derive(Debug)]
struct RunCounts<K> {
    most: Option<u64>,
    seen: HashMap<K, u64>,
}

// === impl RetentionPolicy ===

impl RetentionPolicy {
    /// Whether the policy counts runs. If so, a pass reads all ended runs, not only old ones.
    pub(crate) fn counts(&self) -> bool {
        self.max_runs_per_thread.is_some() || self.max_runs_per_tenant.is_some()
    }

    /// Whether a run ended too long ago.
    pub(crate) fn is_too_old(&self, run: &EndedRun<'_>, now: Timestamp) -> bool {
        let is_older = |age: Option<_>| age.is_some_and(|age| run.ended_at < now.before(age));
        is_older(self.max_age) || run.is_stateless && is_older(self.max_stateless_age)
    }
}

// === impl RetentionPass ===

impl RetentionPass {
    pub(crate) fn new(policy: &RetentionPolicy) -> Self {
        Self {
            of_thread: RunCounts { most: policy.max_runs_per_thread, seen: HashMap::new() },
            of_tenant: RunCounts { most: policy.max_runs_per_tenant, seen: HashMap::new() },
        }
    }

    /// Counts the next run.
    pub(crate) fn count(&mut self, run: &EndedRun<'_>) -> BeyondCounts {
        BeyondCounts {
            in_thread: self.of_thread.is_over(&run.thread),
            in_tenant: self.of_tenant.is_over(run.tenant),
        }
    }
}

// === impl BeyondCounts ===

impl BeyondCounts {
    pub(crate) fn is_any(self) -> bool {
        self.in_thread || self.in_tenant
    }

    /// Whether a run exceeds the same count in both orders.
    pub(crate) fn agrees_with(self, other: Self) -> bool {
        self.in_thread && other.in_thread || self.in_tenant && other.in_tenant
    }
}

// === impl RunCounts ===

impl<K: Hash + Eq> RunCounts<K> {
    /// Counts one run. Returns whether its holder now has too many.
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
