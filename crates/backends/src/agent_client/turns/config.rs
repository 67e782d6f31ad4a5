//! The configuration of a run: the mode and the options of the agent's session, each by its id or its name.

use serde_json::{Value, json};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{AgentName, Json};
use trilogue_runtime::ThreadContext;

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::opening::note_choice;
use crate::agent_client::process::SERVER_CALL_TIMEOUT;
use crate::agent_client::session::Session;

/// The members of a configuration that name the mode. An agent may have an option of the same name instead.
const MODE_NAMES: [&str; 3] = ["mode", "modeId", "mode_id"];

/// A change of the session's settings.
#[derive(Debug, PartialEq)]
struct Setting {
    method: &'static str,
    /// The params beside the session's id.
    params: Value,
}

/// Sets the session as the configuration wants it. Other members than the agent's settings are refused.
pub(super) async fn configure(
    thread: &ThreadContext,
    session: &Session,
    config: &Json,
) -> Result<(), AgentFailure> {
    let config = config.to_value();
    let members = match &config {
        Value::Object(members) => members.clone(),
        Value::Null => return Ok(()),
        _ => return Err(refused(thread.agent(), "the configuration is not an object", session)),
    };
    for (name, value) in members {
        // An option that was set before may have changed this one.
        let now = session.modes().current().to_value();
        let setting =
            setting(&now, &name, &value).map_err(|why| refused(thread.agent(), &why, session))?;
        let Some(Setting { method, mut params }) = setting else { continue };
        params["sessionId"] = session.remote().into();
        let result = session.process().call(method, &params, SERVER_CALL_TIMEOUT).await?;
        session.modes().was_set(method, &params.to_string(), result.as_str());
        // The agent's own notifications come first in the log.
        session.caught_up().await;
        note_choice(thread, session, &params).await;
    }
    Ok(())
}

/// The change by which a member of the configuration holds. `None` if it holds already.
fn setting(now: &Value, name: &str, value: &Value) -> Result<Option<Setting>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let modes = list(&now["modes"]["availableModes"]);
    if MODE_NAMES.contains(&name) && !modes.is_empty() {
        let mode = modes.iter().find(|mode| is_named(mode, "id", value));
        let id = &mode.ok_or_else(|| format!("there is no mode {value}"))?["id"];
        if now["modes"]["currentModeId"] == *id {
            return Ok(None);
        }
        let params = json!({ "modeId": id });
        return Ok(Some(Setting { method: "session/set_mode", params }));
    }
    let options = list(&now["configOptions"]);
    let option = options.iter().find(|option| is_named(option, "id", &name.into()));
    let option = option.ok_or_else(|| format!("there is no option '{}'", name.escape_debug()))?;
    let value = if option["type"] == "boolean" {
        value.is_boolean().then(|| value.clone())
    } else {
        choices(option)
            .find(|choice| is_named(choice, "value", value))
            .map(|it| it["value"].clone())
    };
    let value =
        value.ok_or_else(|| format!("the option '{}' has no such value", name.escape_debug()))?;
    if option["currentValue"] == value {
        return Ok(None);
    }
    let mut params = json!({ "configId": option["id"], "value": value });
    if value.is_boolean() {
        params["type"] = "boolean".into();
    }
    Ok(Some(Setting { method: "session/set_config_option", params }))
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

fn refused(agent: &AgentName, why: &str, session: &Session) -> AgentFailure {
    let message = format!("`config` does not fit the agent '{agent}': {why}");
    let has = settings_of(&session.modes().current().to_value());
    let hint = if has.is_empty() {
        "this agent has no settings; leave `config` out".to_owned()
    } else {
        format!("the agent has: {}", has.join("; "))
    };
    Error::new(Code::ConfigInvalid, message).hint(hint).into()
}

/// The settings that an agent has, with their values.
fn settings_of(now: &Value) -> Vec<String> {
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
                { "id": "loud", "name": "Loud", "type": "boolean", "currentValue": false },
            ],
        });
        let of =
            |name: &str, value: Value| setting(&now, name, &value).map(|it| it.map(|it| it.params));
        for mode in ["ro", "Read Only", "read only"] {
            assert_eq!(of("mode", mode.into()), Ok(Some(json!({ "modeId": "ro" }))));
        }
        assert_eq!(of("mode", "ask".into()), Ok(None));
        for (name, value) in [("model", "l"), ("Model", "large")] {
            let params = json!({ "configId": "model", "value": "l" });
            assert_eq!(of(name, value.into()), Ok(Some(params)));
        }
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
        assert_eq!(settings_of(&now), ["mode (ask, ro)", "model (s, l)", "loud (true, false)"]);
    }
}
