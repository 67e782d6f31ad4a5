//! How an agent's process exited, and the end of its output.

use std::time::Duration;

use tokio::time::timeout;

use super::Child;

/// How much of the end of each of an agent's two outputs is shown where it fails, in bytes.
pub(crate) const OUTPUT_TAIL_BYTES: usize = 2 * 1024;
/// How long an agent that closed its output may take to exit.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Completes "the agent …".
pub(crate) async fn how_it_exited(child: &Child) -> String {
    match timeout(EXIT_GRACE, child.exited()).await {
        Ok(exit) => exit.to_string(),
        Err(_) => "closed its output".to_owned(),
    }
}

/// What it wrote that was no message, each output by its name.
pub(crate) fn output_tail(child: &Child) -> String {
    let mut text = String::new();
    for captured in [child.captured(), child.stray_output()] {
        let tail = captured.tail(OUTPUT_TAIL_BYTES);
        if !tail.is_empty() {
            text.push_str(&format!("; its {} ends with: {tail}", captured.stream()));
        }
    }
    text
}
