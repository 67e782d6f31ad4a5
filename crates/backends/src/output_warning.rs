//! Logs a warning if an agent's output does not match its declaration.

use trilogue_domain::Body;
use trilogue_mapping::communication::{has_invalid_base64, is_contradiction};
use trilogue_runtime::RunContext;

/// Warns once per run, so that no agent can fill the server's log.
#[derive(Default, Debug)]
pub(crate) struct OutputWarning {
    has_warned: bool,
}

// === impl OutputWarning ===

impl OutputWarning {
    pub(crate) fn note(&mut self, body: &Body, context: &RunContext) {
        if self.has_warned {
            return;
        }
        let (run, thread, agent) = (context.run(), context.thread(), context.agent());
        if has_invalid_base64(body) {
            tracing::warn!(%run, %thread, %agent, "an agent's content is not the base64 that it is called, and passes as it is");
        } else if is_contradiction(body) {
            tracing::warn!(%run, %thread, %agent, "an agent's server completed a message with other content than it had streamed; the log has both");
        } else {
            return;
        }
        self.has_warned = true;
    }
}
