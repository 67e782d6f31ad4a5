//! How an agent's process exited, and the end of its standard error.

use std::time::Duration;

use tokio::time::timeout;

use super::Child;

/// How much of the end of an agent's standard error is shown where it fails, in bytes.
pub(crate) const STDERR_TAIL_BYTES: usize = 2 * 1024;
/// How long an agent that closed its output may take to exit.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Completes "the agent …".
pub(crate) async fn how_it_exited(child: &Child) -> String {
    match timeout(EXIT_GRACE, child.exited()).await {
        Ok(exit) => exit.to_string(),
        Err(_) => "closed its output".to_owned(),
    }
}

pub(crate) fn stderr_tail(child: &Child) -> String {
    let tail = child.captured().tail(STDERR_TAIL_BYTES);
    if tail.is_empty() { String::new() } else { format!("; its standard error ends with: {tail}") }
}
