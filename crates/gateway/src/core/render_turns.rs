//! Turns for work that keeps a processor busy: few at once, fewer of one principal, and beside the tasks that serve connections.

use std::num::NonZero;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trilogue_domain::{Principal, lock};
use trilogue_runtime::shares::{HeldShare, Shares};
use trilogue_runtime::work_in_place;

/// The turns of all principals.
#[derive(Debug)]
pub(crate) struct RenderTurns {
    shares: Arc<Shares>,
    processors: Arc<Semaphore>,
}

/// One turn. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldTurn {
    _share: HeldShare,
    _processor: Option<OwnedSemaphorePermit>,
}

/// The turn of one request to render a large response, once it has one.
#[derive(Clone, Debug)]
pub(crate) struct RequestTurn {
    turns: Arc<RenderTurns>,
    held: Arc<Mutex<Option<HeldTurn>>>,
}

// === impl RenderTurns ===

impl RenderTurns {
    /// One principal has at most `max_each` turns at once; all together have one for each processor, and at least two.
    pub(crate) fn new(max_each: usize) -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(2, NonZero::get).max(2);
        Arc::new(Self {
            shares: Shares::new(max_each),
            processors: Arc::new(Semaphore::new(processors)),
        })
    }

    /// Waits for a turn of this principal.
    pub(crate) async fn wait(&self, principal: &Principal) -> HeldTurn {
        let share = self.shares.wait(principal).await;
        // The semaphore is never closed.
        let processor = Arc::clone(&self.processors).acquire_owned().await.ok();
        HeldTurn { _share: share, _processor: processor }
    }
}

// === impl RequestTurn ===

impl RequestTurn {
    pub(crate) fn new(turns: &Arc<RenderTurns>) -> Self {
        Self { turns: Arc::clone(turns), held: Arc::default() }
    }

    /// Waits for the turn, unless the request has it.
    pub(crate) async fn wait(&self, principal: &Principal) {
        if !self.is_held() {
            let turn = self.turns.wait(principal).await;
            *lock(&self.held) = Some(turn);
        }
    }

    pub(crate) fn end(&self) {
        // Dropping the turn gives it to the next request.
        drop(lock(&self.held).take());
    }

    /// Does the work of a turn, beside other tasks if the request has one.
    pub(crate) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.is_held() { work_in_place(work) } else { work() }
    }

    fn is_held(&self) -> bool {
        lock(&self.held).is_some()
    }
}
