use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde_json::value::{RawValue, to_raw_value};
use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, RunEvent, StateEvent};
use trilogue_domain::{Body, Json, MessageId, Part, Role, Timestamp};
use trilogue_wire::agent_connect::{self as wire, CustomUpdate, RunStatus, StreamPayload};
use trilogue_wire::native::Event;

use super::message::RemoteMessage;
use crate::LoggedPosition;
use crate::connect::message::{may_be_named, read_message};
use crate::native::{read_body, read_json};

/// The kind of an update without one.
const UPDATE: &str = "custom";

/// Converts a server's output of a remote run, in order, to the vocabulary.
///
/// Values are the whole output so far, and a server can skip some: only what each adds to the one before is logged. So a run that is read again can be continued where its log ends.
#[derive(Clone, Debug)]
pub struct RemoteOutput {
    form: OutputForm,
    /// The run here: the source of ids for messages without their own.
    run: uuid::Uuid,
    role: Role,
    /// The index of the run's first message in the list of messages, once it is known.
    first: Option<usize>,
    messages: Vec<RemoteMessage>,
    of_users: HashSet<MessageId>,
    /// The last logged output.
    output: Option<Json>,
    logged: LoggedPosition,
}

/// The form of an agent's output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutputForm {
    /// Whether the output consists of the agent's messages. Otherwise it is a value.
    pub is_chat: bool,
    /// The address of one of our servers, without a slash at its end: it keeps the ids of messages, sends only the agent's messages of a run, and sends our events as updates.
    pub trilogue_url: Option<String>,
}

/// The progress of a run that waits for an answer, so that its output is not logged twice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutputProgress {
    /// The index of the run's first message in the list of messages.
    pub first: Option<usize>,
    /// The logged messages: their ids at the server, if they have one.
    pub messages: Vec<Option<String>>,
}

// === impl RemoteOutput ===

impl RemoteOutput {
    /// Creates the conversion for a run here, whose messages get this role.
    #[must_use]
    pub fn new(run: &str, role: Role, form: OutputForm) -> Self {
        Self {
            first: form.trilogue_url.is_some().then_some(0),
            form,
            run: uuid::Uuid::new_v5(&super::super::agent::NAMESPACE, run.as_bytes()),
            role,
            messages: Vec::new(),
            of_users: HashSet::new(),
            output: None,
            logged: LoggedPosition::default(),
        }
    }

    /// Continues the same run after a question, with its [`RemoteOutput::progress`] at that time.
    #[must_use]
    pub fn with_progress(mut self, progress: OutputProgress) -> Self {
        self.first = self.first.or(progress.first);
        for theirs in progress.messages {
            self.messages.push(RemoteMessage::from_progress(self.id_of(theirs.as_deref()), theirs));
        }
        self
    }

    /// Reads the same run again from its beginning: output that is already logged is left out.
    #[must_use]
    pub fn from_log(mut self, logged: LoggedPosition) -> Self {
        self.logged = logged;
        self
    }

    #[must_use]
    pub fn progress(&self) -> OutputProgress {
        let messages = self.messages.iter().map(|message| message.server_id.clone()).collect();
        OutputProgress { first: self.first, messages }
    }

    /// Returns what an event adds to the log. The last event completes the output.
    /// Fails with `json_too_deep` or `too_many_parts`, naming the field.
    pub fn push(&mut self, event: &StreamPayload) -> Result<Vec<Body>> {
        let mut out = Vec::new();
        match event {
            StreamPayload::Values(update) => {
                let is_end = update.status != RunStatus::Pending;
                let values = read_json(update.values.clone())?;
                self.values(values, update.messages.as_deref(), is_end, &mut out)?;
            }
            StreamPayload::Custom(update) => self.update(update, &mut out)?,
            StreamPayload::Interrupt(_) => self.complete_all(&mut out),
            StreamPayload::Error(_) => {}
        }
        out.retain_mut(|body| self.logged.passes(body));
        Ok(out)
    }

    /// Returns the state of the thread that a run has left, unless the log has it.
    pub fn state(&mut self, state: Json) -> Option<Body> {
        let mut body = Body::State(StateEvent::Values(state));
        self.logged.passes(&mut body).then_some(body)
    }

