//! Ports beyond the store: reading at other addresses, and the output checker. Both are set after the start.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::port::{CheckOutput, Fetch};
use trilogue_domain::{Body, Code, Error};

/// How long after the start a recovered run waits for the ports: the program sets them at once.
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

    /// The reader of other addresses; fails with `egress_refused` where there is none.
    pub(crate) async fn fetch(&self) -> Result<&Arc<dyn Fetch>> {
        handed_in(&self.fetch, self.began).await.ok_or_else(|| {
            Error::new(Code::EgressRefused, "this server reads nothing at other addresses")
        })
    }

    /// Waits until there is a checker; a run with rules does not begin before.
    pub(crate) async fn checker_is_here(&self) {
        // A run that begins without one has its output refused below.
        let _ = handed_in(&self.check, self.began).await;
    }

    /// The checker of these rules; fails with `internal` where there is none.
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

/// The port; soon after the start this waits for it.
async fn handed_in<T>(cell: &SetOnce<T>, began: Instant) -> Option<&T> {
    if let Some(value) = cell.get() {
        return Some(value);
    }
    tokio::time::timeout_at(began + HANDED_IN_WITHIN, cell.wait()).await.ok()
}
