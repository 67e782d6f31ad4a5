//! The ends of logs that the database has acknowledged. After a failover, a replica may lack the newest commits.

use std::collections::HashMap;
use std::sync::Mutex;

use trilogue_domain::ThreadKey;
use trilogue_domain::lock;

use crate::core::ownership::LogEnd;
use crate::port::Batch;

/// How many logs are remembered at least, those that were written last. One takes about 50 bytes.
const REMEMBERED_LOGS: usize = 16 * 1024;

/// The ends of the logs that this process wrote last, as the database acknowledged them.
#[derive(Debug, Default)]
pub(super) struct AcknowledgedLogs {
    ends: Mutex<NewestEnds>,
    /// The timeline with which they were compared last.
    pub(super) compared: tokio::sync::Mutex<u32>,
}

/// Two halves: when one is full, it takes the place of the older one.
#[derive(Debug, Default)]
struct NewestEnds {
    newer: HashMap<ThreadKey, LogEnd>,
    older: HashMap<ThreadKey, LogEnd>,
}

/// That a log lacks events which were acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LostEvents {
    pub(super) thread: ThreadKey,
    /// The last number that was acknowledged.
    pub(super) last: u64,
    /// The last number that is there.
    pub(super) found: u64,
}

// === impl AcknowledgedLogs ===

impl AcknowledgedLogs {
    /// Notes an append that is durable.
    pub(super) fn note(&self, batch: &Batch, stamp: i64) {
        let end = LogEnd { epoch: batch.last_epoch(), last: batch.last(), stamp };
        let mut ends = lock(&self.ends);
        if ends.newer.len() >= REMEMBERED_LOGS {
            ends.older = std::mem::take(&mut ends.newer);
        }
        ends.newer.insert(batch.thread, end);
    }

    pub(super) fn forget(&self, thread: ThreadKey) {
        let mut ends = lock(&self.ends);
        ends.newer.remove(&thread);
        // Also in the older half, where `end` would find it again.
        ends.older.remove(&thread);
    }

    pub(super) fn end(&self, thread: ThreadKey) -> Option<LogEnd> {
        let ends = lock(&self.ends);
        ends.newer.get(&thread).or_else(|| ends.older.get(&thread)).copied()
    }

    pub(super) fn all(&self) -> HashMap<ThreadKey, LogEnd> {
        let ends = lock(&self.ends);
        let mut all = ends.older.clone();
        // After the older half: a thread can be in both, and its newer end counts.
        all.extend(&ends.newer);
        all
    }
}

// === impl LostEvents ===

impl LostEvents {
    /// What a log lacks if its end is before what was known when the end was read. Neither its epoch nor its numbers ever go back, and one epoch has one writer.
    pub(super) fn between(thread: ThreadKey, known: LogEnd, found: LogEnd) -> Option<Self> {
        let is_same_end = (found.epoch, found.last) == (known.epoch, known.last);
        let is_behind = found.epoch < known.epoch
            || found.last < known.last
            || is_same_end && found.stamp < known.stamp;
        is_behind.then_some(Self { thread, last: known.last, found: found.last })
    }

    pub(super) fn reason(self) -> String {
        let Self { last, found, .. } = self;
        format!(
            "its newest changes are lost: the database had acknowledged events up to {last} and has events up to {found}, as after a failover to a replica without the newest commits"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_behind_if_anything_of_it_went_back() {
        let known = LogEnd { epoch: 2, last: 9, stamp: 5 };
        let is_behind = |known, found| LostEvents::between(ThreadKey(1), known, found).is_some();
        assert!(!is_behind(known, known));
        assert!(is_behind(known, LogEnd { last: 8, stamp: 4, ..known }));
        assert!(is_behind(known, LogEnd { stamp: 4, ..known }), "a change without an event");
        assert!(is_behind(known, LogEnd { epoch: 1, ..known }), "a take-over");
        assert!(!is_behind(known, LogEnd { epoch: 3, last: 9, stamp: 1 }), "another node has it");
        assert!(is_behind(known, LogEnd { epoch: 3, last: 8, stamp: 1 }));
    }
}