    fn values(
        &mut self,
        values: Json,
        messages: Option<&[wire::Message]>,
        is_end: bool,
        out: &mut Vec<Body>,
    ) -> Result<()> {
        let said = messages.map(Cow::Borrowed).or_else(|| {
            let said = || messages_in(&values).map(Cow::Owned);
            self.form.is_chat.then(said).flatten()
        });
        let has_said = said.is_some();
        if let Some(said) = said {
            self.say(&said, is_end, out)?;
        }
        if is_end {
            self.complete_all(out);
        }
        let rest = match (self.form.is_chat, has_said) {
            (true, true) => beyond_messages(&values),
            (false, true) if self.is_last_text(&values, messages) => None,
            _ => Some(values).filter(|values| is_end || !is_nothing(values)),
        };
        let Some(rest) = rest else { return Ok(()) };
        if is_end {
            if !is_nothing(&rest) || !has_said {
                out.push(Body::Run(RunEvent::Result(rest)));
            }
        } else if self.output.as_ref() != Some(&rest) {
            self.output = Some(rest.clone());
            out.push(Body::State(StateEvent::Output(rest)));
        }
        Ok(())
    }

    /// Whether a value only repeats the last text of the agent, which our servers use to fill the output.
    fn is_last_text(&self, value: &Json, messages: Option<&[wire::Message]>) -> bool {
        let Some(last) = messages.and_then(|all| all.last()) else { return is_nothing(value) };
        let text = last.content.to_text();
        let is_text = |value: &str| string(value).is_some_and(|said| said == text);
        match value.members() {
            Some(members) => members.len() <= 1 && members.values().all(|it| is_text(it.get())),
            None => is_text(value.as_str()),
        }
    }

    fn say(&mut self, said: &[wire::Message], is_end: bool, out: &mut Vec<Body>) -> Result<()> {
        let is_user = |message: &wire::Message| matches!(&*message.role, "user" | "human");
        let first = *self
            .first
            .get_or_insert_with(|| said.iter().rposition(is_user).map_or(0, |last| last + 1));
        let own: Vec<_> = said.iter().skip(first).filter(|it| !is_user(it)).collect();
        for (place, message) in own.iter().enumerate() {
            let theirs = message.id.clone();
            let parts = self.parts_of(message)?;
            let known = match &theirs {
                Some(_) => self.messages.iter().rposition(|told| told.server_id == theirs),
                None => Some(place).filter(|place| *place < self.messages.len()),
            };
            let comes_in_pieces =
                known.and_then(|at| self.messages.get(at)).is_some_and(|told| told.comes_in_pieces);
            let is_whole = is_end || (place + 1 < own.len() && !comes_in_pieces);
            // A different version replaces the logged message once it is whole.
            let known = known.filter(|place| !is_whole || !self.is_replaced(*place, &parts));
            let at = match known {
                Some(place) => place,
                None => self.begin(theirs, out),
            };
            if is_end {
                self.add(at, &parts, out);
            }
            let Some(told) = self.messages.get_mut(at) else { continue };
            told.grow(&parts, is_whole, out);
            if is_whole {
                told.complete(out);
            }
        }
        Ok(())
    }

    /// Adds what came to a message after it was complete.
    fn add(&mut self, at: usize, parts: &[Part], out: &mut Vec<Body>) {
        let id = self.made_id(self.messages.get(at).and_then(|told| told.server_id.as_deref()));
        let mut pieces = Vec::new();
        let told = self.messages.get(at);
        let added = told.and_then(|told| told.addition(id, parts, &mut pieces));
        if let Some(mut added) = added {
            let (message, role) = (added.id.clone(), self.role.clone());
            out.push(Body::Message(MessageEvent::Started { message, role, times: None }));
            out.append(&mut pieces);
            added.complete(out);
            self.messages.push(added);
        }
    }

    fn is_replaced(&self, place: usize, parts: &[Part]) -> bool {
        self.messages.get(place).is_some_and(|told| !told.is_complete && told.differs(parts))
    }

    /// Begins a message; those before it are complete.
    fn begin(&mut self, theirs: Option<String>, out: &mut Vec<Body>) -> usize {
        self.complete_all(out);
        let id = self.id_of(theirs.as_deref());
        self.messages.push(RemoteMessage::begin(id, theirs, &self.role, out));
        self.messages.len() - 1
    }

    fn complete_all(&mut self, out: &mut Vec<Body>) {
        self.messages.iter_mut().for_each(|told| told.complete(out));
    }

    /// Returns the id here of the next message: from one of our servers, or derived from the run and the message's index or id there.
    fn id_of(&self, theirs: Option<&str>) -> MessageId {
        let kept = theirs.filter(|_| self.form.trilogue_url.is_some());
        if let Some(id) = kept.and_then(|id| MessageId::parse(id).ok()) {
            return id;
        }
        self.made_id(theirs)
    }

    fn made_id(&self, theirs: Option<&str>) -> MessageId {
        let name = format!("{} {}", self.messages.len(), theirs.unwrap_or_default());
        MessageId::from_uuid(uuid::Uuid::new_v5(&self.run, name.as_bytes()))
    }

