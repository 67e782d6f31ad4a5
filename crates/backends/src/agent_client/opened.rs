//! What an agent answered when its session was opened, and how its modes and options stand since.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use trilogue_domain::Json;

use super::lock;

/// The answer to the request that opened a session, without the session's id, with its modes and options as they are now. Cheap to clone: all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Opened(Arc<Mutex<Standing>>);

#[derive(Debug, Default)]
struct Standing {
    answer: Option<Json>,
    /// What was told last while the answer was not known, and may be newer: of the mode, and of the options.
    mode: Option<Value>,
    options: Option<Value>,
}

// === impl Opened ===

impl Opened {
    /// The agent has answered, and this is it.
    pub(super) fn set(&self, answer: Json) {
        let (mode, options) = {
            let mut standing = lock(&self.0);
            standing.answer = Some(answer);
            (standing.mode.take(), standing.options.take())
        };
        mode.iter().for_each(|mode| self.put_mode(mode));
        options.iter().for_each(|options| self.put_options(options));
    }

    /// The agent has answered: what it told before is in the answer.
    pub(super) fn answered(&self) {
        let mut standing = lock(&self.0);
        standing.mode = None;
        standing.options = None;
    }

    /// The answer as it would be now.
    pub(super) fn now(&self) -> Json {
        lock(&self.0).answer.clone().unwrap_or_else(Json::empty_object)
    }

    /// The agent tells of something: takes what it says of its mode or options.
    pub(super) fn told(&self, kind: &str, params: &str) {
        let member = match kind {
            "current_mode_update" => "currentModeId",
            "config_option_update" => "configOptions",
            _ => return,
        };
        let update: Option<Value> = serde_json::from_str(params).ok();
        let told = update.as_ref().and_then(|params| params.pointer("/update")?.get(member));
        match (member, told) {
            ("currentModeId", Some(mode)) => self.put_mode(mode),
            (_, Some(options)) if options.is_array() => self.put_options(options),
            _ => {}
        }
    }

    /// A client, or we for one, gave the session a mode or an option, and this is the result.
    pub(super) fn was_set(&self, method: &str, params: &str, result: &str) {
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        match method {
            "session/set_mode" => {
                if let Some(mode) = read(params).get("modeId") {
                    self.put_mode(mode);
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
        if self.waits(|standing| standing.mode = Some(mode.clone())) {
            return;
        }
        self.change(|answer| {
            if let Some(known) = answer.pointer_mut("/modes/currentModeId") {
                *known = mode.clone();
            }
        });
    }

    fn put_options(&self, options: &Value) {
        if self.waits(|standing| standing.options = Some(options.clone())) {
            return;
        }
        self.change(|answer| {
            if let Some(answer) = answer.as_object_mut() {
                answer.insert("configOptions".to_owned(), options.clone());
            }
        });
    }

    /// Whether the answer is not known yet: then this is kept for it.
    fn waits(&self, keep: impl FnOnce(&mut Standing)) -> bool {
        let mut standing = lock(&self.0);
        if standing.answer.is_some() {
            return false;
        }
        keep(&mut standing);
        true
    }

    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut standing = lock(&self.0);
        let Some(answer) = standing.answer.as_mut() else { return };
        let mut value = answer.to_value();
        change(&mut value);
        *answer = Json::from_value(&value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_behind_the_answer_is_newer_than_it() {
        let told = |opened: &Opened, mode: &str| {
            let params = serde_json::json!({ "update": { "currentModeId": mode } });
            opened.told("current_mode_update", &params.to_string());
        };
        let answer = serde_json::json!({ "modes": { "currentModeId": "answered" } });
        let mode = |opened: &Opened| opened.now().to_value()["modes"]["currentModeId"].clone();
        for is_behind in [false, true] {
            let opened = Opened::default();
            told(&opened, "before");
            opened.answered();
            if is_behind {
                told(&opened, "behind");
            }
            opened.set(Json::from_value(&answer));
            assert_eq!(mode(&opened), if is_behind { "behind" } else { "answered" });
            told(&opened, "later");
            assert_eq!(mode(&opened), "later");
        }
    }
}
