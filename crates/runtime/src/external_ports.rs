//! What reaches beyond the store: reading at other addresses, and the checker of output. Both are handed in after the start.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::port::{CheckOutput, Fetch};
use trilogue_domain::{Body, Code, Error};

/// How long after the start a run that a previous life left waits for what is handed in: the program does so at once.
const HANDED_IN_WITHIN: Duration = Duration::from_secs(2);

/// What was handed in so far.
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

    /// Who reads at other addresses.
    ///
    /// # Errors
    /// `egress_refused` where nobody does.
    pub(crate) async fn fetch(&self) -> Result<&Arc<dyn Fetch>> {
        handed_in(&self.fetch, self.began).await.ok_or_else(|| {
            Error::new(Code::EgressRefused, "this server reads nothing at other addresses")
        })
    }

    /// Waits until there is a checker; a run with rules does not begin before.
    pub(crate) async fn checker_is_here(&self) {
        // A run that begins without one is refused its output below.
        let _ = handed_in(&self.check, self.began).await;
    }

    /// Whether this server can hold output to rules.
    ///
    /// # Errors
    /// `internal` where there is no checker.
    pub(crate) fn checks(&self, rules: &str) -> Result<&Arc<dyn CheckOutput>> {
        self.check.get().ok_or_else(|| {
            Error::new(Code::Internal, format!("nothing here checks the rules '{rules}'"))
        })
    }

    /// Passes when an event keeps the rules.
    ///
    /// # Errors
    /// `output_invalid`, and as [`ExternalPorts::checks`].
    pub(crate) fn check(&self, rules: &str, body: &Body) -> Result<()> {
        self.checks(rules)?.check(rules, body)
    }
}

/// What was handed in; soon after the start it is waited for.
async fn handed_in<T>(cell: &SetOnce<T>, began: Instant) -> Option<&T> {
    if let Some(value) = cell.get() {
        return Some(value);
    }
    tokio::time::timeout_at(began + HANDED_IN_WITHIN, cell.wait()).await.ok()
}
