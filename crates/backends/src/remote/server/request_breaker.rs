//! A circuit breaker for requests: a server that could not be reached again and again is left alone until a probe reaches it.

use std::sync::Mutex;

use metrics::counter;
use tokio::time::Instant;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::lock;

/// So many requests in a row that did not reach the server open the breaker.
const MAX_FAILURES: u32 = 5;

/// Requests that did not reach a server of agents.
const UNREACHED: &str = "trilogue_remote_unreached_total";

#[derive(Debug, Default)]
pub(super) struct RequestBreaker(Mutex<RequestFailures>);

#[derive(Debug, Default)]
struct RequestFailures {
    /// In a row.
    failures: u32,
    /// Why the last one failed, and since when the server is left alone.
    open: Option<(String, Instant)>,
}

// === impl RequestBreaker ===

impl RequestBreaker {
    /// Passes unless the server is left alone.
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

    pub(super) fn reached(&self) {
        *lock(&self.0) = RequestFailures::default();
    }

    /// Counts a request that did not reach the server. Returns whether the server is left alone from now on.
    pub(super) fn failed(&self, reason: &str) -> bool {
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
            assert!(!breaker.failed("refused"));
        }
        breaker.reached();
        for _ in 1..MAX_FAILURES {
            assert!(!breaker.failed("refused"));
        }
        assert_eq!(breaker.check("http://x"), Ok(()));
        assert!(breaker.failed("connection refused"));
        assert!(!breaker.failed("refused again"), "it was opened before");
        let error = breaker.check("http://x").unwrap_err();
        assert_eq!(error.code(), Code::PeerUnavailable);
        assert!(error.message().contains("connection refused"), "{error}");
        assert!(error.hint_text().is_some());
        breaker.reached();
        assert_eq!(breaker.check("http://x"), Ok(()));
    }
}
