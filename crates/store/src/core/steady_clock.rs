//! The machine's clock without its jumps. After a jump, the time advances by the machine's counter until the new time has lasted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{Timestamp, lock};

/// A smaller difference is an adjustment of the clock and is followed at once.
const JUMP: Duration = Duration::from_secs(2);
/// How long a jump must last before its time counts as right. Until then it deletes and starts nothing.
const SETTLE_TIME: Duration = Duration::from_secs(30);

/// Two readings of the machine: its clock, and its monotonic counter.
pub(crate) trait ClockReadings: Send + Sync + std::fmt::Debug {
    /// Microseconds since the epoch.
    fn wall(&self) -> i64;
    /// Microseconds since some moment in this process.
    fn elapsed(&self) -> i64;
}

#[derive(Debug)]
pub(crate) struct MachineReadings(Instant);

/// A clock that follows adjustments at once, and jumps only after [`SETTLE_TIME`].
#[derive(Debug)]
pub(crate) struct SteadyClock<R = MachineReadings> {
    readings: R,
    /// The clock's distance from the counter, in microseconds.
    offset: AtomicI64,
    /// Whether a jump is being observed. If not, no lock is taken.
    is_apart: AtomicBool,
    jump: Mutex<Option<ClockJump>>,
}

#[derive(Clone, Copy, Debug)]
struct ClockJump {
    offset: i64,
    /// When the jump was first seen, by the counter.
    since: i64,
}

// === impl ClockReadings ===

