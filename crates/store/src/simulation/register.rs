use std::time::Duration;

use super::{
    AcquireOutcome, AppendOutcome, DEAD_AFTER, Entry, HEARTBEAT, Rules, SentAppend, Shared, THREADS,
};
use crate::core::ownership::{Acquisition, AppendAttempt, AppendVerdict, LogEnd, Ownership};

/// The shared state of the nodes, in memory. It follows the decisions, right or wrong.
#[derive(Debug)]
pub(crate) struct Register {
    rules: Rules,
    clock: i64,
    reachable: ReachableTime,
    nodes: Vec<ListedNode>,
    threads: Vec<Thread>,
}

/// How long the database could be reached, as measured by signs of life.
#[derive(Debug, Default)]
struct ReachableTime {
    counted: u64,
    /// The time of the last sign of life, by the clock.
    reached_at: i64,
}

#[derive(Debug)]
struct ListedNode {
    name: usize,
    /// The reachable time at its last sign of life. `None` if it is not on the list.
    seen: Option<u64>,
    /// Whether it drains, as the node itself and as the list has it.
    is_draining: bool,
    is_listed_draining: bool,
}

#[derive(Debug)]
struct Thread {
    /// `None` if it was given up.
    owner: Option<usize>,
    /// The process that took it last.
    taker: usize,
    end: LogEnd,
    frames: Vec<StoredFrame>,
}

#[derive(Debug)]
struct StoredFrame {
    first: u64,
    stamp: i64,
    entries: Vec<Entry>,
}

// === impl Register ===

impl Register {
    pub(crate) fn new(rules: Rules) -> Self {
        let reachable = ReachableTime::default();
        Self { rules, clock: 0, reachable, nodes: Vec::new(), threads: Vec::new() }
    }

    /// The reachable time as of now.
    fn reachable(&self) -> u64 {
        let gap = u64::try_from(self.clock - self.reachable.reached_at).ok();
        let counted =
            (self.rules.counted_gap)(gap.map(Duration::from_secs), Duration::from_secs(HEARTBEAT));
        self.reachable.counted + counted.as_secs()
    }

    /// Notes that a process has reached the database.
    fn reach(&mut self) -> u64 {
        let counted = self.reachable();
        self.reachable = ReachableTime { counted, reached_at: self.clock };
        counted
    }

    fn is_alive(&self, process: usize) -> bool {
        self.nodes[process].seen.is_some_and(|seen| self.reachable() - seen < DEAD_AFTER)
    }

    /// Whether a process takes threads that others hand over.
    pub(crate) fn takes_threads(&self, process: usize) -> bool {
        self.is_alive(process) && !self.nodes[process].is_listed_draining
    }

    fn stand_in(&self, process: usize) -> Option<usize> {
        let mut others = (0..self.nodes.len()).filter(|other| *other != process);
        others.find(|other| self.nodes[process].is_draining && self.takes_threads(*other))
    }

    fn is_taken(&self, name: usize) -> bool {
        self.nodes.iter().any(|node| node.name == name && node.seen.is_some())
    }
}

impl Shared for Register {
    async fn open(&mut self, name: usize) -> bool {
        for process in 0..self.nodes.len() {
            if self.nodes[process].name == name && !self.is_alive(process) {
                self.nodes[process].seen = None;
            }
        }
        if self.is_taken(name) {
            return false;
        }
        let (is_draining, is_listed_draining) = (false, false);
        let seen = Some(self.reach());
        self.nodes.push(ListedNode { name, seen, is_draining, is_listed_draining });
        true
    }

    async fn create(&mut self, process: usize) {
        let end = LogEnd { epoch: 1, last: 0, stamp: 0 };
        self.threads.extend((0..THREADS).map(|_| Thread {
            owner: Some(process),
            taker: process,
            end,
            frames: Vec::new(),
        }));
    }

    async fn sign(&mut self, process: usize) {
        let reachable = self.reach();
        let is_listed = self.nodes[process].seen.is_some();
        if is_listed || !self.is_taken(self.nodes[process].name) {
            let node = &mut self.nodes[process];
            node.seen = Some(reachable);
            // A new row does not show draining until the next sign of life.
            node.is_listed_draining = is_listed && node.is_draining;
        }
    }

