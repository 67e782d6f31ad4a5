//! The settings that a session offers, and the requests that set them: each is found by its id, its name or its category.

use serde_json::{Value, json};

use super::session::Session;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::process::SERVER_CALL_TIMEOUT;
use crate::permission::unattended::is_unattended;

/// The members that name the mode. An agent may have an option with such a name instead.
const MODE_NAMES: [&str; 3] = ["mode", "modeId", "mode_id"];
/// The member that names the model, for an agent with a list of models instead of an option.
const MODEL_NAME: &str = "model";

/// A change of the session's settings.
#[derive(Debug, PartialEq)]
pub(crate) struct SessionSetting {
    method: &'static str,
    /// The params without the session's id.
    params: Value,
    /// Whether the agent asks less with it, under any of its names.
    is_unattended: bool,
}

// === impl SessionSetting ===

impl SessionSetting {
    pub(crate) fn is_unattended(&self) -> bool {
        self.is_unattended
    }

    /// Sets it, and returns the params of the request.
    pub(crate) async fn apply(self, session: &Session) -> Result<Value, AgentFailure> {
        let Self { method, mut params, .. } = self;
        params["sessionId"] = session.remote().into();
        let result = session.process().call(method, &params, SERVER_CALL_TIMEOUT).await?;
        session.modes().record_setting(method, &params.to_string(), result.as_str());
        // Log the agent's own notifications first.
        session.wait_until_caught_up().await;
        Ok(params)
    }
}

/// The change that makes a member of the configuration true. `None` if it is true already. `unattended` are values of the agent with which it asks less.
pub(crate) fn setting(
    now: &Value,
    name: &str,
    value: &Value,
    unattended: &[String],
) -> Result<Option<SessionSetting>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let modes = list(&now["modes"]["availableModes"]);
    if MODE_NAMES.contains(&name) && !modes.is_empty() {
        let mode = modes.iter().find(|mode| is_named(mode, "id", value));
        let mode = mode.ok_or_else(|| format!("unknown mode {value}"))?;
        let id = &mode["id"];
        if now["modes"]["currentModeId"] == *id {
            return Ok(None);
        }
        let params = json!({ "modeId": id });
        let is_unattended = is_unattended(&[name], &texts([id, &mode["name"]]), unattended);
        return Ok(Some(SessionSetting { method: "session/set_mode", params, is_unattended }));
    }
    let options = list(&now["configOptions"]);
    let option = options.iter().find(|option| is_named(option, "id", &name.into()));
    // Agents name the option of a category freely.
    let option = option.or_else(|| options.iter().find(|option| option["category"] == name));
    let models = list(&now["models"]["availableModels"]);
    if option.is_none() && name == MODEL_NAME && !models.is_empty() {
        let model = models.iter().find(|model| is_named(model, "modelId", value));
        let id = &model.ok_or_else(|| format!("unknown model {value}"))?["modelId"];
        if now["models"]["currentModelId"] == *id {
            return Ok(None);
        }
        let params = json!({ "modelId": id });
        let is_unattended = false;
        return Ok(Some(SessionSetting { method: "session/set_model", params, is_unattended }));
    }
    let option = option.ok_or_else(|| format!("unknown option '{}'", name.escape_debug()))?;
    let choice = if option["type"] == "boolean" {
        value.is_boolean().then(|| json!({ "value": value, "name": value.to_string() }))
    } else {
        choices(option).find(|choice| is_named(choice, "value", value))
    };
    let choice =
        choice.ok_or_else(|| format!("unknown value for the option '{}'", name.escape_debug()))?;
    let value = choice["value"].clone();
    if option["currentValue"] == value {
        return Ok(None);
    }
    let mut params = json!({ "configId": option["id"], "value": value });
    if value.is_boolean() {
        params["type"] = "boolean".into();
    }
    // The category says that an option is a mode, under any name.
    let names = texts([&option["id"], &option["name"], &option["category"]]);
    let is_unattended =
        is_unattended(&names, &texts([&choice["value"], &choice["name"]]), unattended);
    Ok(Some(SessionSetting { method: "session/set_config_option", params, is_unattended }))
}

fn texts<const N: usize>(values: [&Value; N]) -> Vec<&str> {
    values.into_iter().filter_map(Value::as_str).collect()
}

/// The values of an option, in groups or not.
fn choices(option: &Value) -> impl Iterator<Item = Value> {
    let all = option["options"].as_array().cloned().unwrap_or_default();
    all.into_iter().flat_map(|choice| match choice["options"].as_array() {
        Some(group) => group.clone(),
        None => vec![choice],
    })
}

/// Whether a text is the id of a choice, or its name in any case.
fn is_named(choice: &Value, id: &str, text: &Value) -> bool {
    let Some(text) = text.as_str() else { return false };
    let name = choice["name"].as_str().unwrap_or_default();
    choice[id] == text || name.to_lowercase() == text.to_lowercase()
}

