//! Modes and options that one client sets, told to the others.

use serde_json::{Value, json};
use trilogue_domain::Json;

use super::catch_up::Opening;
use super::link::Lines;
use super::opened::options_of;
use super::pump::Pump;
use super::session::config_in;

/// How much of an update is looked at for its kind, in bytes. Agents write it first.
const HEAD_BYTES: usize = 160;

// === impl Pump ===

impl Pump {
    /// A client gave the agent's own session a mode or options; `is_news` where the agent has not told of it itself.
    pub(super) fn was_set(&mut self, update: &Value, is_news: bool, lines: &mut Lines) {
        let is_mine = self.session.state().take_set(update);
        if is_news && !is_mine && !self.is_in_answer() {
            self.show.set(update, lines);
        }
    }

    /// The thread's metadata are this now, and with them what its runs are given.
    pub(super) fn configured(&mut self, metadata: &Json, lines: &mut Lines) {
        let now = config_in(metadata);
        let given = now.as_ref().map_or(Value::Null, Json::to_value);
        let is_mine = self.session.state().take_set(&given);
        let before = self.config.replace(now.clone());
        let is_news = before.is_none_or(|before| before != now);
        if is_mine || !is_news || self.is_in_answer() {
            return;
        }
        let Ok(backend) = self.link.backend() else { return };
        if backend.sessions().is_some() {
            return;
        }
        let options = options_of(&self.link, backend.card(), now.as_ref());
        if !options.is_empty() {
            let update =
                json!({ "sessionUpdate": "config_option_update", "configOptions": options });
            self.show.set(&update, lines);
        }
    }

    /// Whether the client learns from an answer that is to come how things are.
    pub(super) fn is_in_answer(&self) -> bool {
        let request = self.catching_up.as_ref().and_then(|start| start.request.as_ref());
        matches!(request, Some((_, Opening::FromLog)))
    }
}

/// Whether an update may tell of a mode or of options.
pub(super) fn is_setting(update: &[u8]) -> bool {
    let head = update.get(..HEAD_BYTES).unwrap_or(update);
    let has = |kind: &str| memchr::memmem::find(head, kind.as_bytes()).is_some();
    has("current_mode_update") || has("config_option_update")
}
