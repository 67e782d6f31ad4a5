//! Sends the modes and options that one client sets to the others.

use serde_json::{Value, json};
use trilogue_domain::Json;

use super::super::super::connection::command::OpenResponse;
use super::super::super::thread_metadata::config_in;
use super::super::agent_session::options_of;
use super::{OutgoingLines, Pump};

/// How much of an update is searched for its kind, in bytes. Agents write the kind first.
const HEAD_BYTES: usize = 160;

// === impl Pump ===

impl Pump {
    /// Renders a mode or options that a client has set in the agent's session. `is_news`: the agent has not sent an update itself.
    pub(super) fn agent_setting(
        &mut self,
        update: &Value,
        is_news: bool,
        lines: &mut OutgoingLines,
    ) {
        // Taken even if nothing is rendered: it would hide a later, equal setting of another client.
        let is_own = self.session.state().take_own_setting(update);
        if self.role.is_some() {
            // Clients cannot set anything in the session of a sub-agent.
            return;
        }
        if is_news && !is_own && !self.is_in_response() {
            self.renderer.setting(update, lines);
        }
    }

    /// Renders the configuration of a native agent if the thread's metadata has a new one.
    pub(super) fn native_setting(&mut self, metadata: &Json, lines: &mut OutgoingLines) {
        if self.role.is_some() {
            return;
        }
        let now = config_in(metadata);
        let setting = now.as_ref().map_or(Value::Null, Json::to_value);
        let is_own = self.session.state().take_own_setting(&setting);
        let before = self.config.replace(now.clone());
        let is_news = before.is_none_or(|before| before != now);
        if is_own || !is_news || self.is_in_response() {
            return;
        }
        let Ok(backend) = self.connection.backend() else { return };
        if backend.sessions().is_some() {
            return;
        }
        let options = options_of(&self.connection, backend.card(), now.as_ref());
        if !options.is_empty() {
            let update =
                json!({ "sessionUpdate": "config_option_update", "configOptions": options });
            self.renderer.setting(&update, lines);
        }
    }

    /// Whether a response that is still to be sent contains the current settings.
    pub(super) fn is_in_response(&self) -> bool {
        let request = self.replay.as_ref().and_then(|start| start.request.as_ref());
        matches!(request, Some((_, OpenResponse::FromLog)))
    }
}

/// Whether an update may be about a mode or options.
pub(super) fn is_setting(update: &[u8]) -> bool {
    let head = update.get(..HEAD_BYTES).unwrap_or(update);
    let has = |kind: &str| memchr::memmem::find(head, kind.as_bytes()).is_some();
    has("current_mode_update") || has("config_option_update")
}
