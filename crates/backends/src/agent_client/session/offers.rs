use std::sync::Mutex;

use serde_json::Value;
use trilogue_domain::{Json, lock};

/// The most bytes of JSON that are kept for each of the modes, the options and the commands.
const MAX_OFFER_BYTES: usize = 64 * 1024;

/// The modes, options and commands that the agent offered last, in any session. Its cards name them even if no process runs.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<Offered>);

#[derive(Clone, Debug, Default)]
struct Offered {
    modes: Option<Json>,
    options: Option<Json>,
    commands: Option<Json>,
}

// === impl Offers ===

impl Offers {
    /// The offers, as an object with the members `availableModes`, `configOptions` and `availableCommands`.
    pub(crate) fn current(&self) -> Json {
        let Offered { modes, options, commands } = lock(&self.0).clone();
        let members = [
            ("availableModes", modes),
            ("configOptions", options),
            ("availableCommands", commands),
        ];
        let present = members.into_iter().filter_map(|(name, json)| Some((name, json?)));
        let present = present.map(|(name, json)| (name.to_owned(), json.to_value()));
        Json::from_value(&Value::Object(present.collect()))
    }

    /// Forgets everything, because the agent's launch was replaced.
    pub(crate) fn reset(&self) {
        *lock(&self.0) = Offered::default();
    }

    /// Takes the offers from the response that opened a session.
    pub(super) fn set_from_response(&self, response: &Json) {
        let response = response.to_value();
        let mut offered = lock(&self.0);
        offered.modes = response.pointer("/modes/availableModes").and_then(list_within_limit);
        offered.options = response.get("configOptions").and_then(list_within_limit);
    }

    pub(super) fn set_options(&self, options: &Value) {
        lock(&self.0).options = list_within_limit(options);
    }

    pub(super) fn set_commands(&self, commands: &Value) {
        lock(&self.0).commands = list_within_limit(commands);
    }
}

fn list_within_limit(list: &Value) -> Option<Json> {
    let text = list.as_array().map(|_| list.to_string())?;
    if text.len() > MAX_OFFER_BYTES { None } else { Json::parse_mended(text).ok() }
}
