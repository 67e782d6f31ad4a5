//! A circuit breaker: an agent that fails repeatedly is not started for a while.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::{Clock as _, SystemClock};
use trilogue_domain::{Timestamp, lock};
use trilogue_runtime::ProcessFailure;

/// The number of failures within [`WINDOW`] that opens the breaker. A failure is a process that did not start, or exited before a turn had completed.
const MAX_FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    at: VecDeque<Instant>,
    /// The last failure.
    last: Option<ProcessFailure>,
    until: Option<Instant>,
    /// When the failures before were forgotten.
    reset_at: Option<Timestamp>,
}

// === impl Breaker ===

impl Breaker {
    /// Returns an error while the breaker is open. The error names the subject, such as "the agent 'x'".
    /// After the pause, the first check passes.
    pub(crate) fn check(&self, subject: impl fmt::Display) -> Result<()> {
        let mut failures = lock(&self.0);
        let Some(left) = failures.remaining_pause() else { return Ok(()) };
        if left.is_zero() {
            // Allow one start. If it fails too, the pause begins again.
            failures.until = None;
            failures.at = vec![Instant::now(); MAX_FAILURES - 1].into();
            return Ok(());
        }
        let reason = failures.last.as_ref().map_or("", |last| last.reason.as_str());
        let message = format!(
            "{subject} failed {MAX_FAILURES} times within {} seconds and is not started: {reason}",
            WINDOW.as_secs(),
        );
        let hint = format!(
            "fix its configuration; it is started again in {} seconds at the earliest",
            left.as_secs() + 1
        );
        Err(Error::new(Code::PeerUnavailable, message).hint(hint))
    }

    /// Returns how long starts are still refused, or `None` if the next start is allowed.
    pub(crate) fn pause(&self) -> Option<Duration> {
        lock(&self.0).remaining_pause().filter(|left| !left.is_zero())
    }

    /// Counts a process that did not start, or exited before a turn had completed.
    pub(crate) fn record_failure(&self, reason: &str) {
        let now = Instant::now();
        let mut failures = lock(&self.0);
        failures.at.push_back(now);
        while failures.at.front().is_some_and(|first| now - *first > WINDOW)
            || failures.at.len() > MAX_FAILURES
        {
            failures.at.pop_front();
        }
        let reason = reason.to_owned();
        failures.last = Some(ProcessFailure { at: SystemClock.now(), reason });
        if failures.at.len() >= MAX_FAILURES {
            failures.until = Some(now + PAUSE);
        }
    }

    /// Returns the last failure, if no turn has completed since.
    pub(crate) fn last_failure(&self) -> Option<ProcessFailure> {
        lock(&self.0).last.clone()
    }

    /// Forgets all failures. Called when a turn has completed, or the agent's launch was replaced.
    pub(crate) fn reset(&self) {
        let reset_at = Some(SystemClock.now());
        *lock(&self.0) = Failures { reset_at, ..Failures::default() };
    }

    pub(crate) fn last_reset(&self) -> Option<Timestamp> {
        lock(&self.0).reset_at
    }
}

// === impl Failures ===

impl Failures {
    fn remaining_pause(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn too_many_failures_pause_and_say_why() {
        let breaker = Breaker::default();
        for _ in 0..MAX_FAILURES {
            assert!(breaker.check("x").is_ok());
            breaker.record_failure("it has no key");
        }
        let error = breaker.check("x").unwrap_err();
        assert_eq!(error.code(), Code::PeerUnavailable);
        assert!(error.message().contains("it has no key"), "{error}");
        tokio::time::advance(PAUSE).await;
        assert!(breaker.check("x").is_ok());
        breaker.record_failure("it has no key still");
        let error = breaker.check("x").unwrap_err();
        assert!(error.message().ends_with("it has no key still"), "{error}");
        assert_eq!(breaker.last_failure().unwrap().reason, "it has no key still");
        breaker.reset();
        assert!(breaker.check("x").is_ok());
        assert_eq!(breaker.last_failure(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_far_apart_do_not_count() {
        let breaker = Breaker::default();
        for _ in 0..MAX_FAILURES * 3 {
            breaker.record_failure("now and then");
            tokio::time::advance(Duration::from_secs(20)).await;
        }
        assert!(breaker.check("x").is_ok());
    }
}
