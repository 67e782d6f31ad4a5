//! Withdraws an ask when the run's task stops waiting for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use trilogue_domain::{InterruptId, Resolution};

use super::SharedRun;
use crate::owner::Envelope;
use crate::turn::EmitError;
use trilogue_domain::lock;

/// An ask that waits for its answer.
#[derive(Debug)]
pub(super) struct WaitingAsk {
    pub(super) answer: oneshot::Sender<Resolution>,
    /// Whether a sub-agent asks it too: the run continues without the answer.
    pub(super) is_of_subagent: bool,
}

/// A pending ask. Dropping it before its answer withdraws it.
#[derive(Debug)]
pub(super) struct AskGuard {
    shared: Arc<SharedRun>,
    id: InterruptId,
}

// === impl AskGuard ===

impl AskGuard {
    pub(super) fn ask(
        shared: &Arc<SharedRun>,
        id: InterruptId,
        is_of_subagent: bool,
    ) -> Result<(oneshot::Receiver<Resolution>, Self), EmitError> {
        let (answer, answered) = oneshot::channel();
        let mut asks = lock(&shared.asks);
        // A run that is stopped meanwhile clears the waiting asks, and needs this lock for that.
        if shared.stopped.load(Ordering::Acquire) {
            return Err(EmitError::Stopped);
        }
        asks.insert(id.clone(), WaitingAsk { answer, is_of_subagent });
        drop(asks);
        Ok((answered, Self { shared: Arc::clone(shared), id }))
    }

    /// Disarms the guard: the owner refused the ask, so there is nothing to withdraw.
    pub(super) fn disarm(self) {
        lock(&self.shared.asks).remove(&self.id);
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        // An answered ask is not pending; nor is one whose run has ended.
        if lock(&self.shared.asks).remove(&self.id).is_none() {
            return;
        }
        let withdraw = Envelope::Withdraw { run: self.shared.key, interrupt: self.id.clone() };
        // `drop` cannot wait: if the queue is full, a task sends the withdrawal.
        let Err(TrySendError::Full(withdraw)) = self.shared.owner.try_send_small(withdraw) else {
            return;
        };
        // Without a Tokio runtime the server is stopping, and its asks end with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let owner = self.shared.owner.clone();
        // Fails only if the owner has left, and then no ask is open.
        runtime.spawn(async move { drop(owner.send(withdraw).await) });
    }
}
