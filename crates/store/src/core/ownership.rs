//! Decides which node may continue a thread: pure functions of what the nodes that share a store know.
//!
//! A thread has an owner and an epoch. Appends compare the epoch and the last number with the thread's head, so that a replaced node writes nothing.
//! The database decides whether a node is alive, in the statement that looks the node up. The nodes' signs of life also measure how long the database can be reached. A node that is silent for a certain length of that time is dead: see [`counted_gap`].

use std::time::Duration;

use trilogue_domain::error::Code;

/// What a node finds about the owner of a requested thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Whether this node owns it. A thread that was handed over to this node is taken over first.
    pub is_ours: bool,
    /// Whether another node that owns it is alive.
    pub is_owner_alive: bool,
    /// Whether this node drains and another one takes threads.
    pub has_stand_in: bool,
    pub epoch: u64,
}

/// What a node may do with a requested thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquisition {
    /// It owns the thread.
    Keep,
    /// It becomes the owner, in this epoch.
    TakeOver { epoch: u64 },
    /// A live node owns the thread: the request belongs there.
    Elsewhere,
    /// It gives the thread up if it owns it: the request belongs to the node that takes over.
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

/// An append that did not match the end of its thread's log, or that is to be compared with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendAttempt {
    pub epoch: u64,
    /// The last number that its writer knows.
    pub expected_last: u64,
    /// The last number of the log after this append.
    pub last: u64,
    /// The stamp of this append: unique, and the same for all its tries.
    pub stamp: i64,
    /// Whether it makes its thread.
    pub creates: bool,
    /// Whether it removes its thread.
    pub removes: bool,
    /// Whether an earlier try may have been stored because its connection broke before the answer.
    pub is_again: bool,
}

/// What became of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendVerdict {
    /// It continues the log.
    Fits,
    /// An earlier try was stored.
    Stored,
    /// Another writer was faster. Nothing of the append is stored.
    Late,
    /// The log has grown, and may contain an earlier try. Its frames decide, see [`verdict_of_frames`].
    Uncertain,
}

/// How an owner ends after a failed append, after it has read its thread's row again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerExit {
    /// Waiting work is checked again later, because no request may arrive that wakes it.
    WakeLater,
    /// The thread does not exist.
    Gone,
    /// Another node owns the thread now. It is not taken back.
    StepDown,
    /// The thread stays as it is until an operator has repaired the store.
    Stuck,
}

/// What happens to a request that was sent to the owner of its thread and got no response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextTry {
    /// It is tried again: another node may take the thread over meanwhile.
    Again,
    /// It fails. The owner did not accept it.
    NothingTaken,
    /// It fails and is not sent again: the owner may have accepted it.
    MayBeTaken,
}

/// The part of the time between two signs of life, of any nodes, during which the database counts as reachable: at most one heartbeat.
/// In a longer gap no node reached the database, so the gap makes no node look dead. The same holds for a clock that was set; `None` says that it went back.
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

/// Compares an append with the end of its thread's log. `end` is `None` if the thread does not exist.
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
    // The end never moves back: a stored append has moved it at least to the append's last number.
    if append.is_again && end.last >= append.last {
        AppendVerdict::Uncertain
    } else {
        AppendVerdict::Late
    }
}

/// Decides about an append by the frame that has its first number. `is_own` says whether the append wrote that frame, `None` if the frame does not exist.
#[must_use]
pub fn verdict_of_frames(is_own: Option<bool>) -> AppendVerdict {
    match is_own {
        Some(true) => AppendVerdict::Stored,
        Some(false) => AppendVerdict::Late,
        None => AppendVerdict::Uncertain,
    }
}

/// Whether an owner reads its thread's row again after an append that failed with this code.
#[must_use]
pub fn may_look_again(failed: Code) -> bool {
    !matches!(failed, Code::StoreReadOnly | Code::StoreCorrupt | Code::ThreadQuarantined)
}

/// Whether loading a thread can succeed later, without any action here.
#[must_use]
pub fn may_pass(failed: Code) -> bool {
    matches!(failed, Code::DiskFull | Code::StoreUnavailable)
}

/// Decides how an owner ends, from the outcome of reading its thread's row again.
#[must_use]
pub fn owner_exit(looked: Result<(), Code>) -> OwnerExit {
    match looked {
        Ok(()) => OwnerExit::WakeLater,
        Err(Code::ThreadNotFound) => OwnerExit::Gone,
        Err(Code::ThreadElsewhere) => OwnerExit::StepDown,
        Err(failed) if may_pass(failed) => OwnerExit::WakeLater,
        Err(_) => OwnerExit::Stuck,
    }
}

/// Decides about a request that got no response: from whether its node was reached, and whether the time for a take-over has passed.
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