impl ClockReadings for MachineReadings {
    fn wall(&self) -> i64 {
        SystemClock.now().as_micros()
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

// === impl SteadyClock ===

impl SteadyClock {
    pub(crate) fn system() -> Self {
        Self::new(MachineReadings(Instant::now()))
    }
}

impl<R: ClockReadings> SteadyClock<R> {
    pub(crate) fn new(readings: R) -> Self {
        let offset = AtomicI64::new(readings.wall() - readings.elapsed());
        Self { readings, offset, is_apart: AtomicBool::new(false), jump: Mutex::default() }
    }

    /// Notes a clock that is apart from the counter. The time continues from before.
    fn note_jump(&self, offset: i64, elapsed: i64) -> Timestamp {
        let mut jump = lock(&self.jump);
        let before = self.offset.load(Ordering::Relaxed);
        let seconds = (offset - before) as f64 / 1e6;
        let since = match *jump {
            Some(seen) if is_near(seen.offset, offset) => seen.since,
            _ => {
                tracing::warn!(
                    seconds,
                    "the machine's clock jumped; the time continues without it until it has lasted {} s",
                    SETTLE_TIME.as_secs()
                );
                elapsed
            }
        };
        *jump = Some(ClockJump { offset, since });
        self.is_apart.store(true, Ordering::Relaxed);
        Timestamp::from_micros(elapsed + before)
    }
}

impl<R: ClockReadings> Clock for SteadyClock<R> {
    fn now(&self) -> Timestamp {
        let (wall, elapsed) = (self.readings.wall(), self.readings.elapsed());
        let offset = wall.saturating_sub(elapsed);
        if !is_near(self.offset.load(Ordering::Relaxed), offset) {
            return self.note_jump(offset, elapsed);
        }
        self.offset.store(offset, Ordering::Relaxed);
        if self.is_apart.swap(false, Ordering::Relaxed) && lock(&self.jump).take().is_some() {
            tracing::warn!("the machine's clock is back");
        }
        Timestamp::from_micros(wall)
    }

    fn follow_jump(&self) -> Duration {
        self.now();
        let mut jump = lock(&self.jump);
        let elapsed = self.readings.elapsed();
        let has_lasted = |jump: &ClockJump| {
            Duration::from_micros((elapsed - jump.since).unsigned_abs()) >= SETTLE_TIME
        };
        let Some(ClockJump { offset, .. }) = jump.take_if(|jump| has_lasted(jump)) else {
            return Duration::ZERO;
        };
        let before = self.offset.swap(offset, Ordering::Relaxed);
        self.is_apart.store(false, Ordering::Relaxed);
        let seconds = (offset - before) as f64 / 1e6;
        tracing::warn!(seconds, "the jump of the machine's clock has lasted and is followed");
        Duration::from_micros(u64::try_from(before - offset).unwrap_or(0))
    }
}

fn is_near(one: i64, other: i64) -> bool {
    u128::from(one.abs_diff(other)) < JUMP.as_micros()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3_600 * SECOND;

    /// What a test sets.
    #[derive(Clone, Debug, Default)]
    struct Hands(Arc<[AtomicI64; 2]>);

    impl Hands {
        /// Time passes, and the clock is set besides.
        fn pass(&self, micros: i64, set: i64) {
            self.0[0].fetch_add(micros + set, Ordering::Relaxed);
            self.0[1].fetch_add(micros, Ordering::Relaxed);
        }
    }

    impl ClockReadings for Hands {
        fn wall(&self) -> i64 {
            self.0[0].load(Ordering::Relaxed)
        }

        fn elapsed(&self) -> i64 {
            self.0[1].load(Ordering::Relaxed)
        }
    }

    fn clock() -> (Hands, SteadyClock<Hands>) {
        let hands = Hands::default();
        hands.pass(0, 1_000 * HOUR);
        let clock = SteadyClock::new(hands.clone());
        (hands, clock)
    }

    #[test]
    fn a_short_jump_changes_nothing() {
        let (hands, clock) = clock();
        for jump in [3 * HOUR, -3 * HOUR] {
            let before = clock.now().as_micros();
            hands.pass(SECOND, jump);
            assert_eq!(clock.now().as_micros(), before + SECOND);
            hands.pass(4 * SECOND, 0);
            assert_eq!(clock.now().as_micros(), before + 5 * SECOND);
            hands.pass(SECOND, -jump);
            assert_eq!(clock.now().as_micros(), before + 6 * SECOND);
            // The same jump later is another one.
            hands.pass(60 * SECOND, jump);
            assert_eq!(clock.now().as_micros(), before + 66 * SECOND);
            hands.pass(SECOND, -jump);
            assert_eq!(clock.now().as_micros(), before + 67 * SECOND);
        }
        assert_eq!(clock.follow_jump(), Duration::ZERO);
    }

    #[test]
    fn a_jump_that_lasts_is_followed_and_one_back_is_told_once() {
        let (hands, clock) = clock();
        for (jump, back) in [(HOUR, 0), (-2 * HOUR, 2 * 3_600)] {
            let before = clock.now().as_micros();
            hands.pass(0, jump);
            assert_eq!(clock.now().as_micros(), before);
            hands.pass(29 * SECOND, 0);
            assert_eq!(clock.now().as_micros(), before + 29 * SECOND);
            assert_eq!(clock.follow_jump(), Duration::ZERO);
            hands.pass(SECOND, 0);
            assert_eq!(clock.follow_jump(), Duration::from_secs(back));
            assert_eq!(clock.now().as_micros(), before + jump + 30 * SECOND);
            assert_eq!(clock.follow_jump(), Duration::ZERO);
        }
    }

    #[test]
    fn an_adjusted_clock_is_followed_at_once() {
        let (hands, clock) = clock();
        for _ in 0..100 {
            hands.pass(SECOND, SECOND / 2);
            assert_eq!(clock.now().as_micros(), hands.wall());
        }
    }

    #[test]
    fn jumps_in_a_row_are_followed_when_the_last_has_lasted() {
        let (hands, clock) = clock();
        let before = clock.now().as_micros();
        for step in 1..=5 {
            hands.pass(10 * SECOND, HOUR);
            assert_eq!(clock.now().as_micros(), before + step * 10 * SECOND);
        }
        hands.pass(31 * SECOND, 0);
        assert_eq!(clock.follow_jump(), Duration::ZERO);
        assert_eq!(clock.now().as_micros(), hands.wall());
    }
}
