//! How a client of a server behaves.

use std::time::Duration;

use trilogue_wire::sse::Limits;

/// Where the face is mounted.
pub(super) const DEFAULT_BASE: &str = "/api/v1";

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the face is mounted, without a slash at the end.
    pub base: String,
    /// The longest response that is read whole, in bytes.
    pub max_response_bytes: usize,
    /// How long lines and events of a stream may be.
    pub stream_limits: Limits,
    /// How long the server may take to answer a call, and as long to send the rest of the answer. Calls that wait for a run have no limit.
    pub call_timeout: Duration,
    /// How often in a row a broken stream is asked for again before its break is an error.
    pub attempts: u32,
    /// How long to wait before the second attempt; doubles with each.
    pub delay: Duration,
    /// The longest wait between two attempts.
    pub max_delay: Duration,
}

// === impl Options ===

impl Options {
    /// The usual options for a face that is mounted at this path: `/communication`, or `` for the root of a server.
    #[must_use]
    pub fn at(base: &str) -> Self {
        Self { base: base.trim_end_matches('/').to_owned(), ..Self::default() }
    }

    /// How long to wait before the next attempt when this many have failed in a row; at least as long as the server asks for.
    pub(crate) fn wait_after(&self, failed: u32, asked: Option<Duration>) -> Duration {
        let doubled = self.delay.saturating_mul(1 << failed.min(16));
        asked.unwrap_or_default().max(doubled).min(self.max_delay)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            base: DEFAULT_BASE.to_owned(),
            max_response_bytes: 64 * 1024 * 1024,
            stream_limits: Limits::default(),
            call_timeout: Duration::from_secs(60),
            attempts: 10,
            delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
        }
    }
}
