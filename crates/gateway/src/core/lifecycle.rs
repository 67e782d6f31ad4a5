//! The server's phase between start and stop.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;
use trilogue_domain::{Code, Error, Timestamp};

/// The server's phase between start and stop.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    pub(crate) started_at: Timestamp,
    draining: AtomicBool,
    streams_end: CancellationToken,
}

// === impl Lifecycle ===

impl Lifecycle {
    pub(crate) fn begin(started_at: Timestamp) -> Self {
        Self { started_at, draining: AtomicBool::new(false), streams_end: CancellationToken::new() }
    }

    /// Stops the server from accepting work.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn end_streams(&self) {
        self.streams_end.cancel();
    }

    pub(crate) fn has_ended_streams(&self) -> bool {
        self.streams_end.is_cancelled()
    }

    /// Returns the token that is cancelled when event streams end.
    pub(crate) fn streams_end(&self) -> CancellationToken {
        self.streams_end.clone()
    }

    pub(crate) async fn streams_ended(&self) {
        self.streams_end.cancelled().await;
    }
}

pub(crate) fn shutting_down() -> Error {
    Error::new(Code::ShuttingDown, "the server is shutting down")
}
