//! One log line a minute for what can happen thousands of times a second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use trilogue_domain::lock;

const LOG_EVERY: Duration = Duration::from_secs(60);

/// Counts events, and says when the log should mention them.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<Unmentioned>);

/// What the log has not said yet.
#[derive(Debug, Default)]
struct Unmentioned {
    events: u64,
    mentioned_at: Option<Instant>,
}

// === impl LogThrottle ===

impl LogThrottle {
    /// Counts one more event. Returns how many the log has not mentioned when it is time to.
    pub(crate) fn count(&self) -> Option<u64> {
        self.count_at(Instant::now())
    }

    fn count_at(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.0);
        state.events += 1;
        if state.mentioned_at.is_some_and(|at| now.duration_since(at) < LOG_EVERY) {
            return None;
        }
        state.mentioned_at = Some(now);
        Some(std::mem::take(&mut state.events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_mentions_events_once_a_minute() {
        let throttle = LogThrottle::default();
        let begun = Instant::now();
        let after = |seconds| throttle.count_at(begun + Duration::from_secs(seconds));
        assert_eq!(after(0), Some(1));
        assert_eq!((after(1), after(59)), (None, None));
        assert_eq!(after(60), Some(3));
        assert_eq!(after(61), None);
    }
}
