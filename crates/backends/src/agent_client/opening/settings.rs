//! Restores the mode and the options of a thread's session after another process has opened it. Sets the clients' choices again, and notifies the clients of the differences.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trilogue_domain::event::{Original, StateEvent};
use trilogue_domain::{Body, Json};
use trilogue_mapping::agent_client::{body_of_update, update_original};
use trilogue_runtime::ThreadContext;

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::process::SERVER_CALL_TIMEOUT;
use crate::agent_client::session::Session;

/// The events about a session's mode and options: its opening, and the changes since.
const KINDS: [&str; 4] = [OPENED, SET, MODE, OPTIONS];
const OPENED: &str = "session_opened";
/// A client has set the mode or an option.
const SET: &str = "session_set";
const AGENT: &str = "agent";
/// The agent reports another mode.
const MODE: &str = "current_mode_update";
/// The agent reports other options.
const OPTIONS: &str = "config_option_update";

#[derive(Debug, Default)]
struct Settings {
    /// The mode that clients know.
    mode: Option<String>,
    /// The options that clients know.
    options: Option<Value>,
    /// The mode that a client chose, unless it was changed since.
    chosen_mode: Option<String>,
    /// The values that clients chose, by option: the members of the request. Values that were changed since are left out.
    chosen: BTreeMap<String, Value>,
}

/// Applies the settings of the thread's session to a session that another process has opened, if its agent accepts them.
pub(super) async fn restore(thread: &ThreadContext, session: &Session) -> Result<(), AgentFailure> {
    let mut settings = Settings::default();
    let agent = thread.agent().as_str();
    let each = |kind: &str, data: &Json, is_ours: bool| {
        let data = data.to_value();
        // Only the choices of clients for this agent count, not the agent's own events.
        let is_of_agent = data.get(AGENT).is_none_or(|of| of == agent);
        if is_ours != matches!(kind, MODE | OPTIONS) && (kind != SET || is_of_agent) {
            settings.push(kind, &data);
        }
    };
    thread.each_state(&KINDS, each).await?;
    let mut done = Vec::new();
    if let Some(mode) = settings.mode_to_set(&session.modes().current().to_value()) {
        let params = json!({ "sessionId": session.remote(), "modeId": mode });
        if set(session, "session/set_mode", &params).await? {
            done.push(json!({ "sessionUpdate": MODE, "currentModeId": mode }));
        }
    }
    for (option, choice) in &settings.chosen {
        // The option that was set before may have changed this one.
        let now = session.modes().current().to_value();
        if value_of(now.get("configOptions"), option).is_none_or(|it| *it == choice["value"]) {
            continue;
        }
        let mut params = choice.clone();
        params["sessionId"] = session.remote().into();
        params["configId"] = option.as_str().into();
        if set(session, "session/set_config_option", &params).await? {
            let options = session.modes().current().to_value().get("configOptions").cloned();
            let chosen = json!({ option.as_str(): choice });
            done.push(
                json!({ "sessionUpdate": OPTIONS, "configOptions": options, "chosen": chosen }),
            );
        }
    }
    // Log the agent's own notifications first.
    session.wait_until_caught_up().await;
    for mut data in done {
        data[AGENT] = agent.into();
        settings.push(SET, &data);
        let data = Json::from_value(&data);
        let body = Body::State(StateEvent::Custom { kind: SET.to_owned(), data });
        note(thread, body, None).await;
    }
    for update in settings.updates(&session.modes().current().to_value()) {
        let params = json!({ "sessionId": "", "update": update }).to_string();
        let body = body_of_update(&params);
        note(thread, body, Some(update_original(params))).await;
    }
    Ok(())
}

/// Logs that a client chose a mode or an option with these params of a request. Another process restores the choice, and clients learn of it.
pub(in crate::agent_client) async fn note_choice(
    thread: &ThreadContext,
    session: &Session,
    params: &Value,
) {
    let mut data = match (params.get("modeId"), params["configId"].as_str()) {
        (Some(mode), _) => json!({ "sessionUpdate": MODE, "currentModeId": mode }),
        (None, Some(option)) => {
            let mut choice = params.clone();
            if let Some(members) = choice.as_object_mut() {
                members.retain(|name, _| !matches!(name.as_str(), "sessionId" | "configId"));
            }
            let options = session.modes().current().to_value().get("configOptions").cloned();
            json!({ "sessionUpdate": OPTIONS, "configOptions": options, "chosen": { option: choice } })
        }
        (None, None) => return,
    };
    data[AGENT] = thread.agent().as_str().into();
    let body =
        Body::State(StateEvent::Custom { kind: SET.to_owned(), data: Json::from_value(&data) });
    note(thread, body, None).await;
}

/// Logs an event in the thread. A failure is ignored: the session works without it.
async fn note(thread: &ThreadContext, body: Body, original: Option<Original>) {
    if let Err(error) = thread.append_event(body, original).await {
        let thread = thread.thread();
        tracing::warn!(%thread, %error, "the settings of an agent's session were not logged");
    }
}

async fn set(session: &Session, method: &str, params: &Value) -> Result<bool, AgentFailure> {
    match session.process().call(method, params, SERVER_CALL_TIMEOUT).await {
        Ok(result) => {
            session.modes().record_setting(method, &params.to_string(), result.as_str());
            Ok(true)
        }
        Err(failure @ AgentFailure::Exited(_)) => Err(failure),
        Err(failure) => {
            let why = failure.text();
            tracing::info!(method, why, "the agent refused a setting that a client had chosen");
            Ok(false)
        }
    }
}

