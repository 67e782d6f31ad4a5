//! Finds out whether the other side is still there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// What the reading half reports to the half that sends pings.
#[derive(Debug, Default)]
pub(super) struct ReceiveState {
    /// Whether a message has arrived since the last look.
    is_new: AtomicBool,
    /// Whether the reading half waits for room, so that it cannot see what arrives.
    is_blocked: AtomicBool,
}

/// When to send the next ping, or to give up.
#[derive(Debug)]
pub(super) struct PingSchedule {
    interval: Duration,
    timeout: Duration,
    next: Instant,
    has_sent: bool,
}

/// What to do when the time of a [`PingSchedule`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PingStep {
    Wait,
    Send,
    GiveUp,
}

// === impl ReceiveState ===

impl ReceiveState {
    pub(super) fn note_message(&self) {
        self.is_new.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Whether something has arrived since the last look, or may have.
    fn take(&self) -> bool {
        let is_new = self.is_new.swap(false, Ordering::Relaxed);
        is_new || self.is_blocked.load(Ordering::Relaxed)
    }
}

// === impl PingSchedule ===

impl PingSchedule {
    pub(super) fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout, next: Instant::now() + interval, has_sent: false }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Looks at what was received since the last step.
    pub(super) fn step(&mut self, received: &ReceiveState) -> PingStep {
        let now = Instant::now();
        let step = match (received.take(), self.has_sent) {
            (true, _) => PingStep::Wait,
            (false, false) => PingStep::Send,
            (false, true) => PingStep::GiveUp,
        };
        self.has_sent = step == PingStep::Send;
        self.next = now + if self.has_sent { self.timeout } else { self.interval };
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_side_that_does_not_answer_a_ping_is_given_up() {
        let received = ReceiveState::default();
        let (interval, timeout) = (Duration::from_secs(20), Duration::from_secs(5));
        let mut schedule = PingSchedule::new(interval, timeout);
        let begin = Instant::now();
        assert_eq!(schedule.next(), begin + interval);
        received.note_message();
        assert_eq!(schedule.step(&received), PingStep::Wait);
        assert_eq!(schedule.step(&received), PingStep::Send);
        assert_eq!(schedule.next(), begin + timeout);
        // The pong.
        received.note_message();
        assert_eq!(schedule.step(&received), PingStep::Wait);
        assert_eq!(schedule.step(&received), PingStep::Send);
        // What arrives now cannot be seen.
        received.set_blocked(true);
        assert_eq!(schedule.step(&received), PingStep::Wait);
        received.set_blocked(false);
        assert_eq!(schedule.step(&received), PingStep::Send);
        assert_eq!(schedule.step(&received), PingStep::GiveUp);
    }
}
