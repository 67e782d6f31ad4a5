//! Input of an agent that was ignored: counted at once, and logged now and then.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use metrics::counter;
use trilogue_domain::lock;

const REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// The counter, by agent and reason.
const IGNORED_LINES: &str = "trilogue_agent_ignored_lines_total";

/// The counts of one process since the last report, by reason. There are few reasons, and each is a constant.
#[derive(Debug, Default)]
pub(crate) struct IgnoredLines(Mutex<BTreeMap<&'static str, u64>>);

// === impl IgnoredLines ===

impl IgnoredLines {
    pub(crate) fn count(&self, agent: &str, reason: &'static str) {
        *lock(&self.0).entry(reason).or_default() += 1;
        counter!(IGNORED_LINES, "agent" => agent.to_owned(), "reason" => reason).increment(1);
    }

    /// Never returns.
    pub(crate) async fn keep_reporting(&self, agent: &str) {
        loop {
            tokio::time::sleep(REPORT_INTERVAL).await;
            self.report(agent);
        }
    }

    /// Logs how many lines were ignored since the last call.
    pub(crate) fn report(&self, agent: &str) {
        for (reason, lines) in std::mem::take(&mut *lock(&self.0)) {
            tracing::info!(agent, lines, reason, "ignored lines of an agent");
        }
    }
}
