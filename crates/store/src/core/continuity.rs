use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Error, Result};

use super::damaged;
use crate::record::Frame;

/// Checks that run numbers have no holes: a run is removed whole.
#[derive(Debug)]
pub(crate) struct RunContinuity {
    thread: ThreadKey,
    after: u64,
    next: Option<u64>,
}

// === impl RunContinuity ===

impl RunContinuity {
    /// Starts a check of a run's frames after this run number.
    pub(crate) fn new(thread: ThreadKey, after: u64) -> Self {
        Self { thread, after, next: None }
    }

    /// Checks the next frame.
    pub(crate) fn pass(&mut self, frame: &Frame) -> Result<()> {
        let fits = match self.next {
            None => frame.first_run() <= self.after.saturating_add(1),
            Some(next) => frame.first_run() == next,
        };
        self.next = Some(frame.last_run().saturating_add(1));
        if fits { Ok(()) } else { Err(hole(self.thread, frame.first())) }
    }
}

/// The error for numbers that are in no frame and in no gap.
pub(crate) fn hole(thread: ThreadKey, number: u64) -> Error {
    damaged(format!("the log of thread {thread} has a hole at number {number}"))
}
