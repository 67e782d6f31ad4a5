//! The mode and the options of a thread's session, when another process has taken it over: what its clients chose is chosen again, and what they do not know yet is told.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trilogue_domain::event::{Original, StateEvent};
use trilogue_domain::{Body, Json};
use trilogue_mapping::agent_client::body_of_update;
use trilogue_runtime::ThreadContext;

use super::open::CLOSING;
use super::session::Session;
use super::trouble::Trouble;
use super::{Inner, original};

/// The events of a log that say how a session stands: its opening, and what changed since.
const KINDS: [&str; 4] = [OPENED, SET, MODE, OPTIONS];
/// What an agent answered when its session was opened.
const OPENED: &str = "session_opened";
/// A client has chosen a mode or options.
const SET: &str = "session_set";
/// Its member that says whose session it was.
const AGENT: &str = "agent";
/// The agent tells of another mode.
const MODE: &str = "current_mode_update";
/// The agent tells of other options.
const OPTIONS: &str = "config_option_update";

/// What a log says of a session's mode and options.
#[derive(Debug, Default)]
struct Settings {
    /// The mode, as clients were told.
    mode: Option<String>,
    /// The options, as clients were told.
    options: Option<Value>,
    /// The mode that a client chose, while nobody has changed it since.
    chosen_mode: Option<String>,
    /// The values that clients chose, by option, likewise: the members of the request that say which.
    chosen: BTreeMap<String, Value>,
}

// === impl Inner ===

impl Inner {
    /// Brings a session that another process opened to where the thread's session was, as far as its agent goes along.
    pub(super) async fn settle(
        &self,
        thread: &ThreadContext,
        session: &Session,
    ) -> Result<(), Trouble> {
        let mut settings = Settings::default();
        let agent = thread.agent().as_str();
        let each = |kind: &str, data: &Json, is_ours: bool| {
            let data = data.to_value();
            // What an agent says never counts as what clients chose, nor what they chose for another one.
            let is_of_it = data.get(AGENT).is_none_or(|of| of == agent);
            if is_ours != matches!(kind, MODE | OPTIONS) && (kind != SET || is_of_it) {
                settings.push(kind, &data);
            }
        };
        thread.each_state(&KINDS, each).await?;
        let mut set = Vec::new();
        if let Some(mode) = settings.mode_to_choose(&session.opened().now().to_value()) {
            let params = json!({ "sessionId": session.remote(), "modeId": mode });
            if choose(session, "session/set_mode", &params).await? {
                set.push(json!({ "sessionUpdate": MODE, "currentModeId": mode }));
            }
        }
        for (option, choice) in &settings.chosen {
            // One that was chosen before may have changed this one.
            let now = session.opened().now().to_value();
            if value_of(now.get("configOptions"), option).is_none_or(|it| *it == choice["value"]) {
                continue;
            }
            let mut params = choice.clone();
            params["sessionId"] = session.remote().into();
            params["configId"] = option.as_str().into();
            if choose(session, "session/set_config_option", &params).await? {
                let options = session.opened().now().to_value().get("configOptions").cloned();
                let chosen = json!({ option.as_str(): choice });
                set.push(
                    json!({ "sessionUpdate": OPTIONS, "configOptions": options, "chosen": chosen }),
                );
            }
        }
        // What the agent told of it by itself stands before.
        session.caught_up().await;
        for mut data in set {
            data[AGENT] = agent.into();
            settings.push(SET, &data);
            let data = Json::from_value(&data);
            let body = Body::State(StateEvent::Custom { kind: SET.to_owned(), data });
            note(thread, body, None).await;
        }
        for update in settings.news(&session.opened().now().to_value()) {
            let params = json!({ "sessionId": "", "update": update }).to_string();
            let body = body_of_update(&params);
            note(thread, body, Some(original::of_update(params))).await;
        }
        Ok(())
    }
}

/// Notes something in the thread. A session works without it, too.
async fn note(thread: &ThreadContext, body: Body, original: Option<Original>) {
    if let Err(error) = thread.note(body, original).await {
        let thread = thread.thread();
        tracing::warn!(%thread, %error, "how an agent's session stands is not noted");
    }
}

