//! The interrupt that a principal was last shown on a run: an answer without an interrupt id is for it.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use trilogue_domain::{InterruptId, PrincipalId, RunId};

use trilogue_domain::lock;

/// The most pairs of principal and run that are remembered; the oldest are forgotten.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    last: HashMap<(PrincipalId, RunId), InterruptId>,
    order: VecDeque<(PrincipalId, RunId)>,
}

// === impl Shown ===

impl Shown {
    pub(crate) fn note(&self, to: &PrincipalId, run: &RunId, interrupt: &InterruptId) {
        let key = (to.clone(), run.clone());
        let mut memory = lock(&self.0);
        if memory.last.insert(key.clone(), interrupt.clone()).is_none() {
            memory.order.push_back(key);
        }
        if memory.order.len() > REMEMBERED
            && let Some(oldest) = memory.order.pop_front()
        {
            memory.last.remove(&oldest);
        }
    }

    pub(crate) fn last(&self, to: &PrincipalId, run: &RunId) -> Option<InterruptId> {
        lock(&self.0).last.get(&(to.clone(), run.clone())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_counts_and_memory_is_bounded() {
        let shown = Shown::default();
        let principal = PrincipalId::generate();
        let first = RunId::generate();
        let (one, two) = (InterruptId::generate(), InterruptId::generate());
        shown.note(&principal, &first, &one);
        shown.note(&principal, &first, &two);
        assert_eq!(shown.last(&principal, &first), Some(two));
        for _ in 0..REMEMBERED {
            shown.note(&principal, &RunId::generate(), &one);
        }
        assert_eq!(shown.last(&principal, &first), None);
    }
}