// === impl Settings ===

impl Settings {
    fn push(&mut self, kind: &str, data: &Value) {
        let mode = data.get("currentModeId").and_then(Value::as_str);
        let options = data.get("configOptions").filter(|it| it.is_array());
        match kind {
            OPENED => {
                let mode = data.pointer("/modes/currentModeId").and_then(Value::as_str);
                self.mode = mode.map(str::to_owned);
                self.options = options.cloned();
            }
            SET | MODE | OPTIONS => {
                self.mode = mode.map(str::to_owned).or(self.mode.take());
                self.options = options.cloned().or(self.options.take());
            }
            _ => return,
        }
        if kind == SET {
            if let Some(mode) = mode {
                self.chosen_mode = Some(mode.to_owned());
            }
            let chosen = data.get("chosen").and_then(Value::as_object);
            let chosen = chosen.into_iter().flatten();
            let chosen = chosen.filter(|(_, choice)| choice.is_object());
            self.chosen.extend(chosen.map(|(option, choice)| (option.clone(), choice.clone())));
        }
        // A value that changed since is no longer the client's choice.
        let (mode, options) = (&self.mode, self.options.as_ref());
        self.chosen_mode.take_if(|chosen| mode.as_ref().is_some_and(|mode| mode != chosen));
        self.chosen.retain(|option, choice| {
            value_of(options, option).is_none_or(|value| *value == choice["value"])
        });
    }

    /// The mode to set again in a session with these modes.
    fn mode_to_set(&self, now: &Value) -> Option<&str> {
        let chosen = self.chosen_mode.as_deref()?;
        let Some(modes) = now.get("modes").filter(|modes| modes.is_object()) else {
            // The agent does not report its mode.
            return Some(chosen);
        };
        let mut offered = modes["availableModes"].as_array().into_iter().flatten();
        let is_offered = offered.any(|mode| mode["id"] == chosen);
        (is_offered && modes["currentModeId"] != chosen).then_some(chosen)
    }

    /// The updates that notify clients of this session's settings.
    fn updates(&self, now: &Value) -> Vec<Value> {
        let mut updates = Vec::new();
        if let (Some(told), Some(mode)) = (&self.mode, now.pointer("/modes/currentModeId"))
            && mode != told.as_str()
        {
            updates.push(json!({ "sessionUpdate": MODE, "currentModeId": mode }));
        }
        if let (Some(told), Some(options)) = (&self.options, now.get("configOptions"))
            && options.is_array()
            && options != told
        {
            updates.push(json!({ "sessionUpdate": OPTIONS, "configOptions": options }));
        }
        updates
    }
}

fn value_of<'a>(options: Option<&'a Value>, option: &str) -> Option<&'a Value> {
    let mut options = options?.as_array()?.iter();
    options.find(|it| it["id"] == option)?.get("currentValue")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(events: &[(&str, Value)]) -> Settings {
        let mut settings = Settings::default();
        for (kind, data) in events {
            settings.push(kind, data);
        }
        settings
    }

    fn open_response(mode: &str, model: &str) -> Value {
        json!({
            "modes": { "currentModeId": mode, "availableModes": [{ "id": "ask" }, { "id": "code" }] },
            "configOptions": [{ "id": "model", "currentValue": model }],
        })
    }

    fn options(model: &str) -> Value {
        json!([{ "id": "model", "currentValue": model }])
    }

    #[test]
    fn a_choice_holds_until_somebody_changes_it() {
        let set = json!({ "currentModeId": "code" });
        let chosen = [(OPENED, open_response("ask", "a")), (SET, set.clone())];
        assert_eq!(of(&chosen).mode_to_set(&open_response("ask", "a")), Some("code"));
        assert_eq!(of(&chosen).mode_to_set(&open_response("code", "a")), None);
        assert_eq!(of(&chosen).mode_to_set(&json!({})), Some("code"));
        assert_eq!(of(&chosen).mode_to_set(&json!({ "modes": { "availableModes": [] } })), None);
        let told = |mode: &str| (MODE, json!({ "currentModeId": mode }));
        for (later, kept) in [(told("code"), true), (told("ask"), false)] {
            let settings = of(&[(SET, set.clone()), later.clone()]);
            assert_eq!(settings.chosen_mode.is_some(), kept, "{later:?}");
        }
        let choice = json!({ "model": { "value": "b" } });
        let set = json!({ "configOptions": options("b"), "chosen": choice });
        let settings = of(&[(OPENED, open_response("ask", "a")), (SET, set.clone())]);
        assert_eq!(settings.chosen["model"], json!({ "value": "b" }));
        let settings = of(&[(SET, set), (OPTIONS, json!({ "configOptions": options("a") }))]);
        assert!(settings.chosen.is_empty());
    }

    #[test]
    fn only_differences_from_what_clients_know_are_updates() {
        let settings = of(&[(OPENED, open_response("ask", "a"))]);
        assert_eq!(settings.updates(&open_response("ask", "a")), Vec::<Value>::new());
        assert_eq!(settings.updates(&json!({})), Vec::<Value>::new());
        let updates = settings.updates(&open_response("code", "b"));
        assert_eq!(updates[0]["currentModeId"], "code");
        assert_eq!(updates[1]["configOptions"], options("b"));
        // Clients that support no modes show none.
        assert_eq!(Settings::default().updates(&open_response("code", "b")), Vec::<Value>::new());
    }
}
