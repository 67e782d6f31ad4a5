//! What happens when a client is gone before it has its answer.

use std::sync::Arc;

use trilogue_domain::{Code, Principal, RunId};

use super::State;

/// Cancels a run when it is dropped, unless it was disarmed or the server is stopping: our ending a connection is no disconnect of the client's.
#[derive(Debug)]
pub(super) struct CancelOnDrop(Option<Armed>);

#[derive(Debug)]
struct Armed {
    state: Arc<State>,
    by: Arc<Principal>,
    run: RunId,
}

// === impl CancelOnDrop ===

impl CancelOnDrop {
    pub(super) fn new(state: &Arc<State>, by: &Arc<Principal>, run: &RunId) -> Self {
        Self(Some(Armed { state: Arc::clone(state), by: Arc::clone(by), run: run.clone() }))
    }

    /// The client has what it waits for: the run is left alone from now on.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(Armed { state, by, run }) = self.0.take() else { return };
        if state.lifecycle.is_draining() || state.lifecycle.has_ended_streams() {
            return;
        }
        // Outside a runtime nothing runs that could be cancelled.
        let Ok(tasks) = tokio::runtime::Handle::try_current() else { return };
        tasks.spawn(async move {
            match state.runtime.cancel(&by, &run).await {
                Ok(_) => tracing::debug!(%run, "cancelled: its client has disconnected"),
                Err(error) if matches!(error.code(), Code::RunEnded | Code::RunNotFound) => {}
                Err(error) => tracing::warn!(%run, %error, "a run without a client goes on"),
            }
        });
    }
}
