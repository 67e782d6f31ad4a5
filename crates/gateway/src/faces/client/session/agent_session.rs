//! A hosted agent's own session, as the log describes it.

use serde_json::{Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, StateEvent};
use trilogue_domain::{Body, Json, ThreadKey};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::ThreadContext;
use trilogue_store::{Frame, Read};
use trilogue_wire::agent_client::SessionConfigOption;

use super::super::connection::ClientConnection;
use super::super::wire::lines::MethodResult;
use crate::stream::log_reader::LogReader;

/// How many events one step folds, newest first.
const FOLDED_EVENTS: u64 = 1_024;
/// The most bytes of a log that are read for this.
const MAX_FOLDED_BYTES: usize = 64 * 1024 * 1024;
/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// The event with the agent's response when its session was opened.
const OPENED_KIND: &str = "session_opened";
/// The event with a mode or options that a client has set.
const SETTING_KIND: &str = "session_set";
/// The kinds of the events that the state is folded from.
const KINDS: [&str; 5] = [
    OPENED_KIND,
    SETTING_KIND,
    "current_mode_update",
    "config_option_update",
    "available_commands_update",
];
/// The member of a [`SETTING_KIND`] event with the options that the client chose itself. Clients do not receive it.
const CHOSEN: &str = "chosen";
/// The member of a [`SETTING_KIND`] event with the agent. Clients do not receive it either.
const AGENT: &str = "agent";

/// The state of a hosted agent's own session, folded from the log.
#[derive(Debug, Default)]
pub(crate) struct AgentSession {
    /// The agent's response when it was opened.
    result: Option<Value>,
    mode: Option<Value>,
    options: Option<Value>,
    /// The agent's last list of commands.
    pub(super) commands: Option<Event>,
}

/// What clients receive of an event.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Visibility {
    Visible,
    Hidden,
    /// This update about a setting, but only if `is_news`: the agent has not sent the update itself.
    Setting {
        update: Value,
        is_news: bool,
    },
}

// === impl AgentSession ===

impl AgentSession {
    /// Folds the session up to an event from the newest 64 MiB of its thread's log, backwards until earlier events cannot change it.
    pub(crate) async fn read(read: &dyn Read, thread: ThreadKey, until: u64) -> Result<Self> {
        let finders: Vec<_> = KINDS.iter().map(memchr::memmem::Finder::new).collect();
        let is_about = |frame: &Frame| finders.iter().any(|it| it.find(frame.bytes()).is_some());
        let (mut folded, mut until, mut bytes) = (Self::default(), until, 0);
        while until > 0 && bytes < MAX_FOLDED_BYTES && !folded.is_whole() {
            let from = until.saturating_sub(FOLDED_EVENTS);
            let mut earlier = Self::default();
            let mut log =
                LogReader::new(read, thread, None).after(from).until(until).pages_of(READ_BYTES);
            while let Some(page) = log.next().await? {
                for frame in page.frames.iter().filter(|frame| is_about(frame)) {
                    page.events_of(frame)?.for_each(|event| drop(earlier.push(event)));
                }
            }
            bytes += log.bytes();
            folded = earlier.continued_by(folded);
            until = from;
        }
        Ok(folded)
    }

    /// Whether the log has the agent's response to the opening of the session.
    pub(crate) fn is_known(&self) -> bool {
        self.result.is_some()
    }

