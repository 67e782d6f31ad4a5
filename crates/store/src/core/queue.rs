//! The rules of the queue: how an item changes when it is offered, claimed, finished, retried or given up.
//!
//! ```text
//! offered ─▶ free ─claim─▶ held ─finish─▶ removed
//!    ▲        ▲             │ │
//!    │        └──retry at───┘ └──give up──▶ dead ─revive─▶ free
//!    └── in line: blocked until it is the first of its run
//! ```
//!
//! An offer under the key of an item that is in line and held does not replace it. The offer waits as `next` until the worker is done or its lease ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use trilogue_domain::{RunKey, Timestamp};

use crate::core::table::{Column, columns};
use crate::rows::{Claim, QueueItem, QueueKind, RetryDecision};

const MAX_ERROR_BYTES: usize = 4 * 1024;
/// The `free_at` of an item that cannot be claimed.
pub(crate) const BLOCKED: i64 = i64::MAX;

/// An item with its state in the queue. An engine stores it whole.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct QueueEntry {
    pub(crate) item: QueueItem,
    /// The run that its reference names: it is removed with that run.
    pub(crate) about: Option<RunKey>,
    /// The run in whose line the item is, and its position in the line.
    pub(crate) line: Option<(RunKey, u64)>,
    /// The item offered under the same key while a worker held this one.
    pub(crate) next: Option<QueueItem>,
    /// When it can be claimed: when it falls due, or when its lease ends. `None` for a dead item, and for one that waits for another of its line.
    pub(crate) free_at: Option<Timestamp>,
    /// Grows whenever a holder loses it.
    pub(crate) fence: u64,
    pub(crate) attempts: u32,
    pub(crate) is_held: bool,
    pub(crate) is_dead: bool,
    pub(crate) error: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FinishOutcome {
    Removed,
    /// The item that was offered meanwhile has replaced it.
    Replaced,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineChange {
    /// No longer free.
    pub(crate) blocked: Option<i64>,
    /// Free when it falls due.
    pub(crate) freed: Option<i64>,
}

/// Wakes workers that wait for an item.
#[derive(Debug, Default)]
pub(crate) struct QueueSignal(pub(crate) Arc<Notify>);

/// Frees the first live item of a line, unless another is held. `free` is the id of the free one and whether it is held.
pub(crate) fn settle_line(free: Option<(i64, bool)>, first: Option<i64>) -> Option<LineChange> {
    let blocked = match free {
        Some((_, true)) => return None,
        free => free.map(|(id, _)| id),
    };
    (blocked != first).then_some(LineChange { blocked, freed: first })
}

// === impl QueueSignal ===

impl QueueSignal {
    pub(crate) fn wake(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }
}

// === impl QueueEntry ===

impl QueueEntry {
    /// Adds an item, or replaces the one under its key. A worker that holds the old one loses it.
    pub(crate) fn offer(old: Option<Self>, item: QueueItem) -> Self {
        let Some(mut old) = old else { return Self::new(item) };
        let mut entry = Self::new(item);
        if entry.line.is_some() && old.line.is_some() && !old.is_dead {
            if old.is_held {
                old.next = Some(entry.item);
                return old;
            }
            if old.attempts > 0 {
                // A newer item does not shorten the back-off of an unreachable receiver.
                entry.attempts = old.attempts;
                entry.item.due = entry.item.due.max(old.item.due);
            }
        }
        entry.fence = old.fence + 1;
        entry
    }

    /// The columns after those of its item, without the encoded `next`: `free_at, fence, attempts, held, dead, error, run, place, about`.
    pub(crate) fn state_columns(&self) -> [Column<'_>; 9] {
        let (run, place) = self.line.unzip();
        columns![
            self.free_at.map_or(BLOCKED, Timestamp::as_micros),
            self.fence,
            self.attempts,
            self.is_held,
            self.is_dead,
            &self.error,
            run,
            place.unwrap_or(0),
            self.about,
        ]
    }

    /// Moves its times back by this much, because the clock was set back.
    pub(crate) fn bring_forward(&mut self, by: Duration) {
        self.free_at = self.free_at.map(|at| at.before(by));
        self.item.due = self.item.due.before(by);
        if let Some(next) = &mut self.next {
            next.due = next.due.before(by);
        }
    }

    pub(crate) fn is_free(&self, now: Timestamp) -> bool {
        self.free_at.is_some_and(|at| at <= now)
    }

    /// Replaces an item whose lease has ended with the one that was offered meanwhile. Returns `false` if there was no offer.
    ///
    /// Check whether it is free before you claim it: it may wait for another of its line.
    pub(crate) fn expire(&mut self) -> bool {
        let Some(next) = self.next.take() else { return false };
        self.replace(next, self.item.due);
        true
    }

    pub(crate) fn claim(&mut self, id: i64, lease_until: Timestamp) -> Claim {
        self.fence += 1;
        self.attempts = self.attempts.saturating_add(1);
        self.is_held = true;
        self.free_at = Some(lease_until);
        Claim { id, fence: self.fence, attempts: self.attempts, item: self.item.clone() }
    }

    pub(crate) fn is_held_by(&self, claim: &Claim) -> bool {
        self.is_held && !self.is_dead && self.fence == claim.fence
    }

    pub(crate) fn finish(&mut self) -> FinishOutcome {
        let Some(next) = self.next.take() else { return FinishOutcome::Removed };
        self.attempts = 0;
        let due = next.due;
        self.replace(next, due);
        FinishOutcome::Replaced
    }

    pub(crate) fn abandon(&mut self, how: &RetryDecision, error: &str) {
        if matches!(how, RetryDecision::Postpone(_)) {
            self.attempts = self.attempts.saturating_sub(1);
        }
        match (how, self.next.take()) {
            (RetryDecision::RetryAt(at) | RetryDecision::Postpone(at), Some(next)) => {
                self.replace(next, *at);
            }
            (RetryDecision::Dead, Some(next)) => {
                self.attempts = 0;
                let due = next.due;
                self.replace(next, due);
            }
            (RetryDecision::RetryAt(at) | RetryDecision::Postpone(at), None) => {
                self.release(error);
                self.item.due = *at;
                self.free_at = Some(*at);
            }
            (RetryDecision::Dead, None) => {
                self.release(error);
                self.is_dead = true;
                self.free_at = None;
            }
        }
    }

    pub(crate) fn revive(&mut self, now: Timestamp) {
        let item = QueueItem { due: now, ..self.item.clone() };
        *self = Self { fence: self.fence + 1, ..Self::new(item) };
    }

    fn new(item: QueueItem) -> Self {
        let (about, line) = item.run_and_line();
        let free_at = line.is_none().then_some(item.due);
        Self {
            item,
            about,
            line,
            next: None,
            free_at,
            fence: 0,
            attempts: 0,
            is_held: false,
            is_dead: false,
            error: String::new(),
        }
    }

    /// Puts another item in its place, due at its own time but not before `at`.
    fn replace(&mut self, next: QueueItem, at: Timestamp) {
        let next = QueueItem { due: next.due.max(at), ..next };
        *self = Self { fence: self.fence + 1, attempts: self.attempts, ..Self::new(next) };
    }

    fn release(&mut self, error: &str) {
        self.is_held = false;
        self.fence += 1;
        error
            .get(..error.floor_char_boundary(MAX_ERROR_BYTES))
            .unwrap_or_default()
            .clone_into(&mut self.error);
    }
}

// === impl QueueItem ===

impl QueueItem {
    /// The run that its reference names; and the run in whose line it is, with its position there. Only the first of a line can be claimed, so that a run's callbacks are delivered in order.
    /// A callback is in line if its reference has the run's key as `run` and the number of an event as `number`.
    pub(crate) fn run_and_line(&self) -> (Option<RunKey>, Option<(RunKey, u64)>) {
        let reference = self.reference.to_value();
        let run = reference.get("run").and_then(serde_json::Value::as_i64).map(RunKey);
        let number = reference.get("number").and_then(serde_json::Value::as_u64);
        let line = run.zip(number).filter(|_| self.kind == QueueKind::Callback);
        (run, line)
    }
}
