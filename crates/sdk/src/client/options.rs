//! The options of a client.

use std::time::Duration;

use trilogue_wire::sse::Limits;

/// The base path of the native API.
pub(super) const DEFAULT_BASE: &str = "/api/v1";

/// The options of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// The base path of the protocol, without a slash at the end.
    pub base: String,
    /// The maximum size of a response that is read whole, in bytes.
    pub max_response_bytes: usize,
    /// The maximum length of a stream's lines and events.
    pub stream_limits: Limits,
    /// The maximum size of the parts of a stream that yield no item, over all its connections, in bytes: comments, unknown fields and skipped events. A heartbeat each second for a month is less.
    pub max_unused_stream_bytes: u64,
    /// How long the server may take to respond to a call, and again to send the body. Calls that wait for a run have no limit.
    pub call_timeout: Duration,
    /// The maximum number of attempts in a row to reconnect a broken stream. Then the stream fails.
    pub attempts: u32,
    /// The delay before the second attempt. It doubles with each further attempt, and with each further connection in a row that ended soon and delivered little.
    pub delay: Duration,
    /// The maximum delay between two attempts.
    pub max_delay: Duration,
}

// === impl Options ===

impl Options {
    /// Returns the default options with this base path: `/communication`, or an empty path for the root of a server.
    #[must_use]
    pub fn at(base: &str) -> Self {
        Self { base: base.trim_end_matches('/').to_owned(), ..Self::default() }
    }

    /// Returns the delay before the next attempt, after this many failures in a row. It is at least `asked`, the delay that the server requests, and at most [`Options::max_delay`].
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
            max_unused_stream_bytes: 32 * 1024 * 1024,
            call_timeout: Duration::from_secs(60),
            attempts: 10,
            delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
        }
    }
}