    /// Folds the next event.
    pub(super) fn push(&mut self, event: &Event) -> Visibility {
        let Body::State(StateEvent::Custom { kind, data }) = &event.body else {
            return Visibility::Visible;
        };
        match kind.as_str() {
            OPENED_KIND if event.original.is_none() => {
                let (result, commands) = (Some(data.to_value()), self.commands.take());
                *self = Self { result, commands, ..Self::default() };
                return Visibility::Hidden;
            }
            SETTING_KIND if event.original.is_none() => {
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
        Visibility::Visible
    }

    /// Combines this state of earlier events with the state of later ones.
    pub(super) fn continued_by(self, later: Self) -> Self {
        let commands = later.commands.or(self.commands);
        if later.result.is_some() {
            return Self { commands, ..later };
        }
        let (mode, options) = (later.mode.or(self.mode), later.options.or(self.options));
        Self { result: self.result, mode, options, commands }
    }

    /// Whether earlier events cannot change the state.
    pub(super) fn is_whole(&self) -> bool {
        self.result.is_some() && self.commands.is_some()
    }

    fn set(&mut self, update: Value) -> Visibility {
        let (known, now) = match (update.get("currentModeId"), update.get("configOptions")) {
            (Some(mode), _) => (&mut self.mode, mode),
            (_, Some(options)) => (&mut self.options, options),
            _ => return Visibility::Hidden,
        };
        let is_news = known.as_ref() != Some(now);
        *known = Some(now.clone());
        Visibility::Setting { update, is_news }
    }

    /// Returns the response to a client that opens the session. `config` is the configuration of the thread's runs.
    pub(super) fn response(
        &self,
        connection: &ClientConnection,
        session: &str,
        config: Option<&Json>,
    ) -> MethodResult {
        match connection.backend() {
            Ok(backend) if backend.sessions().is_some() => Ok(self.result(connection)),
            Ok(backend) => Ok(native_result(&options_of(connection, backend.card(), config))),
            Err(error) => Err(mapping::session_error(&error, session)),
        }
    }

    pub(crate) fn result(&self, connection: &ClientConnection) -> Vec<u8> {
        let mut result = self.result.clone().filter(Value::is_object).unwrap_or_else(|| json!({}));
        if let (Some(mode), Some(known)) = (&self.mode, result.pointer_mut("/modes/currentModeId"))
        {
            *known = mode.clone();
        }
        if let (Some(options), Some(object)) = (&self.options, result.as_object_mut()) {
            object.insert("configOptions".to_owned(), options.clone());
        }
        for_client(connection, &result.to_string())
    }
}

/// Returns an agent's response with only the options that this client can display.
pub(crate) fn for_client(connection: &ClientConnection, result: &str) -> Vec<u8> {
    let takes_booleans = connection
        .handshake()
        .is_some_and(|handshake| mapping::takes_boolean_options(&handshake.client));
    match takes_booleans {
        true => result.as_bytes().to_vec(),
        false => mapping::result_without_booleans(result),
    }
}

/// Logs an agent's response if clients that open the session later need it.
pub(crate) async fn store_opened(context: &ThreadContext, result: &Json) -> Result<()> {
    let value = result.to_value();
    let is_needed = ["modes", "configOptions", "models"]
        .iter()
        .any(|key| value.get(key).is_some_and(|value| !value.is_null()));
    if !is_needed {
        return Ok(());
    }
    let event = StateEvent::Custom { kind: OPENED_KIND.to_owned(), data: result.clone() };
    context.append_event(Body::State(event), None).await
}

/// Logs a client's setting as an update, because agents need not send one. `chosen` contains the options that the client chose itself: a process that takes over the session sets only these again, because the other options follow from them.
pub(crate) async fn store_setting(
    context: &ThreadContext,
    update: &Value,
    chosen: Option<Value>,
) -> Result<()> {
    let mut stored = update.clone();
    if let Some(members) = stored.as_object_mut() {
        members.insert(AGENT.to_owned(), context.agent().as_str().into());
        members.extend(chosen.map(|chosen| (CHOSEN.to_owned(), chosen)));
    }
    let data = Json::from_value(&stored);
    context
        .append_event(Body::State(StateEvent::Custom { kind: SETTING_KIND.to_owned(), data }), None)
        .await
}

/// Returns the options of an agent's configuration that this client can display.
pub(crate) fn options_of(
    connection: &ClientConnection,
    card: &trilogue_domain::AgentCard,
    config: Option<&Json>,
) -> Vec<SessionConfigOption> {
    let options = mapping::config_options(card, config);
    match connection.handshake() {
        Some(handshake) => mapping::for_client(options, &handshake.client),
        None => options,
    }
}

/// Returns the result of opening a session of a native agent.
pub(crate) fn native_result(options: &[SessionConfigOption]) -> Vec<u8> {
    if options.is_empty() {
        return b"{}".to_vec();
    }
    json!({ "configOptions": options }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an event of the agent, or one of ours, of this kind and with this data.
    fn event(kind: &str, data: &Value) -> Event {
        let data = Json::from_value(data);
        Event {
            number: 1,
            run: None,
            run_number: 0,
            at: trilogue_domain::Timestamp::from_micros(0),
            body: Body::State(StateEvent::Custom { kind: kind.to_owned(), data }),
            original: None,
        }
    }

    #[test]
    fn folding_in_parts_gives_what_folding_at_once_gives() {
        let events = [
            event("available_commands_update", &json!({"availableCommands": [1]})),
            event("current_mode_update", &json!({"currentModeId": "lost"})),
            event(OPENED_KIND, &json!({"modes": {"currentModeId": "first"}})),
            event("config_option_update", &json!({"configOptions": [{"id": "a"}]})),
            event(SETTING_KIND, &json!({"currentModeId": "second", "agent": "x"})),
            event("available_commands_update", &json!({"availableCommands": [2]})),
        ];
        let fold = |events: &[Event]| {
            let mut folded = AgentSession::default();
            events.iter().for_each(|event| drop(folded.push(event)));
            folded
        };
        let whole = fold(&events);
        assert_eq!(whole.mode, Some(json!("second")));
        for place in 0..=events.len() {
            let (earlier, later) = events.split_at(place);
            let (earlier, later) = (fold(earlier), fold(later));
            let is_whole = later.is_whole();
            let parts = earlier.continued_by(later);
            assert_eq!(
                (&parts.result, &parts.mode, &parts.options, &parts.commands),
                (&whole.result, &whole.mode, &whole.options, &whole.commands)
            );
            assert_eq!(is_whole, place <= 2);
        }
    }
}
