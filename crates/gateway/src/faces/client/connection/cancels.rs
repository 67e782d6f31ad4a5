//! Counts how often a session was cancelled, so that a prompt knows whether a cancellation came after it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Counts the cancellations of a session. A cancellation concerns the prompts that arrived before it.
#[derive(Debug)]
pub(crate) struct SessionCancels(watch::Sender<Counts>);

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requested: u64,
    /// The last cancellation whose runs have all been cancelled.
    finished: u64,
    /// Whether a task is cancelling runs.
    is_running: bool,
}

/// A moment in a session: the arrival of a prompt.
#[derive(Clone, Debug)]
pub(crate) struct CancelMark {
    pub(crate) cancels: Arc<SessionCancels>,
    /// How often the session had been cancelled.
    pub(crate) count: u64,
    /// Cancelled when the client cancels this prompt alone.
    pub(crate) token: CancellationToken,
}

// === impl SessionCancels ===

impl SessionCancels {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Counts::default()))
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.borrow().requested
    }

    /// Counts a cancellation. Returns `true` if the caller must cancel the runs because no task is doing so.
    pub(crate) fn request(&self) -> bool {
        let mut must_run = false;
        self.0.send_modify(|counts| {
            counts.requested += 1;
            must_run = !std::mem::replace(&mut counts.is_running, true);
        });
        must_run
    }

    /// Marks the runs of cancellation `count` as cancelled. Returns `false` if another cancellation arrived meanwhile, which the caller must serve too.
    pub(crate) fn finish(&self, count: u64) -> bool {
        let mut is_last = false;
        self.0.send_modify(|counts| {
            counts.finished = count;
            is_last = counts.requested == count;
            counts.is_running = !is_last;
        });
        is_last
    }

    /// Waits until the runs of cancellation `count` are cancelled.
    pub(crate) async fn finished(&self, count: u64) {
        let mut changes = self.0.subscribe();
        // The sender is `self`, so the channel stays open.
        drop(changes.wait_for(|now| now.finished >= count).await);
    }

    pub(crate) async fn requested_after(&self, count: u64) {
        let mut changes = self.0.subscribe();
        // The sender is `self`, so the channel stays open.
        drop(changes.wait_for(|now| now.requested != count).await);
    }
}

// === impl CancelMark ===

impl CancelMark {
    /// Whether the client has cancelled the prompt or its session since this mark.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.token.is_cancelled() || self.cancels.count() != self.count
    }
}