/// Chooses something for a client. `false` where the agent refuses.
async fn choose(session: &Session, method: &str, params: &Value) -> Result<bool, Trouble> {
    match session.process().call(method, params, CLOSING).await {
        Ok(result) => {
            session.opened().was_set(method, &params.to_string(), result.as_str());
            Ok(true)
        }
        Err(trouble @ Trouble::Lost(_)) => Err(trouble),
        Err(trouble) => {
            let why = trouble.text();
            tracing::info!(method, why, "what a client chose is not chosen again");
            Ok(false)
        }
    }
}

// === impl Settings ===

impl Settings {
    /// Takes the next event of a kind.
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
        // What somebody has changed since is not their choice any more.
        let (mode, options) = (&self.mode, self.options.as_ref());
        self.chosen_mode.take_if(|chosen| mode.as_ref().is_some_and(|mode| mode != chosen));
        self.chosen.retain(|option, choice| {
            value_of(options, option).is_none_or(|value| *value == choice["value"])
        });
    }

    /// The mode to choose again in a session that stands so.
    fn mode_to_choose(&self, now: &Value) -> Option<&str> {
        let chosen = self.chosen_mode.as_deref()?;
        let Some(modes) = now.get("modes").filter(|modes| modes.is_object()) else {
            // An agent that does not say it may be in any.
            return Some(chosen);
        };
        let mut offered = modes["availableModes"].as_array().into_iter().flatten();
        let is_offered = offered.any(|mode| mode["id"] == chosen);
        (is_offered && modes["currentModeId"] != chosen).then_some(chosen)
    }

    /// What clients have to be told of a session that stands so.
    fn news(&self, now: &Value) -> Vec<Value> {
        let mut news = Vec::new();
        if let (Some(told), Some(mode)) = (&self.mode, now.pointer("/modes/currentModeId"))
            && mode != told.as_str()
        {
            news.push(json!({ "sessionUpdate": MODE, "currentModeId": mode }));
        }
        if let (Some(told), Some(options)) = (&self.options, now.get("configOptions"))
            && options.is_array()
            && options != told
        {
            news.push(json!({ "sessionUpdate": OPTIONS, "configOptions": options }));
        }
        news
    }
}

/// The value that an option has.
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

    fn opened(mode: &str, model: &str) -> Value {
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
        let chosen = [(OPENED, opened("ask", "a")), (SET, set.clone())];
        assert_eq!(of(&chosen).mode_to_choose(&opened("ask", "a")), Some("code"));
        assert_eq!(of(&chosen).mode_to_choose(&opened("code", "a")), None);
        assert_eq!(of(&chosen).mode_to_choose(&json!({})), Some("code"));
        assert_eq!(of(&chosen).mode_to_choose(&json!({ "modes": { "availableModes": [] } })), None);
        let told = |mode: &str| (MODE, json!({ "currentModeId": mode }));
        for (later, kept) in [(told("code"), true), (told("ask"), false)] {
            let settings = of(&[(SET, set.clone()), later.clone()]);
            assert_eq!(settings.chosen_mode.is_some(), kept, "{later:?}");
        }
        let choice = json!({ "model": { "value": "b" } });
        let set = json!({ "configOptions": options("b"), "chosen": choice });
        let settings = of(&[(OPENED, opened("ask", "a")), (SET, set.clone())]);
        assert_eq!(settings.chosen["model"], json!({ "value": "b" }));
        let settings = of(&[(SET, set), (OPTIONS, json!({ "configOptions": options("a") }))]);
        assert!(settings.chosen.is_empty());
    }

    #[test]
    fn only_what_differs_from_what_was_told_is_news() {
        let settings = of(&[(OPENED, opened("ask", "a"))]);
        assert_eq!(settings.news(&opened("ask", "a")), Vec::<Value>::new());
        assert_eq!(settings.news(&json!({})), Vec::<Value>::new());
        let news = settings.news(&opened("code", "b"));
        assert_eq!(news[0]["currentModeId"], "code");
        assert_eq!(news[1]["configOptions"], options("b"));
        // Who was never told of modes shows none.
        assert_eq!(Settings::default().news(&opened("code", "b")), Vec::<Value>::new());
    }
}
