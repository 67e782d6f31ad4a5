//! Finds out whether the other side is still there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::WebSocketOptions;

/// How often the clocks are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A wall clock that is ahead by this much since the last look means that this machine has slept. A corrected clock costs one ping.
const MIN_SLEEP: Duration = Duration::from_secs(10);

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
    due: Instant,
    /// How long the other side may be silent, if a ping was sent.
    silence: Option<Duration>,
    sleep: Option<SleepWatch>,
}

/// Notices that this machine has slept.
#[derive(Debug)]
struct SleepWatch {
    /// How long the other side may then be silent.
    timeout: Duration,
    /// The times of the last look. Only the wall clock runs while the machine sleeps.
    looked_at: (Instant, SystemTime),
}

/// What to do when the time of a [`PingSchedule`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PingStep {
    Wait,
    Send,
    /// The other side was silent for this long.
    GiveUp(Duration),
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
    pub(super) fn new(options: &WebSocketOptions) -> Self {
        Self::new_at(options, Instant::now(), SystemTime::now())
    }

    fn new_at(options: &WebSocketOptions, now: Instant, wall: SystemTime) -> Self {
        let (interval, timeout) = (options.ping_interval, options.pong_timeout);
        let looked_at = (now, wall);
        let sleep = options.wake_timeout.map(|timeout| SleepWatch { timeout, looked_at });
        Self { interval, timeout, due: now + interval, silence: None, sleep }
    }

    pub(super) fn next(&self) -> Instant {
        let look = self.sleep.as_ref().map(|sleep| sleep.looked_at.0 + LOOK_INTERVAL);
        look.map_or(self.due, |look| look.min(self.due))
    }

    /// Looks at what was received since the last step.
    pub(super) fn step(&mut self, received: &ReceiveState) -> PingStep {
        self.step_at(received, Instant::now(), SystemTime::now())
    }

    fn step_at(&mut self, received: &ReceiveState, now: Instant, wall: SystemTime) -> PingStep {
        let wake_timeout = self.sleep.as_mut().and_then(|sleep| sleep.look(now, wall));
        if wake_timeout.is_none() && now < self.due {
            return PingStep::Wait;
        }
        let has_received = received.take();
        if let Some(timeout) = wake_timeout {
            // What arrived before the sleep shows nothing.
            self.silence = Some(timeout);
            self.due = now + timeout;
            return PingStep::Send;
        }
        let step = match (has_received, self.silence.take()) {
            (true, _) => PingStep::Wait,
            (false, None) => PingStep::Send,
            (false, Some(silence)) => PingStep::GiveUp(silence),
        };
        self.due = now + self.interval;
        if step == PingStep::Send {
            self.silence = Some(self.interval + self.timeout);
            self.due = now + self.timeout;
        }
        step
    }
}

// === impl SleepWatch ===

