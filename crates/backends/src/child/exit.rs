//! Describes how an agent's process exited, and shows the end of its output.

use std::time::Duration;

use tokio::time::timeout;

use super::Child;

/// How many bytes of the end of each of an agent's two outputs an error shows.
pub(crate) const OUTPUT_TAIL_BYTES: usize = 2 * 1024;
/// How long an agent that closed its output may take to exit.
pub(crate) const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Returns a verb phrase that completes "the agent …". Waits at most [`EXIT_GRACE`] for the exit.
pub(crate) async fn how_it_exited(child: &Child) -> String {
    match timeout(EXIT_GRACE, child.exited()).await {
        Ok(exit) => exit.to_string(),
        Err(_) => "closed its output".to_owned(),
    }
}

/// Returns the end of the child's standard error and of its stray output, each after the name of its stream. Empty if nothing was captured.
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
