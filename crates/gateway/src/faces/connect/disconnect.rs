//! Handles clients that disconnect before they have their response.

use std::sync::Arc;

use trilogue_domain::{Code, Principal, RunId};

use super::State;

/// Cancels a run when dropped, unless it was disarmed or the server is stopping: the server's own end of a connection is not a client's disconnect.
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

    /// Disarms the guard: the client has its response, so the run continues.
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
        // Without a Tokio runtime, no run is active.
        let Ok(tasks) = tokio::runtime::Handle::try_current() else { return };
        tasks.spawn(async move {
            match state.runtime.cancel(&by, &run).await {
                Ok(_) => tracing::debug!(%run, "cancelled: its client has disconnected"),
                Err(error) if matches!(error.code(), Code::RunEnded | Code::RunNotFound) => {}
                Err(error) => {
                    tracing::warn!(%run, %error, "a run without a client could not be cancelled");
                }
            }
        });
    }
}
