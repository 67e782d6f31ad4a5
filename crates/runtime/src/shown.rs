//! Remembers the interrupt that a principal was last shown on a run, by any node: an answer without an interrupt id is for it.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use trilogue_domain::{InterruptId, PrincipalId, RunId, Timestamp, lock};
use trilogue_store::ShownQuestion;

/// The most pairs of principal and run to remember; the oldest are forgotten.
const REMEMBERED: usize = 10_000;
/// The least time between two moments.
const MOMENT: Duration = Duration::from_micros(1);

#[derive(Debug, Default)]
pub(crate) struct ShownQuestions(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    last: HashMap<(PrincipalId, RunId), (Timestamp, InterruptId)>,
    order: VecDeque<(PrincipalId, RunId)>,
}

// === impl ShownQuestions ===

impl ShownQuestions {
    /// Records what this node shows. Returns the part that other nodes do not know.
    pub(crate) fn record(
        &self,
        to: &PrincipalId,
        run: &RunId,
        interrupt: &InterruptId,
        now: Timestamp,
    ) -> Option<ShownQuestion> {
        let key = (to.clone(), run.clone());
        let mut memory = lock(&self.0);
        let at = match memory.last.get(&key) {
            Some((_, last)) if last == interrupt => return None,
            // What this node shows now is newer than every message of others, even if the clocks differ.
            Some((before, _)) => now.max(before.after(MOMENT)),
            None => now,
        };
        memory.put(key, at, interrupt.clone());
        let (principal, run, interrupt) = (to.clone(), run.clone(), interrupt.clone());
        Some(ShownQuestion { principal, run, interrupt, at })
    }

    /// Records what another node has shown, unless something newer is known: all nodes agree on the newest.
    pub(crate) fn record_remote(&self, shown: ShownQuestion) {
        let ShownQuestion { principal, run, interrupt, at } = shown;
        let key = (principal, run);
        let mut memory = lock(&self.0);
        let known = memory.last.get(&key);
        if known.is_none_or(|(before, last)| (*before, last.as_str()) < (at, interrupt.as_str())) {
            memory.put(key, at, interrupt);
        }
    }

    pub(crate) fn last(&self, to: &PrincipalId, run: &RunId) -> Option<InterruptId> {
        let memory = lock(&self.0);
        memory.last.get(&(to.clone(), run.clone())).map(|(_, interrupt)| interrupt.clone())
    }
}

// === impl Memory ===

impl Memory {
    fn put(&mut self, key: (PrincipalId, RunId), at: Timestamp, interrupt: InterruptId) {
        if self.last.insert(key.clone(), (at, interrupt)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.last.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn the_newest_counts_and_memory_is_bounded() {
        let shown = ShownQuestions::default();
        let principal = PrincipalId::generate();
        let first = RunId::generate();
        let (one, two) = (InterruptId::generate(), InterruptId::generate());
        assert!(shown.record(&principal, &first, &one, at(1)).is_some());
        assert!(shown.record(&principal, &first, &two, at(2)).is_some());
        assert_eq!(shown.record(&principal, &first, &two, at(3)), None, "the others know it");
        assert_eq!(shown.last(&principal, &first), Some(two));
        for _ in 0..REMEMBERED {
            shown.record(&principal, &RunId::generate(), &one, at(4));
        }
        assert_eq!(shown.last(&principal, &first), None);
    }

    #[test]
    fn nodes_agree_on_what_was_shown_last_whatever_their_clocks_say() {
        let (a, b) = (ShownQuestions::default(), ShownQuestions::default());
        let (principal, run) = (PrincipalId::generate(), RunId::generate());
        let questions: Vec<_> = (0..3).map(|_| InterruptId::generate()).collect();
        let early = a.record(&principal, &run, &questions[0], at(900)).unwrap();
        b.record_remote(early.clone());
        // Node b's clock is behind.
        let late = b.record(&principal, &run, &questions[1], at(5)).unwrap();
        a.record_remote(late);
        a.record_remote(early.clone());
        assert_eq!(a.last(&principal, &run), Some(questions[1].clone()));
        b.record_remote(early);
        assert_eq!(b.last(&principal, &run), Some(questions[1].clone()));
        let one = a.record(&principal, &run, &questions[2], at(1_000)).unwrap();
        let other = b.record(&principal, &run, &questions[0], at(1_000)).unwrap();
        a.record_remote(other);
        b.record_remote(one);
        assert_eq!(a.last(&principal, &run), b.last(&principal, &run));
    }
}
