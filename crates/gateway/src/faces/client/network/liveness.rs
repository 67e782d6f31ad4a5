//! Whether a client is still there: it must show so after each ping.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

/// No ping is unanswered.
const NONE: u64 = 0;

/// The pings that a client has not answered.
#[derive(Debug)]
pub(super) struct Liveness {
    began: Instant,
    /// Milliseconds after `began` at which the first unanswered ping was sent, or [`NONE`].
    pinged_ms: AtomicU64,
    timeout: Duration,
}

// === impl Liveness ===

impl Liveness {
    pub(super) fn begin(timeout: Duration) -> Self {
        Self { began: Instant::now(), pinged_ms: AtomicU64::new(NONE), timeout }
    }

    /// Records that a ping was sent.
    pub(super) fn on_ping_sent(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        // The limit begins with the first ping that nothing has followed.
        let _ = self.pinged_ms.compare_exchange(NONE, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Records that the client has sent something.
    pub(super) fn on_received(&self) {
        self.pinged_ms.store(NONE, Ordering::Relaxed);
    }

    /// Completes when a ping has been unanswered for too long.
    pub(super) async fn expired(&self) {
        loop {
            match self.pinged_ms.load(Ordering::Relaxed) {
                NONE => sleep(self.timeout).await,
                pinged => {
                    let end = self.began + Duration::from_millis(pinged) + self.timeout;
                    if Instant::now() >= end {
                        return;
                    }
                    sleep_until(end).await;
                }
            }
        }
    }
}
