//! The time of the database. Nodes whose machines have different clocks still agree on what is due.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use trilogue_domain::lock;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::time::Timestamp;

use super::connection::Connection;
use super::error::PostgresError;
use super::row;

/// A look-up of the database's time that takes longer does not set this clock. It waited in a queue or in a stopped process, so it is unknown when the time was right.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// The database's time, in microseconds since the epoch.
macro_rules! now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}
pub(super) use now;

/// Advances by the machine's counter from the last look-up of the database's time. A wrong machine clock, or one that is set while the process runs, has no effect.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock(Mutex<Option<Look>>);

#[derive(Clone, Copy, Debug)]
struct Look {
    time: Timestamp,
    at: Instant,
}

// === impl DatabaseClock ===

impl DatabaseClock {
    /// Sets the clock by the database's answer to a query that was sent at `asked`. Assumes that half of the round trip came after the answer.
    pub(super) fn set(&self, time: Timestamp, asked: Instant) {
        let took = asked.elapsed();
        let mut look = lock(&self.0);
        if took <= LONGEST_LOOK || look.is_none() {
            *look = Some(Look { time, at: asked + took / 2 });
        }
    }

    /// Looks the database's time up.
    pub(super) async fn look(&self, conn: &Connection) -> Result<(), PostgresError> {
        let asked = Instant::now();
        let found = row::query_opt(conn, concat!("SELECT ", now!()), &[]).await?;
        if let Some(row) = found {
            self.set(Timestamp::from_micros(row.get(0)), asked);
        }
        Ok(())
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        let look = *lock(&self.0);
        look.map_or_else(|| SystemClock.now(), |look| look.time.after(look.at.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_does_not_set_it_anew() {
        let clock = DatabaseClock::default();
        let near = |time: Timestamp| {
            let off = clock.now().as_micros() - time.as_micros();
            // The most time that this test takes.
            (0..60_000_000).contains(&off)
        };
        let (hour, day) =
            (Timestamp::from_micros(3_600_000_000), Timestamp::from_micros(86_400_000_000));
        clock.set(hour, Instant::now());
        assert!(near(hour));
        clock.set(day, Instant::now() - LONGEST_LOOK * 2);
        assert!(near(hour), "the answer is of an unknown time");
        clock.set(day, Instant::now());
        assert!(near(day));
    }
}
