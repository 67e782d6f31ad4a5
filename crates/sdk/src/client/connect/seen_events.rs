//! The events of a run that were already received.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The maximum number of remembered events of a run, which detect repeated events.
const MAX_REMEMBERED: usize = 16 * 1024;

/// The events of a run that were already received.
#[derive(Debug, Default)]
pub(super) struct SeenEvents {
    known: HashSet<u64>,
    order: VecDeque<u64>,
}

// === impl SeenEvents ===

impl SeenEvents {
    /// Adds an event. Returns `false` if an event with this id and this content was received before. The id alone is not enough, because a server may restart its ids on each connection.
    pub(super) fn add(&mut self, id: &str, json: &str) -> bool {
        if id.is_empty() {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        (id, json).hash(&mut hasher);
        let event = hasher.finish();
        if !self.known.insert(event) {
            return false;
        }
        self.order.push_back(event);
        if self.order.len() > MAX_REMEMBERED
            && let Some(old) = self.order.pop_front()
        {
            self.known.remove(&old);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_an_id_alone_is_no_repetition() {
        let mut seen = SeenEvents::default();
        assert!(seen.add("1", "a") && seen.add("1", "b") && !seen.add("1", "a"));
        assert!(seen.add("", "a") && seen.add("", "a"), "without an id nothing is told");
        for number in 0..MAX_REMEMBERED {
            assert!(seen.add(&number.to_string(), "x"));
        }
        assert_eq!((seen.known.len(), seen.order.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
    }
}
