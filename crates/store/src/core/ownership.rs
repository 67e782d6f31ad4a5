//! Who may continue a thread: the decisions of the nodes that share a store, as functions of what they know.
//!
//! A thread has an owner and an epoch. Appends compare the epoch and the last number with the thread's head, so that a node that was replaced writes nothing.
//! Whether a node is alive is decided by the database, in the statement that looks it up. The nodes' signs of life also measure how long the database can be reached, and a silent node is dead after a length of that time: see [`counted_gap`].

use std::time::Duration;

use trilogue_domain::error::Code;

/// What a node finds about the owner of a thread that it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Whether this node owns it. One that was handed over to it is taken over first.
    pub is_ours: bool,
    /// Whether another node that owns it is alive.
    pub is_owner_alive: bool,
    /// Whether this node drains, and another one takes threads.
    pub has_stand_in: bool,
    pub epoch: u64,
}

/// What a node may do with a thread that it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquisition {
    /// It owns the thread.
    Keep,
    /// It becomes the owner, in this epoch.
    TakeOver { epoch: u64 },
    /// A live node owns the thread: the request belongs there.
    Elsewhere,
    /// It gives the thread up, where it owns it: the request belongs to the node that stands in.
    GiveUp,
}

/// The end of a thread's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEnd {
    /// The epoch of the writer that may continue it.
    pub epoch: u64,
    /// The last number; zero where the log is empty.
    pub last: u64,
    /// The mark of the append that was stored last.
    pub stamp: i64,
}

/// An append that the end of its thread's log did not fit, or that is to be compared with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendAttempt {
    pub epoch: u64,
    /// The last number that its writer knows.
    pub expected_last: u64,
    /// The last number behind it.
    pub last: u64,
    /// No other append has it, however often this one is tried.
    pub stamp: i64,
    /// Whether it makes its thread.
    pub creates: bool,
    /// Whether it removes its thread.
    pub removes: bool,
    /// Whether an earlier try may have been stored: its connection broke before the answer.
    pub is_again: bool,
}

/// What became of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendVerdict {
    /// It continues the log.
    Fits,
    /// An earlier try was stored.
    Stored,
    /// Another writer was faster: nothing of it is stored.
    Late,
    /// The log went on, and an earlier try may be in it: its frames tell, see [`verdict_of_frames`].
    Uncertain,
}

/// How an owner ends after a failed append, once it has looked at its thread again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// Waiting work is looked at again later: nobody may ask for it.
    WakeLater,
    /// There is no thread.
    Gone,
    /// Another node owns the thread now. It is not taken back.
    StepDown,
    /// The thread stays as it is until an operator has repaired the store.
    Stuck,
}

/// What happens to a request that was sent to the owner of its thread and got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextTry {
    /// It is tried again: the thread may be taken over meanwhile.
    Again,
    /// It fails; nothing was taken.
    NothingTaken,
    /// It fails, and is not sent again: it may have been taken.
    MayBeTaken,
}

/// How much of the time between two signs of life, of any nodes, the database counts as reachable: at most one heartbeat.
/// In a longer gap no node reached the database, so it makes no node look dead. Nor does a clock that was set; `None` says that it went back.
#[must_use]
pub fn counted_gap(gap: Option<Duration>, heartbeat: Duration) -> Duration {
    gap.map_or(Duration::ZERO, |gap| gap.min(heartbeat))
}

/// Decides what a node may do with a thread.
#[must_use]
pub fn acquisition(found: Ownership) -> Acquisition {
    match found {
        Ownership { is_ours: false, is_owner_alive: true, .. } => Acquisition::Elsewhere,
        Ownership { has_stand_in: true, .. } => Acquisition::GiveUp,
        Ownership { is_ours: true, .. } => Acquisition::Keep,
        Ownership { epoch, .. } => Acquisition::TakeOver { epoch: epoch + 1 },
    }
}

/// Compares an append with the end of its thread's log; `None` where there is no thread.
#[must_use]
pub fn verdict(append: &AppendAttempt, end: Option<LogEnd>) -> AppendVerdict {
    let Some(end) = end else {
        return match append {
            AppendAttempt { removes: true, is_again: true, .. } => AppendVerdict::Stored,
            AppendAttempt { creates: true, .. } => AppendVerdict::Fits,
            _ => AppendVerdict::Late,
        };
    };
    if end.stamp == append.stamp {
        return AppendVerdict::Stored;
    }
    if end.epoch == append.epoch && end.last == append.expected_last {
        return AppendVerdict::Fits;
    }
    // The end never moves back: an append that was stored has moved it at least to its own last number.
    if append.is_again && end.last >= append.last {
        AppendVerdict::Uncertain
    } else {
        AppendVerdict::Late
    }
}

/// Decides about an append by the frame that has its first number: whether that is its own; `None` where there is no such frame.
#[must_use]
pub fn verdict_of_frames(is_own: Option<bool>) -> AppendVerdict {
    match is_own {
        Some(true) => AppendVerdict::Stored,
        Some(false) => AppendVerdict::Late,
        None => AppendVerdict::Uncertain,
    }
}

/// Whether an owner looks at its thread again after an append that failed in this way.
#[must_use]
pub fn may_look_again(failed: Code) -> bool {
    !matches!(failed, Code::StoreReadOnly | Code::StoreCorrupt | Code::ThreadQuarantined)
}

/// Whether a thread that could not be loaded can be later, with nothing done here.
#[must_use]
pub fn may_pass(failed: Code) -> bool {
    matches!(failed, Code::DiskFull | Code::StoreUnavailable)
}

/// Decides how an owner ends that looked at its thread again.
#[must_use]
pub fn departure(looked: Result<(), Code>) -> Departure {
    match looked {
        Ok(()) => Departure::WakeLater,
        Err(Code::ThreadNotFound) => Departure::Gone,
        Err(Code::ThreadElsewhere) => Departure::StepDown,
        Err(failed) if may_pass(failed) => Departure::WakeLater,
        Err(_) => Departure::Stuck,
    }
}

/// Decides about a request without an answer: whether its node was reached, and whether the time for a take-over has passed.
#[must_use]
pub fn next_try(is_reached: bool, is_time_over: bool) -> NextTry {
    match (is_reached, is_time_over) {
        (true, _) => NextTry::MayBeTaken,
        (false, false) => NextTry::Again,
        (false, true) => NextTry::NothingTaken,
    }
}

// === impl Ownership ===

impl Ownership {
    /// Where no other process shares the store.
    pub(crate) fn of_one_process(is_ours: bool, epoch: u64) -> Self {
        Self { is_ours, is_owner_alive: false, has_stand_in: false, epoch }
    }
}
