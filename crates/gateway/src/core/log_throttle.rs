//! Limits log lines about frequent events to one a minute.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use trilogue_domain::lock;

const LOG_EVERY: Duration = Duration::from_secs(60);

/// Counts events and decides when to log them.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle(Mutex<UnloggedEvents>);

/// The events that no log line has mentioned.
#[derive(Debug, Default)]
struct UnloggedEvents {
    events: u64,
    mentioned_at: Option<Instant>,
}

// === impl LogThrottle ===

impl LogThrottle {
    /// Counts one event. If a log line is due, returns how many events it must mention.
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
