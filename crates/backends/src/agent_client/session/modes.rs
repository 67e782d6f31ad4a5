use std::sync::{Arc, Mutex};

use serde_json::Value;
use trilogue_domain::{Json, lock};

use super::offers::Offers;

/// The response that opened a session, without the session's id, with the current mode and options. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionModes {
    response: Arc<Mutex<Response>>,
    offers: Arc<Offers>,
}

#[derive(Debug, Default)]
struct Response {
    json: Option<Json>,
    /// The newest mode that was notified before `json` was known, and which may be newer.
    mode: Option<Value>,
    /// The options, in the same way.
    options: Option<Value>,
}

// === impl SessionModes ===

impl SessionModes {
    pub(super) fn new(offers: Arc<Offers>) -> Self {
        Self { response: Arc::default(), offers }
    }

    pub(super) fn set(&self, json: Json) {
        self.offers.set_from_response(&json);
        let (mode, options) = {
            let mut response = lock(&self.response);
            response.json = Some(json);
            (response.mode.take(), response.options.take())
        };
        mode.iter().for_each(|mode| self.put_mode(mode));
        options.iter().for_each(|options| self.put_options(options));
    }

    /// Notes that the agent has sent the response: notifications before it are outdated.
    pub(super) fn discard_outdated(&self) {
        let mut response = lock(&self.response);
        response.mode = None;
        response.options = None;
    }

    /// The response with the current values.
    pub(crate) fn current(&self) -> Json {
        lock(&self.response).json.clone().unwrap_or_else(Json::empty_object)
    }

    /// Takes the mode, the options or the commands of an update.
    pub(super) fn apply_update(&self, kind: &str, params: &str) {
        let member = match kind {
            "current_mode_update" => "currentModeId",
            "config_option_update" => "configOptions",
            "available_commands_update" => "availableCommands",
            _ => return,
        };
        let update: Option<Value> = serde_json::from_str(params).ok();
        let value = update.as_ref().and_then(|params| params.pointer("/update")?.get(member));
        match (member, value) {
            ("currentModeId", Some(mode)) => self.put_mode(mode),
            ("availableCommands", Some(commands)) => self.offers.set_commands(commands),
            (_, Some(options)) if options.is_array() => self.put_options(options),
            _ => {}
        }
    }

    pub(crate) fn record_setting(&self, method: &str, params: &str, result: &str) {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        match method {
            "session/set_mode" => {
                if let Some(mode) = read(params).get("modeId") {
                    self.put_mode(mode);
                }
            }
            "session/set_model" => {
                if let Some(model) = read(params).get("modelId").cloned() {
                    self.change(|answer| {
                        if let Some(known) = answer.pointer_mut("/models/currentModelId") {
                            *known = model;
                        }
                    });
                }
            }
            "session/set_config_option" => {
                if let Some(options) = read(result).get("configOptions").filter(|it| it.is_array())
                {
                    self.put_options(options);
                }
            }
            _ => {}
        }
    }

    fn put_mode(&self, mode: &Value) {
        if self.defer(|response| response.mode = Some(mode.clone())) {
            return;
        }
        self.change(|answer| {
            if let Some(known) = answer.pointer_mut("/modes/currentModeId") {
                *known = mode.clone();
            }
        });
    }

    fn put_options(&self, options: &Value) {
        self.offers.set_options(options);
        if self.defer(|response| response.options = Some(options.clone())) {
            return;
        }
        self.change(|answer| {
            if let Some(answer) = answer.as_object_mut() {
                answer.insert("configOptions".to_owned(), options.clone());
            }
        });
    }

    /// Keeps a value while the response is not known. Returns whether it was kept.
    fn defer(&self, keep: impl FnOnce(&mut Response)) -> bool {
        let mut response = lock(&self.response);
        if response.json.is_some() {
            return false;
        }
        keep(&mut response);
        true
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut response = lock(&self.response);
        let Some(json) = response.json.as_mut() else { return };
        let mut value = json.to_value();
        change(&mut value);
        *json = Json::from_value(&value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_behind_the_response_are_newer_than_it() {
        let notify = |modes: &SessionModes, mode: &str| {
            let params = serde_json::json!({ "update": { "currentModeId": mode } });
            modes.apply_update("current_mode_update", &params.to_string());
        };
        let answer = serde_json::json!({ "modes": { "currentModeId": "answered" } });
        let mode =
            |modes: &SessionModes| modes.current().to_value()["modes"]["currentModeId"].clone();
        for is_behind in [false, true] {
            let modes = SessionModes::default();
            notify(&modes, "before");
            modes.discard_outdated();
            if is_behind {
                notify(&modes, "behind");
            }
            modes.set(Json::from_value(&answer));
            assert_eq!(mode(&modes), if is_behind { "behind" } else { "answered" });
            notify(&modes, "later");
            assert_eq!(mode(&modes), "later");
        }
    }
}
