//! Whether what several clients saw of one object could have happened one after the other: the search of Wing and Gong, with the memory of places that Lowe added.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use trilogue_domain::lock;

/// How many places of the search are remembered before it gives up.
const MAX_PLACES: usize = 500_000;

/// What an object does when it is used by one client after the other.
pub trait Sequential {
    type State: Clone + Eq + Hash + Default;
    type Call: Clone + Debug;
    type Answer: Clone + Debug;

    /// The state after a call; `None` where the call cannot be answered so in this state. A call without an answer was perhaps taken, and this is what it does then.
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
    /// `None` while nobody knows the outcome, perhaps for ever.
    pub answer: Option<A>,
    /// Counts the beginnings and ends of all operations in their order.
    pub began: u64,
    /// [`u64::MAX`] without an answer.
    pub ended: u64,
}

/// Notes the operations of many clients.
#[derive(Debug)]
pub struct Recorder<C, A> {
    tick: AtomicU64,
    operations: Mutex<Vec<Operation<C, A>>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Some order explains every answer.
    Linearisable,
    /// None does. The text has the operations in the order of their begin, and how many could be explained at most.
    Contradiction(String),
    /// The search was given up.
    Undecided,
}

/// A place of the search: which operations are done, and the state that they left.
type Place<S> = (Vec<u64>, S);

struct Step<S> {
    place: Place<S>,
    /// What may come next, last first.
    candidates: Vec<usize>,
}

// === impl Recorder ===

impl<C, A> Default for Recorder<C, A> {
    fn default() -> Self {
        Self { tick: AtomicU64::new(0), operations: Mutex::new(Vec::new()) }
    }
}

impl<C: Clone, A: Clone> Recorder<C, A> {
    /// Notes a call before it is made. Returns what [`Recorder::end`] takes.
    pub fn begin(&self, call: C) -> usize {
        let mut operations = lock(&self.operations);
        let began = self.tick.fetch_add(1, Ordering::SeqCst);
        operations.push(Operation { call, answer: None, began, ended: u64::MAX });
        operations.len() - 1
    }

    /// Notes the answer to a call after it has come.
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

/// Looks for an order of the operations in which the object gives these answers, and in which whatever ended before another began comes first.
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

/// Whether every answer was given. A call without one need not have been taken.
fn is_explained<C, A>(history: &[Operation<C, A>], done: &[u64]) -> bool {
    history.iter().enumerate().all(|(index, one)| one.answer.is_none() || is_done(done, index))
}

/// What may come next: nothing else that is left ended before it began. What ended first is tried first, which comes last here.
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
