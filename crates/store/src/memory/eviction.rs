//! Eviction: the oldest ended runs are removed first, open runs never. Data that a client has open is removed last.

use std::collections::BTreeMap;

use trilogue_domain::{RunKey, ThreadKey};

use super::Options;
use super::state::State;

/// The evictable entries, by position in the order of eviction. Entries that a client has open are set aside, so that no eviction searches for long.
#[derive(Debug)]
pub(super) struct EvictionOrder<K> {
    waiting: BTreeMap<u64, K>,
    aside: BTreeMap<u64, K>,
    /// The position of the set-aside entry that was checked last.
    looked_at: u64,
}

enum EvictionTarget {
    Run(u64, RunKey),
    Thread(u64, ThreadKey),
}

// === impl State ===

impl State {
    /// Evicts ended runs, and threads without runs, until the limits hold.
    /// The newest ended run always stays, so that a client that waits for its end can read it.
    pub(super) fn evict(&mut self, options: &Options) {
        while self.runs.len() > options.max_runs {
            let Some((place, run)) = self.oldest_run().or_else(|| self.ended.oldest_aside()) else {
                break;
            };
            self.evict_run(place, run);
        }
        while self.total_bytes() > options.max_bytes {
            match self.oldest() {
                Some(EvictionTarget::Run(place, run)) => self.evict_run(place, run),
                Some(EvictionTarget::Thread(place, thread)) => {
                    self.idle.remove(place);
                    self.remove_thread(thread);
                }
                None => break,
            }
        }
    }

    /// The oldest entry without readers, otherwise the oldest entry.
    fn oldest(&mut self) -> Option<EvictionTarget> {
        let tails = &self.tails;
        let idle = self.idle.oldest(|thread| tails.has_readers(thread));
        let older = |run: Option<(u64, RunKey)>, idle: Option<(u64, ThreadKey)>| match (run, idle) {
            (Some((place, run)), idle) if idle.is_none_or(|(idle, _)| place < idle) => {
                Some(EvictionTarget::Run(place, run))
            }
            (_, idle) => idle.map(|(place, thread)| EvictionTarget::Thread(place, thread)),
        };
        let run = self.oldest_run();
        older(run, idle).or_else(|| older(self.ended.oldest_aside(), self.idle.oldest_aside()))
    }

    /// The oldest ended run of a thread without readers.
    fn oldest_run(&mut self) -> Option<(u64, RunKey)> {
        let Self { ended, runs, tails, .. } = self;
        if ended.len() < 2 {
            return None;
        }
        let is_open = |key| runs.get(&key).is_some_and(|run| tails.has_readers(run.row.thread));
        let oldest = ended.oldest(is_open)?;
        (Some(oldest.0) != ended.newest_place()).then_some(oldest)
    }

    fn evict_run(&mut self, place: u64, run: RunKey) {
        // Remove the position first, so that the loops above always end.
        self.ended.remove(place);
        let Some(key) = self.runs.get(&run).map(|run| run.row.thread) else { return };
        let is_done = self
            .threads
            .get(&key)
            .is_some_and(|thread| thread.row.ephemeral && thread.runs.iter().eq([&run]));
        if is_done {
            return self.remove_thread(key);
        }
        self.remove_run(key, run);
        self.note_idle(key);
    }
}

// === impl EvictionOrder ===

impl<K: Copy> EvictionOrder<K> {
    pub(super) fn insert(&mut self, place: u64, key: K) {
        self.waiting.insert(place, key);
    }

    pub(super) fn remove(&mut self, place: u64) {
        if self.waiting.remove(&place).is_none() {
            self.aside.remove(&place);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.aside.len()
    }

    /// In no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = K> {
        self.waiting.values().chain(self.aside.values()).copied()
    }

    fn newest_place(&self) -> Option<u64> {
        let last = |places: &BTreeMap<u64, K>| places.last_key_value().map(|(place, _)| *place);
        last(&self.waiting).max(last(&self.aside))
    }

    /// Second-chance eviction: the oldest entry without readers. Each call sets an entry aside at most once, and checks one set-aside entry: an entry returns once it has no readers.
    fn oldest(&mut self, is_open: impl Fn(K) -> bool) -> Option<(u64, K)> {
        let next = self.aside.range(self.looked_at.saturating_add(1)..).next();
        if let Some((&place, &key)) = next.or_else(|| self.aside.first_key_value()) {
            self.looked_at = place;
            if !is_open(key) {
                self.aside.remove(&place);
                self.waiting.insert(place, key);
            }
        }
        while let Some((&place, &key)) = self.waiting.first_key_value() {
            if !is_open(key) {
                return Some((place, key));
            }
            self.waiting.remove(&place);
            self.aside.insert(place, key);
        }
        None
    }

    fn oldest_aside(&self) -> Option<(u64, K)> {
        if self.len() < 2 {
            return None;
        }
        self.aside.first_key_value().map(|(place, key)| (*place, *key))
    }
}

impl<K> Default for EvictionOrder<K> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), aside: BTreeMap::new(), looked_at: 0 }
    }
}
