//! Lines of an agent that were not messages: counted and logged.

use std::sync::Mutex;
use std::time::Duration;

use metrics::counter;
use trilogue_domain::lock;
use trilogue_sdk::agent_client::peer::Peer;

const COUNT_EVERY: Duration = Duration::from_secs(15);
/// The counter, by agent and by the error of the lines.
const IGNORED_LINES: &str = "trilogue_agent_ignored_lines_total";

/// The counts of the last report.
#[derive(Debug, Default)]
pub(super) struct IgnoredLines(Mutex<LineCounts>);

#[derive(Debug, Default)]
struct LineCounts {
    noise: u64,
    oversize: u64,
}

// === impl IgnoredLines ===

impl IgnoredLines {
    /// Never returns.
    pub(super) async fn keep_counting(&self, agent: &str, peer: &Peer) {
        loop {
            tokio::time::sleep(COUNT_EVERY).await;
            self.count(agent, peer);
        }
    }

    /// Counts the lines since the last call.
    pub(super) fn count(&self, agent: &str, peer: &Peer) {
        let lines = peer.counters().lines;
        let mut counted = lock(&self.0);
        let LineCounts { noise, oversize } = &mut *counted;
        for (before, now, kind) in
            [(noise, lines.noise, "noise"), (oversize, lines.oversize, "oversize")]
        {
            let new = now.saturating_sub(*before);
            if new > 0 {
                *before = now;
                counter!(IGNORED_LINES, "agent" => agent.to_owned(), "kind" => kind).increment(new);
                tracing::info!(agent, lines = new, kind, "ignored lines of an agent");
            }
        }
    }
}
