//! The pauses between attempts to connect again.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The pause before the second attempt. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Attempts until a deadline.
#[derive(Debug)]
pub(super) struct Pauses {
    end: Instant,
    next: Duration,
}

// === impl Pauses ===

impl Pauses {
    /// Attempts for this long from now.
    pub(super) fn within(limit: Duration) -> Self {
        Self { end: Instant::now() + limit, next: FIRST_PAUSE }
    }

    /// Waits before the next attempt. Returns `false` at the end of the time.
    pub(super) async fn pause(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.end {
            return false;
        }
        sleep_until(self.end.min(now + self.next)).await;
        self.next = (self.next * 2).min(MAX_PAUSE);
        true
    }
}