/// The settings that an agent has, with their values.
pub(crate) fn settings_of(now: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let ids = |all: &[Value], id: &str| -> String {
        let ids: Vec<_> = all.iter().filter_map(|one| one[id].as_str()).collect();
        ids.join(", ")
    };
    let modes = list(&now["modes"]["availableModes"]);
    let mut settings = Vec::new();
    if !modes.is_empty() {
        settings.push(format!("mode ({})", ids(&modes, "id")));
    }
    let models = list(&now["models"]["availableModels"]);
    if !models.is_empty() {
        settings.push(format!("model ({})", ids(&models, "modelId")));
    }
    for option in list(&now["configOptions"]) {
        let values = match option["type"] == "boolean" {
            true => "true, false".to_owned(),
            false => ids(&choices(&option).collect::<Vec<_>>(), "value"),
        };
        settings.push(format!("{} ({values})", option["id"].as_str().unwrap_or_default()));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_id_and_by_name() {
        let now = json!({
            "modes": {
                "currentModeId": "ask",
                "availableModes": [{ "id": "ask", "name": "Ask" }, { "id": "ro", "name": "Read Only" }],
            },
            "configOptions": [
                { "id": "model", "name": "Model", "type": "select", "currentValue": "s", "options": [
                    { "group": "g", "name": "G", "options": [{ "value": "s", "name": "Small" }, { "value": "l", "name": "Large" }] },
                ] },
                { "id": "effort", "name": "E", "category": "thought_level", "type": "select", "currentValue": "a", "options": [{ "value": "b", "name": "B" }] },
                { "id": "loud", "name": "Loud", "type": "boolean", "currentValue": false },
            ],
        });
        let of = |name: &str, value: Value| {
            setting(&now, name, &value, &[]).map(|it| it.map(|it| it.params))
        };
        for mode in ["ro", "Read Only", "read only"] {
            assert_eq!(of("mode", mode.into()), Ok(Some(json!({ "modeId": "ro" }))));
        }
        assert_eq!(of("mode", "ask".into()), Ok(None));
        for (name, value) in [("model", "l"), ("Model", "large")] {
            let params = json!({ "configId": "model", "value": "l" });
            assert_eq!(of(name, value.into()), Ok(Some(params)));
        }
        let effort = json!({ "configId": "effort", "value": "b" });
        assert_eq!(of("thought_level", "b".into()), Ok(Some(effort)));
        let models = json!({ "models": {
            "currentModelId": "m1",
            "availableModels": [{ "modelId": "m1", "name": "One" }, { "modelId": "m2", "name": "Two" }],
        } });
        let model = |value: &str| {
            setting(&models, "model", &value.into(), &[]).map(|it| it.map(|it| it.params))
        };
        assert_eq!(model("two"), Ok(Some(json!({ "modelId": "m2" }))));
        assert_eq!(model("m1"), Ok(None));
        assert!(model("m3").is_err());
        let loud = json!({ "configId": "loud", "value": true, "type": "boolean" });
        assert_eq!(of("loud", true.into()), Ok(Some(loud)));
        assert_eq!(of("loud", false.into()), Ok(None));
        for (name, value) in [
            ("mode", json!("x")),
            ("mode", json!(1)),
            ("model", json!("x")),
            ("loud", json!("x")),
            ("x", json!(1)),
        ] {
            assert!(of(name, value.clone()).is_err(), "{name} {value}");
        }
        assert_eq!(
            settings_of(&now),
            ["mode (ask, ro)", "model (s, l)", "effort (b)", "loud (true, false)"]
        );
    }

    #[test]
    fn a_setting_is_known_to_ask_less_by_any_of_its_names() {
        let now = json!({
            "modes": { "currentModeId": "m0", "availableModes": [
                { "id": "m0", "name": "Ask" },
                { "id": "m1", "name": "Bypass permissions" },
                { "id": "yolo", "name": "Fast" },
                { "id": "m2", "name": "House style" },
                { "id": "m3", "name": "Plan" },
            ] },
            "configOptions": [
                { "id": "o1", "name": "Approval policy", "type": "select", "currentValue": "a", "options": [{ "value": "b", "name": "B" }] },
                { "id": "o2", "name": "Skip permissions", "type": "boolean", "currentValue": false },
                { "id": "o3", "name": "Loud", "type": "boolean", "currentValue": false },
            ],
        });
        for (name, value, asks_less) in [
            ("mode", json!("m1"), true),
            ("mode", json!("Fast"), true),
            ("mode", json!("m2"), true),
            ("mode", json!("m3"), false),
            ("o1", json!("b"), true),
            ("o2", json!(true), true),
            ("o3", json!(true), false),
        ] {
            let setting = setting(&now, name, &value, &["house style".to_owned()]);
            let setting = setting.unwrap().unwrap();
            assert_eq!(setting.is_unattended(), asks_less, "{name} {value}");
        }
    }
}
