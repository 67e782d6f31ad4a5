//! The state of an outage: since when and why the database cannot be reached, and when operations are retried.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use trilogue_domain::lock;

/// The pause before a retry: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Outage {
    /// Why and since when the database cannot be reached. `None` while it can be.
    state: Mutex<Option<(String, Instant)>>,
    ended: Notify,
}

/// The retries of one operation during an outage: for a certain time, and once more after it.
#[derive(Debug)]
pub(super) struct Retries<'o> {
    outage: &'o Outage,
    give_up: Instant,
    pause: Duration,
    is_last: bool,
}

// === impl Outage ===

impl Outage {
    pub(super) fn begin(&self, why: &str) {
        let mut state = lock(&self.state);
        // Each failed operation comes here, and one message per outage is enough.
        if state.is_none() {
            tracing::error!(why, "the database cannot be reached");
            *state = Some((why.to_owned(), Instant::now()));
        }
    }

    /// Ends the outage, because the database has answered. Wakes all operations that wait to retry.
    pub(super) fn end(&self) {
        if let Some((_, since)) = lock(&self.state).take() {
            let seconds = since.elapsed().as_secs();
            tracing::info!(seconds, "the database can be reached again");
            self.ended.notify_waiters();
        }
    }

    pub(super) fn reason(&self) -> Option<String> {
        lock(&self.state).as_ref().map(|(why, _)| why.clone())
    }

    pub(super) fn retries(&self, patience: Duration) -> Retries<'_> {
        let give_up = Instant::now() + patience;
        Retries { outage: self, give_up, pause: FIRST_PAUSE, is_last: false }
    }
}

// === impl Retries ===

impl Retries<'_> {
    /// Waits before the next try, until the outage ends or a pause is over. Returns `false` after the last try.
    pub(super) async fn wait(&mut self) -> bool {
        if self.is_last {
            return false;
        }
        let next = Instant::now() + self.pause;
        tokio::select! {
            // An end that comes just before this is missed, which costs at most one pause.
            () = self.outage.ended.notified() => {}
            // At most until the limit, because the last try begins then.
            () = tokio::time::sleep_until(next.min(self.give_up)) => {}
        }
        self.is_last = Instant::now() >= self.give_up;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(300);
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn the_last_try_begins_when_the_time_is_over() {
        let outage = Outage::default();
        let (begun, mut retries) = (Instant::now(), outage.retries(PATIENCE));
        while retries.wait().await {}
        assert!(begun.elapsed() >= PATIENCE);
    }

    #[tokio::test]
    async fn the_end_of_an_outage_is_not_waited_out() {
        let outage = Outage::default();
        let mut retries = outage.retries(LONG);
        retries.pause = LONG;
        outage.begin("it is away");
        let (may_try, ()) = tokio::join!(retries.wait(), async { outage.end() });
        assert!(may_try, "it is tried again");
    }

    #[tokio::test]
    async fn what_fails_alone_while_others_succeed_ends_too() {
        let outage = Outage::default();
        let (begun, mut retries) = (Instant::now(), outage.retries(PATIENCE));
        let others = async || {
            outage.begin("one connection broke");
            outage.end();
        };
        while tokio::join!(retries.wait(), others()).0 {}
        assert!(begun.elapsed() >= PATIENCE);
    }
}