    async fn end(&mut self, process: usize, is_clean: bool) {
        if is_clean {
            self.nodes[process].seen = None;
        }
    }

    async fn pass(&mut self, time: u64) {
        self.clock += time.cast_signed();
    }

    async fn set_clock(&mut self, by: i64) {
        self.clock += by;
    }

    async fn set_draining(&mut self, process: usize, draining: bool) {
        self.nodes[process].is_draining = draining;
        self.sign(process).await;
    }

    async fn hand_over(
        &mut self,
        process: usize,
        thread: usize,
        epoch: u64,
        to: Option<usize>,
    ) -> bool {
        let next = to.and_then(|name| {
            (0..self.nodes.len())
                .find(|other| self.nodes[*other].name == name && self.takes_threads(*other))
        });
        let held = &mut self.threads[thread];
        if held.owner == Some(process)
            && held.end.epoch == epoch
            && (to.is_none() || next.is_some())
        {
            held.owner = next;
        }
        held.owner != Some(process)
    }

    async fn hand_over_all_but(&mut self, process: usize, but: &[usize]) {
        for (thread, held) in self.threads.iter_mut().enumerate() {
            if held.owner == Some(process) && !but.contains(&thread) {
                held.owner = None;
            }
        }
    }

    async fn acquire(&mut self, process: usize, thread: usize) -> AcquireOutcome {
        let Thread { owner, taker, end, .. } = self.threads[thread];
        let other = owner.filter(|owner| *owner != process && self.is_alive(*owner));
        let stand_in = self.stand_in(process);
        let found = Ownership {
            is_ours: owner == Some(process) && taker == process,
            is_owner_alive: other.is_some(),
            has_stand_in: stand_in.is_some(),
            epoch: end.epoch,
        };
        let held = &mut self.threads[thread];
        match ((self.rules.acquisition)(found), other, stand_in) {
            (Acquisition::Elsewhere, Some(owner), _) => return AcquireOutcome::Elsewhere(owner),
            (Acquisition::GiveUp, _, Some(next)) => {
                held.owner = held.owner.filter(|owner| *owner != process);
                return AcquireOutcome::GivenUp(next);
            }
            (Acquisition::TakeOver { epoch }, ..) => {
                (held.owner, held.taker) = (Some(process), process);
                held.end.epoch = epoch;
            }
            _ => {}
        }
        AcquireOutcome::Owned { epoch: held.end.epoch, last: held.end.last }
    }

    async fn append(&mut self, append: &SentAppend, is_again: bool) -> AppendOutcome {
        let held = &mut self.threads[append.thread];
        let attempt = AppendAttempt {
            epoch: append.epoch,
            expected_last: append.expected_last,
            last: append.last(),
            stamp: append.stamp,
            creates: false,
            removes: false,
            is_again,
        };
        let mut verdict = (self.rules.verdict)(&attempt, Some(held.end));
        if verdict == AppendVerdict::Uncertain {
            let first = append.expected_last + 1;
            let found = held.frames.iter().find(|frame| frame.first == first);
            let is_own = found.map(|frame| frame.stamp == append.stamp);
            verdict = (self.rules.verdict_of_frames)(is_own);
        }
        match verdict {
            AppendVerdict::Fits => {}
            AppendVerdict::Stored => return AppendOutcome::StoredBefore,
            AppendVerdict::Late => return AppendOutcome::Late,
            AppendVerdict::Uncertain => return AppendOutcome::Uncertain,
        }
        held.end = LogEnd { epoch: held.end.epoch, last: append.last(), stamp: append.stamp };
        held.frames.push(StoredFrame {
            first: append.expected_last + 1,
            stamp: append.stamp,
            entries: append.entries.clone(),
        });
        AppendOutcome::Stored
    }

    async fn entries(&mut self, thread: usize) -> Vec<Entry> {
        self.threads[thread].frames.iter().flat_map(|frame| frame.entries.clone()).collect()
    }
}
