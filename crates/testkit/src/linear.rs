//! A linearizability checker: the search of Wing and Gong with Lowe's memory of visited states.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use trilogue_domain::lock;

/// The number of visited states after which the search gives up.
const MAX_PLACES: usize = 500_000;

/// The sequential behaviour of an object, with one client at a time.
pub trait Sequential {
    type State: Clone + Eq + Hash + Default;
    type Call: Clone + Debug;
    type Answer: Clone + Debug;

    /// Returns the state after a call; `None` if the call cannot have this answer in this state. A call without an answer may have taken effect, and this returns its effect.
    fn step(
        state: &Self::State,
        call: &Self::Call,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;
}

/// One use of the object.
#[derive(Clone, Debug)]
pub struct Operation<C, A> {
    pub call: C,
    /// `None` while the outcome is unknown, perhaps for ever.
    pub answer: Option<A>,
    /// The position of the call among the begins and ends of all operations.
    pub began: u64,
    /// The position of the answer in the same order; [`u64::MAX`] without an answer.
    pub ended: u64,
}

/// Records the operations of many clients.
#[derive(Debug)]
pub struct Recorder<C, A> {
    tick: AtomicU64,
    operations: Mutex<Vec<Operation<C, A>>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Some order explains every answer.
    Linearisable,
    /// No order explains every answer. The text lists the operations by their begin, and the largest number that one order explains.
    Contradiction(String),
    /// The search was given up.
    Undecided,
}

/// A state of the search: the operations that are done, and the object's state after them.
type Place<S> = (Vec<u64>, S);

struct Step<S> {
    place: Place<S>,
    /// The operations that may come next, in reverse order of preference.
    candidates: Vec<usize>,
}

// === impl Recorder ===

impl<C, A> Default for Recorder<C, A> {
    fn default() -> Self {
        Self { tick: AtomicU64::new(0), operations: Mutex::new(Vec::new()) }
    }
}

impl<C: Clone, A: Clone> Recorder<C, A> {
    /// Records a call before it is made. Returns the argument for [`Recorder::end`].
    pub fn begin(&self, call: C) -> usize {
        let mut operations = lock(&self.operations);
        let began = self.tick.fetch_add(1, Ordering::SeqCst);
        operations.push(Operation { call, answer: None, began, ended: u64::MAX });
        operations.len() - 1
    }

    /// Records the answer to a call after it has arrived.
    pub fn end(&self, operation: usize, answer: A) {
        let ended = self.tick.fetch_add(1, Ordering::SeqCst);
        if let Some(operation) = lock(&self.operations).get_mut(operation) {
            (operation.answer, operation.ended) = (Some(answer), ended);
        }
    }

    pub fn operations(&self) -> Vec<Operation<C, A>> {
        lock(&self.operations).clone()
    }
}

/// Searches for an order of the operations in which the object gives these answers, and which keeps operations in order if one ended before the other began.
pub fn check<O: Sequential>(history: &[Operation<O::Call, O::Answer>]) -> Verdict {
    let mut seen: HashSet<Place<O::State>> = HashSet::new();
    let begin = (vec![0; history.len().div_ceil(64)], O::State::default());
    let mut most = 0;
    let mut steps = vec![Step { candidates: candidates(history, &begin.0), place: begin }];
    while let Some(step) = steps.last_mut() {
        let (done, state) = &step.place;
        if is_explained(history, done) {
            return Verdict::Linearisable;
        }
        let Some(next) = step.candidates.pop() else {
            steps.pop();
            continue;
        };
        let operation = &history[next];
        let Some(state) = O::step(state, &operation.call, operation.answer.as_ref()) else {
            continue;
        };
        let mut done = done.clone();
        done[next / 64] |= 1 << (next % 64);
        if seen.contains(&(done.clone(), state.clone())) {
            continue;
        }
        if seen.len() >= MAX_PLACES {
            return Verdict::Undecided;
        }
        most = most.max(done.iter().map(|word| word.count_ones()).sum());
        seen.insert((done.clone(), state.clone()));
        steps.push(Step { candidates: candidates(history, &done), place: (done, state) });
    }
    let lines: Vec<String> = history.iter().map(|one| format!("{one:?}")).collect();
    Verdict::Contradiction(format!(
        "{most} of {} can be explained:\n{}",
        history.len(),
        lines.join("\n")
    ))
}

fn is_done(done: &[u64], index: usize) -> bool {
    done[index / 64] & (1 << (index % 64)) != 0
}

/// Whether all answered operations are done. A call without an answer need not have taken effect.
fn is_explained<C, A>(history: &[Operation<C, A>], done: &[u64]) -> bool {
    history.iter().enumerate().all(|(index, one)| one.answer.is_none() || is_done(done, index))
}

/// The operations that may come next: no other remaining operation ended before they began. The search takes candidates from the end, so the one that ended first is last.
fn candidates<C, A>(history: &[Operation<C, A>], done: &[u64]) -> Vec<usize> {
    let left = || history.iter().enumerate().filter(|(index, _)| !is_done(done, *index));
    let first_end = left().map(|(_, one)| one.ended).min().unwrap_or(u64::MAX);
    let mut next: Vec<usize> =
        left().filter(|(_, one)| one.began < first_end).map(|(index, _)| index).collect();
    next.sort_by_key(|&index| std::cmp::Reverse((history[index].ended, history[index].began)));
    next
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
