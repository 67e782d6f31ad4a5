//! Ports beyond the store: the reader of remote addresses, and the output checker. Both are set after the start.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::port::{CheckOutput, Fetch};
use trilogue_domain::{Body, Code, Error};

/// How long after the start a recovered run waits for the ports: the program sets them right after the start.
const HANDED_IN_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct ExternalPorts {
    fetch: SetOnce<Arc<dyn Fetch>>,
    check: SetOnce<Arc<dyn CheckOutput>>,
    began: Instant,
}

// === impl ExternalPorts ===

impl ExternalPorts {
    pub(crate) fn new() -> Self {
        Self { fetch: SetOnce::new(), check: SetOnce::new(), began: Instant::now() }
    }

    pub(crate) fn set_fetch(&self, fetch: Arc<dyn Fetch>) {
        if self.fetch.set(fetch).is_err() {
            tracing::error!("a second reader of other addresses was handed in and is not used");
        }
    }

    pub(crate) fn set_check(&self, check: Arc<dyn CheckOutput>) {
        if self.check.set(check).is_err() {
            tracing::error!("a second checker of output was handed in and is not used");
        }
    }

    /// Returns the reader of remote addresses; fails with `egress_refused` if none is set.
    pub(crate) async fn fetch(&self) -> Result<&Arc<dyn Fetch>> {
        handed_in(&self.fetch, self.began).await.ok_or_else(|| {
            Error::new(Code::EgressRefused, "this server reads nothing at other addresses")
        })
    }

    /// Waits for the checker; a run with rules does not begin before it is set.
    pub(crate) async fn checker_is_here(&self) {
        // If it is still missing, the run begins and its output is refused.
        let _ = handed_in(&self.check, self.began).await;
    }

    /// Returns the checker of these rules; fails with `internal` if none is set.
    pub(crate) fn checks(&self, rules: &str) -> Result<&Arc<dyn CheckOutput>> {
        self.check.get().ok_or_else(|| {
            Error::new(Code::Internal, format!("nothing here checks the rules '{rules}'"))
        })
    }

    /// Checks an event against the rules; fails with `output_invalid`, and as [`ExternalPorts::checks`].
    pub(crate) fn check(&self, rules: &str, body: &Body) -> Result<()> {
        self.checks(rules)?.check(rules, body)
    }
}

/// Returns the port. Soon after the start, waits for it.
async fn handed_in<T>(cell: &SetOnce<T>, began: Instant) -> Option<&T> {
    if let Some(value) = cell.get() {
        return Some(value);
    }
    tokio::time::timeout_at(began + HANDED_IN_WITHIN, cell.wait()).await.ok()
}
