//! What happens when a client is gone before it has its answer.

use std::sync::Arc;

use trilogue_domain::{Code, Principal, RunId};

use super::call::Call;
use crate::shared::Shared;

/// Cancels a run when it is dropped, unless it was disarmed or the server is stopping: our ending a connection is no disconnect of the client's.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Option<Armed>);

#[derive(Debug)]
struct Armed {
    shared: Arc<Shared>,
    by: Arc<Principal>,
    run: RunId,
}

// === impl CancelOnDrop ===

impl CancelOnDrop {
    /// A guard for a run of the caller's.
    pub(crate) fn new(call: &Call, run: &RunId) -> Self {
        Self(Some(Armed {
            shared: Arc::clone(&call.shared),
            by: Arc::clone(&call.caller.principal),
            run: run.clone(),
        }))
    }

    /// The same for a run of this principal's.
    pub(crate) fn of(shared: &Arc<Shared>, by: &Arc<Principal>, run: &RunId) -> Self {
        Self(Some(Armed { shared: Arc::clone(shared), by: Arc::clone(by), run: run.clone() }))
    }

    /// The client has what it waits for: the run is left alone from now on.
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(Armed { shared, by, run }) = self.0.take() else { return };
        if shared.is_draining() || shared.streams_end.is_cancelled() {
            return;
        }
        // Outside a runtime nothing runs that could be cancelled.
        let Ok(tasks) = tokio::runtime::Handle::try_current() else { return };
        tasks.spawn(async move {
            match shared.runtime().cancel(&by, &run).await {
                Ok(_) => tracing::debug!(%run, "cancelled: its client has disconnected"),
                Err(error) if matches!(error.code(), Code::RunEnded | Code::RunNotFound) => {}
                Err(error) => tracing::warn!(%run, %error, "a run without a client goes on"),
            }
        });
    }
}
