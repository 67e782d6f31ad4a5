//! The indexes of one tenant: by id, and for listings.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use trilogue_domain::{InterruptId, MessageId, RunId, RunKey, ThreadId, ThreadKey};

#[derive(Debug, Default)]
pub(super) struct TenantIndex {
    pub(super) threads: HashMap<ThreadId, ThreadKey>,
    /// The threads that listings show: all but ephemeral ones.
    pub(super) listed: BTreeSet<ThreadKey>,
    pub(super) runs: HashMap<RunId, RunKey>,
    pub(super) run_keys: BTreeSet<RunKey>,
    /// The threads that hold a message of an id.
    pub(super) messages: HashMap<MessageId, MessageThreads>,
    pub(super) interrupts: HashMap<InterruptId, i64>,
    pub(super) interrupt_keys: BTreeSet<i64>,
}

/// The threads that hold a message of one id: as a rule one.
#[derive(Debug)]
pub(super) enum MessageThreads {
    One(u64, ThreadKey),
    /// By the places of their messages in the order of arrival.
    Many(BTreeMap<u64, ThreadKey>),
}

// === impl MessageThreads ===

impl MessageThreads {
    /// Adds a thread whose message came later than all others.
    pub(super) fn add(&mut self, place: u64, thread: ThreadKey) {
        match self {
            Self::One(first, held) => {
                *self = Self::Many(BTreeMap::from([(*first, *held), (place, thread)]));
            }
            Self::Many(held) => {
                held.insert(place, thread);
            }
        }
    }

    /// Removes the message of this place; returns whether none is left.
    pub(super) fn remove(&mut self, place: u64) -> bool {
        match self {
            Self::One(held, _) => *held == place,
            Self::Many(held) => {
                held.remove(&place);
                held.is_empty()
            }
        }
    }

    /// The threads, first the one whose message came first.
    pub(super) fn iter(&self) -> impl Iterator<Item = ThreadKey> {
        let (one, many) = match self {
            Self::One(_, held) => (Some(*held), None),
            Self::Many(held) => (None, Some(held.values().copied())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}