    fn parts_of(&self, message: &wire::Message) -> Result<Vec<Part>> {
        let mut message = message.clone();
        message.id = None;
        if may_be_named(&message.role) {
            message.role = "assistant".to_owned();
        }
        // Servers describe each look at a message in members of their own: its text would not grow any more.
        let message = wire::Message { extra: serde_json::Map::new(), ..message };
        Ok(read_message(message, Timestamp::default(), "messages")?.parts)
    }

    fn update(&mut self, update: &CustomUpdate, out: &mut Vec<Body>) -> Result<()> {
        let data = read_json(update.update.as_json().clone())?;
        let Some(base) = &self.form.trilogue_url else {
            let kind = update.kind.clone().unwrap_or_else(|| UPDATE.to_owned());
            out.push(Body::State(StateEvent::Custom { kind, data }));
            return Ok(());
        };
        if let Some(kind) = &update.kind {
            let (kind, data) = (kind.clone(), unwrap_update(kind, data));
            out.push(Body::State(StateEvent::Custom { kind, data }));
            return Ok(());
        }
        match event_in(&data).map(|event| read_body(event.body, base)).transpose()? {
            Some(Some(Body::Message(message))) => self.message(message, out),
            Some(Some(body)) => out.push(body),
            Some(None) | None => {
                let kind = UPDATE.to_owned();
                out.push(Body::State(StateEvent::Custom { kind, data }));
            }
        }
        Ok(())
    }

    /// Adds a piece of a message that one of our servers logged. A user's message is an answer, not output.
    fn message(&mut self, message: MessageEvent, out: &mut Vec<Body>) {
        let known = |id: &MessageId| self.messages.iter().position(|told| told.id == *id);
        match message {
            MessageEvent::Started { message, role, .. } if role.is_user() => {
                self.of_users.insert(message);
            }
            MessageEvent::Started { message, .. } => {
                if known(&message).is_none() {
                    let theirs = Some(message.as_str().to_owned());
                    let mut told = RemoteMessage::begin(message, theirs, &self.role, out);
                    told.comes_in_pieces = true;
                    self.messages.push(told);
                }
            }
            MessageEvent::Delta { message, text } => {
                if let Some(told) = known(&message).and_then(|at| self.messages.get_mut(at)) {
                    told.delta(text, out);
                }
            }
            MessageEvent::Part { message, part } => {
                if let Some(told) = known(&message).and_then(|at| self.messages.get_mut(at)) {
                    told.part(part, out);
                }
            }
            MessageEvent::Completed { message } => {
                if let Some(told) = known(&message).and_then(|at| self.messages.get_mut(at)) {
                    told.complete(out);
                }
            }
            thought @ MessageEvent::Thought { .. } => out.push(Body::Message(thought)),
        }
    }
}

/// Returns the messages in the values of an agent that takes and returns messages.
fn messages_in(values: &Json) -> Option<Vec<wire::Message>> {
    let said = |text: &str| vec![wire::Message::text("assistant", text)];
    let Some(members) = values.members() else {
        return string(values.as_str()).map(|text| said(&text));
    };
    match (members.get("messages"), members.get("message")) {
        (Some(messages), _) => serde_json::from_str(messages.get()).ok(),
        (None, Some(text)) => string(text.get()).map(|text| said(&text)),
        (None, None) => None,
    }
}

/// Returns the values without the messages.
fn beyond_messages(values: &Json) -> Option<Json> {
    let mut rest = values.members()?;
    rest.retain(|key, _| !matches!(&**key, "messages" | "message"));
    if rest.is_empty() {
        return None;
    }
    Json::parse(serde_json::to_string(&rest).ok()?).ok()
}

fn is_nothing(value: &Json) -> bool {
    value.as_str().trim() == "null" || value.members().is_some_and(|members| members.is_empty())
}

/// Returns a JSON string's text; `None` for another value.
fn string(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

/// Returns the event that one of our servers sends as an update.
fn event_in(update: &Json) -> Option<Event> {
    let mut event: BTreeMap<String, &RawValue> = update.members()?;
    let kind = event.remove("kind")?;
    let [number, id, at] =
        [to_raw_value(&0).ok()?, to_raw_value("0").ok()?, to_raw_value("").ok()?];
    event.insert("type".to_owned(), kind);
    event.insert("id".to_owned(), &id);
    event.insert("number".to_owned(), &number);
    event.insert("at".to_owned(), &at);
    serde_json::from_str(&serde_json::to_string(&event).ok()?).ok()
}

/// Returns the data of an update that one of our servers had to wrap into an object.
fn unwrap_update(kind: &str, data: Json) -> Json {
    let inner = data.members().filter(|members| members.len() == 2).and_then(|members| {
        let is_named = string(members.get("kind")?.get())? == kind;
        let inner = Json::parse(members.get("data")?.get().to_owned()).ok()?;
        Some(inner).filter(|inner| is_named && !inner.is_object())
    });
    inner.unwrap_or(data)
}

#[cfg(test)]
mod tests;
