//! A circuit breaker for requests: after repeated failures to reach a server, no request is sent to it until a probe reaches it.

use std::sync::Mutex;

use metrics::counter;
use tokio::time::Instant;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::lock;

/// The number of consecutive requests that did not reach the server that opens the breaker.
const MAX_FAILURES: u32 = 5;

/// Counts requests that did not reach a server of agents.
const UNREACHED: &str = "trilogue_remote_unreached_total";

#[derive(Debug, Default)]
pub(super) struct RequestBreaker(Mutex<RequestFailures>);

#[derive(Debug, Default)]
struct RequestFailures {
    /// Consecutive failures.
    failures: u32,
    /// Why the breaker opened, and when. `None` while it is closed.
    open: Option<(String, Instant)>,
}

// === impl RequestBreaker ===

impl RequestBreaker {
    /// Returns an error while the breaker is open.
    pub(super) fn check(&self, server: &str) -> Result<()> {
        let state = lock(&self.0);
        let Some((reason, since)) = &state.open else { return Ok(()) };
        let message = format!(
            "the agent's server at {server} has been out of reach for {} s: {reason}",
            since.elapsed().as_secs()
        );
        Err(Error::new(Code::PeerUnavailable, message).hint(
            "start that server, or correct its address; it is used again as soon as it answers",
        ))
    }

    pub(super) fn record_success(&self) {
        *lock(&self.0) = RequestFailures::default();
    }

    /// Counts a request that did not reach the server. Returns whether this failure opened the breaker.
    pub(super) fn record_failure(&self, reason: &str) -> bool {
        counter!(UNREACHED).increment(1);
        let mut state = lock(&self.0);
        state.failures = state.failures.saturating_add(1);
        let opens = state.failures >= MAX_FAILURES && state.open.is_none();
        if opens {
            state.open = Some((reason.to_owned(), Instant::now()));
        }
        opens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_is_left_alone_after_failures_in_a_row() {
        let breaker = RequestBreaker::default();
        for _ in 1..MAX_FAILURES {
            assert!(!breaker.record_failure("refused"));
        }
        breaker.record_success();
        for _ in 1..MAX_FAILURES {
            assert!(!breaker.record_failure("refused"));
        }
        assert_eq!(breaker.check("http://x"), Ok(()));
        assert!(breaker.record_failure("connection refused"));
        assert!(!breaker.record_failure("refused again"), "it was opened before");
        let error = breaker.check("http://x").unwrap_err();
        assert_eq!(error.code(), Code::PeerUnavailable);
        assert!(error.message().contains("connection refused"), "{error}");
        assert!(error.hint_text().is_some());
        breaker.record_success();
        assert_eq!(breaker.check("http://x"), Ok(()));
    }
}
