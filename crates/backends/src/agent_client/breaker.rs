//! Keeps an agent that fails again and again from being started for a while, and says why.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::error::{Code, Error, Result};

use super::lock;

/// So many processes within [`WITHIN`] that did not start, or ended before a turn of theirs had, are too many.
pub(super) const MOST: usize = 5;
/// See [`MOST`].
const WITHIN: Duration = Duration::from_secs(60);
/// How long the agent is not started then.
const PAUSE: Duration = Duration::from_secs(60);

/// The processes of an agent that failed lately.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    at: VecDeque<Instant>,
    /// Why the last one failed.
    reason: String,
    until: Option<Instant>,
}

// === impl Breaker ===

impl Breaker {
    /// Passes where the agent may be started.
    pub(super) fn check(&self, agent: &str) -> Result<()> {
        let mut failures = lock(&self.0);
        let Some(until) = failures.until else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // One more is let through; if it fails too, the pause begins again.
            failures.until = None;
            failures.at = vec![Instant::now(); MOST - 1].into();
            return Ok(());
        }
        let message = format!(
            "the agent '{agent}' failed {MOST} times within {} seconds and is not started: {}",
            WITHIN.as_secs(),
            failures.reason,
        );
        let hint =
            format!("mend its configuration; it is tried again in {} seconds", left.as_secs() + 1);
        Err(Error::new(Code::PeerUnavailable, message).hint(hint))
    }

    /// Notes that a process did not start, or ended before it had done anything.
    pub(super) fn failed(&self, reason: &str) {
        let now = Instant::now();
        let mut failures = lock(&self.0);
        failures.at.push_back(now);
        while failures.at.front().is_some_and(|first| now - *first > WITHIN)
            || failures.at.len() > MOST
        {
            failures.at.pop_front();
        }
        reason.clone_into(&mut failures.reason);
        if failures.at.len() >= MOST {
            failures.until = Some(now + PAUSE);
        }
    }

    /// Notes that a turn has ended, or that the agent is started in another way from now on.
    pub(super) fn reset(&self) {
        *lock(&self.0) = Failures::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn too_many_failures_pause_and_say_why() {
        let breaker = Breaker::default();
        for _ in 0..MOST {
            assert!(breaker.check("x").is_ok());
            breaker.failed("it has no key");
        }
        let error = breaker.check("x").unwrap_err();
        assert_eq!(error.code(), Code::PeerUnavailable);
        assert!(error.message().contains("it has no key"), "{error}");
        tokio::time::advance(PAUSE).await;
        assert!(breaker.check("x").is_ok());
        breaker.failed("it has no key still");
        let error = breaker.check("x").unwrap_err();
        assert!(error.message().ends_with("it has no key still"), "{error}");
        breaker.reset();
        assert!(breaker.check("x").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_far_apart_do_not_count() {
        let breaker = Breaker::default();
        for _ in 0..MOST * 3 {
            breaker.failed("now and then");
            tokio::time::advance(Duration::from_secs(20)).await;
        }
        assert!(breaker.check("x").is_ok());
    }
}
