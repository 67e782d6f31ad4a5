//! The protocol by which nodes own threads, as a seeded simulation: the decisions of [`crate::core::ownership`] under random schedules of heartbeats, pauses, crashes, hand-overs, and late, lost and repeated messages.
//!
//! | file | purpose |
//! |---|---|
//! | `schedule` | the steps of a schedule |
//! | `calm` | the end of a schedule |
//! | `process` | the steps of a node |
//! | `ledger` | the conditions that must hold after each step, tracked outside of the nodes |
//! | `register` | the shared state of the nodes, in memory |
//!
//! The shared state is a [`Shared`]. The PostgreSQL engine implements it too, and compares each step with the register.

mod calm;
mod ledger;
mod process;
mod register;
mod schedule;
mod tests;

use std::time::Duration;

use trilogue_domain::error::Code;

use crate::core::ownership::{
    self, Acquisition, AppendAttempt, AppendVerdict, LogEnd, NextTry, OwnerExit, Ownership,
};

pub(crate) use self::register::Register;
use self::schedule::Failure;
pub(crate) use self::schedule::check;

/// The number of threads that the nodes share.
pub(crate) const THREADS: usize = 2;
/// A node is dead after this many units of time without a sign of life in which the database could be reached.
pub(crate) const DEAD_AFTER: u64 = 10;
/// How often a node gives a sign of life, in units of time.
pub(crate) const HEARTBEAT: u64 = 3;

/// The result of a checked step. The error text says which condition failed.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// An entry of a log: a command was accepted, or its execution began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    Accept(u32),
    Start(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SentAppend {
    pub(crate) process: usize,
    pub(crate) thread: usize,
    pub(crate) epoch: u64,
    pub(crate) expected_last: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) stamp: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AppendOutcome {
    Stored,
    StoredBefore,
    Late,
    Uncertain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AcquireOutcome {
    Owned {
        epoch: u64,
        last: u64,
    },
    /// This process owns the thread.
    Elsewhere(usize),
    /// The requested process drains, and has given the thread up if it owned it. This one takes threads.
    GivenUp(usize),
}

/// The shared state of the nodes. Processes are numbered in the order in which they are opened.
pub(crate) trait Shared {
    /// Lists a further process under a name. Returns `false` and adds no process if a live one has the name.
    async fn open(&mut self, name: usize) -> bool;
    /// Creates the threads, in the first epoch of a process.
    async fn create(&mut self, process: usize);
    async fn sign(&mut self, process: usize);
    /// Ends a process; a clean end takes it off the list.
    async fn end(&mut self, process: usize, is_clean: bool);
    /// Lets units of time pass.
    async fn pass(&mut self, time: u64);
    /// Sets the clock by this number of units: another machine has become the database, or its clock was corrected.
    async fn set_clock(&mut self, by: i64);
    /// Makes a process hand its threads over and take no others, or take threads again.
    async fn set_draining(&mut self, process: usize, draining: bool);
    /// Makes a process give a thread up: to a name, or to the next process that requests it. Returns whether the process no longer owns the thread.
    async fn hand_over(
        &mut self,
        process: usize,
        thread: usize,
        epoch: u64,
        to: Option<usize>,
    ) -> bool;
    /// Makes a process give up its threads, except these.
    async fn hand_over_all_but(&mut self, process: usize, but: &[usize]);
    async fn acquire(&mut self, process: usize, thread: usize) -> AcquireOutcome;
    async fn append(&mut self, append: &SentAppend, is_again: bool) -> AppendOutcome;
    /// All entries of a log.
    async fn entries(&mut self, thread: usize) -> Vec<Entry>;
}

/// The decisions that a simulation uses: those of the store, or a wrong one in a test of the simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) acquisition: fn(Ownership) -> Acquisition,
    pub(crate) verdict: fn(&AppendAttempt, Option<LogEnd>) -> AppendVerdict,
    pub(crate) verdict_of_frames: fn(Option<bool>) -> AppendVerdict,
    pub(crate) owner_exit: fn(Result<(), Code>) -> OwnerExit,
    pub(crate) next_try: fn(bool, bool) -> NextTry,
    pub(crate) counted_gap: fn(Option<Duration>, Duration) -> Duration,
    /// Whether an owner forgets what it knows about a thread after a failed append.
    pub(crate) leaves: bool,
}

// === impl Rules ===

impl Rules {
    pub(crate) const STORE: Self = Self {
        acquisition: ownership::acquisition,
        verdict: ownership::verdict,
        verdict_of_frames: ownership::verdict_of_frames,
        owner_exit: ownership::owner_exit,
        next_try: ownership::next_try,
        counted_gap: ownership::counted_gap,
        leaves: true,
    };
}

// === impl SentAppend ===

impl SentAppend {
    pub(crate) fn last(&self) -> u64 {
        self.expected_last + self.entries.len() as u64
    }
}
