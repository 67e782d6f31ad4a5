//! The time of the database: nodes whose machines disagree about the time agree on what is due.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use trilogue_domain::lock;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::time::Timestamp;

use super::connection::Connection;
use super::error::PostgresError;
use super::row;

/// The longest look at the database's clock that sets this one anew. After a longer one, which lay in a queue or in a process that stood still, nobody knows when the answer was true.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// The database's time, in microseconds since the epoch.
macro_rules! now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}
pub(super) use now;

/// Goes on by the machine's counter from the last look at the database's clock: a machine whose clock is wrong, or is set while the process runs, does not matter.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock(Mutex<Option<Look>>);

#[derive(Clone, Copy, Debug)]
struct Look {
    time: Timestamp,
    at: Instant,
}

// === impl DatabaseClock ===

impl DatabaseClock {
    /// Sets it by what the database answered to a question that was asked at `asked`. Half of the way is taken to lie behind the answer.
    pub(super) fn set(&self, time: Timestamp, asked: Instant) {
        let took = asked.elapsed();
        let mut look = lock(&self.0);
        if took <= LONGEST_LOOK || look.is_none() {
            *look = Some(Look { time, at: asked + took / 2 });
        }
    }

    /// Looks at the database's clock.
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
            // As long as this test takes at most.
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
