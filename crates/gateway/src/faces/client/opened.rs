//! What the log says of a hosted agent's own session.

use serde_json::{Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, StateEvent};
use trilogue_domain::{Body, Json};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::ThreadContext;
use trilogue_wire::agent_client::SessionConfigOption;

use super::link::{Answer, Link};
use super::session::Session;

/// The kind of the event that keeps what an agent said when its session was opened.
const KIND: &str = "session_opened";
/// The kind of the event that keeps which mode or options a client gave the agent's session.
const SET: &str = "session_set";
/// Its member that says which options the client chose. Clients do not see it.
const CHOSEN: &str = "chosen";
/// Its member that says whose session it was. Clients do not see it either.
const AGENT: &str = "agent";

/// What the log says of a hosted agent's own session: its modes and options when it was opened, and as they are now.
#[derive(Debug, Default)]
pub(super) struct Opened {
    result: Option<Value>,
    mode: Option<Value>,
    options: Option<Value>,
    /// The commands that the agent told of last.
    pub(super) commands: Option<Event>,
}

/// Which event it was.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Pushed {
    /// One that clients see.
    Shown,
    /// One that no client sees.
    Hidden,
    /// A client gave the agent's session a mode or options: this update says so, and whether that is news.
    Set(Value, bool),
}

// === impl Opened ===

impl Opened {
    /// Takes the next event.
    pub(super) fn push(&mut self, event: &Event) -> Pushed {
        let Body::State(StateEvent::Custom { kind, data }) = &event.body else {
            return Pushed::Shown;
        };
        match kind.as_str() {
            KIND if event.original.is_none() => {
                let (result, commands) = (Some(data.to_value()), self.commands.take());
                *self = Self { result, commands, ..Self::default() };
                return Pushed::Hidden;
            }
            SET if event.original.is_none() => {
                let mut update = data.to_value();
                if let Some(members) = update.as_object_mut() {
                    members.remove(CHOSEN);
                    members.remove(AGENT);
                }
                return self.set(update);
            }
            "current_mode_update" => {
                self.mode = data.to_value().get("currentModeId").cloned();
            }
            "config_option_update" => {
                self.options = data.to_value().get("configOptions").cloned();
            }
            "available_commands_update" => self.commands = Some(event.clone()),
            _ => {}
        }
        Pushed::Shown
    }

    fn set(&mut self, update: Value) -> Pushed {
        let (place, now) = match (update.get("currentModeId"), update.get("configOptions")) {
            (Some(mode), _) => (&mut self.mode, mode),
            (_, Some(options)) => (&mut self.options, options),
            _ => return Pushed::Hidden,
        };
        // The agent may have told of it itself.
        let is_news = place.as_ref() != Some(now);
        *place = Some(now.clone());
        Pushed::Set(update, is_news)
    }

    /// What a client is answered that opens the session again.
    ///
    /// `config` is what the thread's runs are given.
    pub(super) fn answer(&self, link: &Link, session: &Session, config: Option<&Json>) -> Answer {
        match link.backend() {
            Ok(backend) if backend.sessions().is_some() => Ok(self.result(link)),
            Ok(backend) => Ok(result(&options_of(link, backend.card(), config))),
            Err(error) => Err(mapping::session_error(&error, session.id())),
        }
    }

    fn result(&self, link: &Link) -> Vec<u8> {
        let mut result = self.result.clone().filter(Value::is_object).unwrap_or_else(|| json!({}));
        if let (Some(mode), Some(known)) = (&self.mode, result.pointer_mut("/modes/currentModeId"))
        {
            *known = mode.clone();
        }
        if let (Some(options), Some(object)) = (&self.options, result.as_object_mut()) {
            object.insert("configOptions".to_owned(), options.clone());
        }
        shown(link, &result.to_string())
    }
}

/// What an agent said when its session was opened, as this client can show it.
pub(super) fn shown(link: &Link, result: &str) -> Vec<u8> {
    let can = link.met().is_some_and(|met| {
        let session = met.client.session.as_ref();
        let options = session.and_then(|session| session.config_options.as_ref());
        options.is_some_and(|options| options.boolean.is_some())
    });
    if can || !result.contains("boolean") {
        return result.as_bytes().to_vec();
    }
    let mut value: Value = serde_json::from_str(result).unwrap_or_else(|_| json!({}));
    if let Some(options) = value.get_mut("configOptions").and_then(Value::as_array_mut) {
        options.retain(|option| option.get("type").is_none_or(|kind| kind != "boolean"));
    }
    value.to_string().into_bytes()
}

/// Keeps what an agent said when its session was opened, where a client that opens it again needs it.
///
/// # Errors
/// As storing an event.
pub(super) async fn keep(context: &ThreadContext, result: &Json) -> Result<()> {
    let value = result.to_value();
    let says_something = ["modes", "configOptions", "models"]
        .iter()
        .any(|key| value.get(key).is_some_and(|value| !value.is_null()));
    if !says_something {
        return Ok(());
    }
    let event = StateEvent::Custom { kind: KIND.to_owned(), data: result.clone() };
    context.note(Body::State(event), None).await
}

/// Keeps which mode or options a client gave the agent's session, as an update that says so: agents need not tell of it. `chosen` has the options that it gave values itself, others may follow from them: they are given them again when another process takes the session over.
///
/// # Errors
/// As storing an event.
pub(super) async fn keep_set(
    context: &ThreadContext,
    update: &Value,
    chosen: Option<Value>,
) -> Result<()> {
    let mut kept = update.clone();
    if let Some(members) = kept.as_object_mut() {
        members.insert(AGENT.to_owned(), context.agent().as_str().into());
        members.extend(chosen.map(|chosen| (CHOSEN.to_owned(), chosen)));
    }
    let data = Json::from_value(&kept);
    context.note(Body::State(StateEvent::Custom { kind: SET.to_owned(), data }), None).await
}

/// The options of an agent's configuration that this client can show.
pub(super) fn options_of(
    link: &Link,
    card: &trilogue_domain::AgentCard,
    config: Option<&Json>,
) -> Vec<SessionConfigOption> {
    let options = mapping::config_options(card, config);
    match link.met() {
        Some(met) => mapping::for_client(options, &met.client),
        None => options,
    }
}

/// The result of opening a session of a native agent.
pub(super) fn result(options: &[SessionConfigOption]) -> Vec<u8> {
    if options.is_empty() {
        return b"{}".to_vec();
    }
    json!({ "configOptions": options }).to_string().into_bytes()
}