impl SleepWatch {
    /// Returns how long the other side may be silent if this machine has slept since the last look.
    fn look(&mut self, now: Instant, wall: SystemTime) -> Option<Duration> {
        let (last, last_wall) = std::mem::replace(&mut self.looked_at, (now, wall));
        // A wall clock that was set back tells nothing.
        let passed = wall.duration_since(last_wall).unwrap_or_default();
        let has_slept = passed.saturating_sub(now.duration_since(last)) >= MIN_SLEEP;
        has_slept.then_some(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(20);
    const PONG: Duration = Duration::from_secs(5);
    const WAKE: Duration = Duration::from_secs(3);
    const HOUR: Duration = Duration::from_secs(3_600);

    /// A schedule and two clocks, of which only the wall clock runs in a sleep.
    struct Clocks {
        schedule: PingSchedule,
        now: Instant,
        wall: SystemTime,
    }

    impl Clocks {
        fn start(wake_timeout: Option<Duration>) -> Self {
            let (now, wall) = (Instant::now(), SystemTime::now());
            let options = WebSocketOptions {
                ping_interval: INTERVAL,
                pong_timeout: PONG,
                wake_timeout,
                ..WebSocketOptions::default()
            };
            Self { schedule: PingSchedule::new_at(&options, now, wall), now, wall }
        }

        /// Waits for the next step, and returns how long that took too.
        fn step(&mut self, received: &ReceiveState) -> (Duration, PingStep) {
            let passed = self.schedule.next().duration_since(self.now);
            (self.now, self.wall) = (self.now + passed, self.wall + passed);
            (passed, self.schedule.step_at(received, self.now, self.wall))
        }

        /// Repeats steps until one does something or this time has passed.
        fn wait(&mut self, received: &ReceiveState, most: Duration) -> (Duration, PingStep) {
            let mut total = Duration::ZERO;
            loop {
                let (passed, step) = self.step(received);
                total += passed;
                if step != PingStep::Wait || total >= most {
                    return (total, step);
                }
            }
        }
    }

    #[test]
    fn only_a_side_that_does_not_answer_a_ping_is_given_up() {
        let received = ReceiveState::default();
        let mut clocks = Clocks::start(None);
        received.note_message();
        assert_eq!(clocks.step(&received), (INTERVAL, PingStep::Wait));
        assert_eq!(clocks.step(&received), (INTERVAL, PingStep::Send));
        // The pong.
        received.note_message();
        assert_eq!(clocks.step(&received), (PONG, PingStep::Wait));
        assert_eq!(clocks.step(&received), (INTERVAL, PingStep::Send));
        // What arrives now cannot be seen.
        received.set_blocked(true);
        assert_eq!(clocks.step(&received), (PONG, PingStep::Wait));
        received.set_blocked(false);
        assert_eq!(clocks.step(&received), (INTERVAL, PingStep::Send));
        assert_eq!(clocks.step(&received), (PONG, PingStep::GiveUp(INTERVAL + PONG)));
    }

    #[test]
    fn after_a_sleep_the_other_side_has_little_time() {
        let received = ReceiveState::default();
        let mut clocks = Clocks::start(Some(WAKE));
        // This arrived before the sleep.
        received.note_message();
        clocks.wall += HOUR;
        assert_eq!(clocks.step(&received), (LOOK_INTERVAL, PingStep::Send));
        // The pong.
        received.note_message();
        assert_eq!(clocks.wait(&received, WAKE), (WAKE, PingStep::Wait));
        clocks.wall += HOUR;
        assert_eq!(clocks.step(&received), (LOOK_INTERVAL, PingStep::Send));
        assert_eq!(clocks.wait(&received, HOUR), (WAKE, PingStep::GiveUp(WAKE)));
    }

    #[test]
    fn a_sleep_while_a_pong_is_awaited_asks_again() {
        let received = ReceiveState::default();
        let mut clocks = Clocks::start(Some(WAKE));
        assert_eq!(clocks.wait(&received, HOUR), (INTERVAL, PingStep::Send));
        clocks.wall += HOUR;
        assert_eq!(clocks.step(&received), (LOOK_INTERVAL, PingStep::Send));
        assert_eq!(clocks.wait(&received, HOUR), (WAKE, PingStep::GiveUp(WAKE)));
    }

    #[test]
    fn a_clock_that_is_set_back_or_a_busy_machine_is_no_sleep() {
        let received = ReceiveState::default();
        let mut clocks = Clocks::start(Some(WAKE));
        clocks.wall -= HOUR;
        assert_eq!(clocks.step(&received), (LOOK_INTERVAL, PingStep::Wait));
        // Both clocks ran, but no step came.
        let late = INTERVAL / 2;
        (clocks.now, clocks.wall) = (clocks.now + late, clocks.wall + late);
        let step = clocks.schedule.step_at(&received, clocks.now, clocks.wall);
        assert_eq!(step, PingStep::Wait);
    }
}
