//! A question that a run's task waits for: given up with whoever waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use trilogue_domain::{InterruptId, Resolution};

use super::SharedRun;
use crate::owner::Envelope;
use crate::turn::EmitError;
use trilogue_domain::lock;

/// A question that is asked. Dropping it before its answer withdraws it.
#[derive(Debug)]
pub(super) struct AskGuard {
    shared: Arc<SharedRun>,
    id: InterruptId,
}

// === impl AskGuard ===

impl AskGuard {
    /// Waits for the answer from now on.
    pub(super) fn ask(
        shared: &Arc<SharedRun>,
        id: InterruptId,
    ) -> Result<(oneshot::Receiver<Resolution>, Self), EmitError> {
        let (answer, answered) = oneshot::channel();
        let mut asks = lock(&shared.asks);
        // A run that is stopped meanwhile clears what waits, and waits for this lock to do so.
        if shared.stopped.load(Ordering::Acquire) {
            return Err(EmitError::Stopped);
        }
        asks.insert(id.clone(), answer);
        drop(asks);
        Ok((answered, Self { shared: Arc::clone(shared), id }))
    }

    /// It is not asked at all.
    pub(super) fn was_refused(self) {
        lock(&self.shared.asks).remove(&self.id);
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        // One that was answered, or whose run has ended, does not wait any more.
        if lock(&self.shared.asks).remove(&self.id).is_none() {
            return;
        }
        let withdraw = Envelope::Withdraw { run: self.shared.key, interrupt: self.id.clone() };
        let Err(TrySendError::Full(withdraw)) = self.shared.owner.try_send(withdraw) else {
            return;
        };
        // Without a runtime the server goes down, and its questions with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let owner = self.shared.owner.clone();
        runtime.spawn(async move { drop(owner.send(withdraw).await) });
    }
}
