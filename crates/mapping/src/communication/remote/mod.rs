//! An agent behind a server of this protocol: what it is sent, and what its events mean.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use trilogue_domain::error::Result;
use trilogue_domain::event::{InterruptEvent, MessageEvent, PlanEntry, StateEvent};
use trilogue_domain::{
    Answer, Body, Code, Content, Failure, Input, Interrupt, InterruptId, InterruptKind, Json,
    Message, MessageId, Part, Role, Survives, Times,
};
use trilogue_wire::agent_communication::{
    ErrorBody, ErrorCode, Event, Json as WireJson, Message as WireMessage, MessagePart, Rules, Run,
    read,
};

use super::await_message::interrupt_of_data;
use super::input::{extension, read_message, take};
use super::part::{read_parts, write_part};
use super::wire_role;
use crate::{LoggedPosition, time};

/// Reads the events of a remote run, in their order, into the vocabulary.
///
/// The same events give the same bodies with the same ids, so that a run that is read again from its first event can be continued where its log ends.
#[derive(Clone, Debug)]
pub struct RemoteRun {
    /// The run here: what the ids of messages without one are made from.
    run: uuid::Uuid,
    role: Role,
    /// How many messages have begun.
    messages: u32,
    open: Option<GrowingMessage>,
    /// How many output messages the events have brought, to find those that a run brings only at its end.
    completed: usize,
    /// Whether the server is one of ours, whose generic events are what we know.
    is_ours: bool,
    logged: LoggedPosition,
}

#[derive(Clone, Debug)]
struct GrowingMessage {
    id: MessageId,
    parts: usize,
}

// === impl RemoteRun ===

impl RemoteRun {
    /// For a run here, whose messages get this role.
    #[must_use]
    pub fn new(run: &str, role: Role) -> Self {
        let run = uuid::Uuid::new_v5(&super::NAMESPACE, run.as_bytes());
        let logged = LoggedPosition::default();
        Self { run, role, messages: 0, open: None, completed: 0, is_ours: false, logged }
    }

    /// The same run, at a server of which is known whether it is one of ours.
    #[must_use]
    pub fn at_ours(self, is_ours: bool) -> Self {
        Self { is_ours, ..self }
    }

    /// The same run, continued after a question: with the [`RemoteRun::progress`] that it had then.
    #[must_use]
    pub fn resumed(mut self, (messages, completed): (u32, usize)) -> Self {
        (self.messages, self.completed) = (messages, completed);
        self
    }

    /// The same run, read again from its first event: what is logged already is left out.
    #[must_use]
    pub fn from_log(mut self, logged: LoggedPosition) -> Self {
        self.logged = logged;
        self
    }

    /// How many messages have begun, and how many are complete.
    #[must_use]
    pub fn progress(&self) -> (u32, usize) {
        (self.messages, self.completed)
    }

    /// What an event adds to the log. An event about the run adds the output messages that no earlier event brought.
    /// Fails with `json_too_deep`, naming the field.
    pub fn push(&mut self, event: Event) -> Result<Vec<Body>> {
        let mut out = Vec::new();
        match event {
            Event::MessageCreated { message } => self.begin(message, &mut out)?,
            Event::MessagePart { part } => self.part(part, &mut out)?,
            Event::MessageCompleted { message } => self.complete(message, &mut out)?,
            Event::Generic { generic } => {
                let known = self.is_ours.then(|| own_event(&generic)).transpose()?.flatten();
                out.push(match known {
                    Some(body) => body,
                    None => {
                        let data = crate::native::read_json(generic)?;
                        Body::State(StateEvent::Custom { kind: "generic".to_owned(), data })
                    }
                });
            }
            Event::RunCompleted { run } | Event::RunAwaiting { run } => {
                self.finish(run.output, &mut out)?;
            }
            Event::RunCreated { .. }
            | Event::RunInProgress { .. }
            | Event::RunFailed { .. }
            | Event::RunCancelled { .. }
            | Event::Error { .. } => {}
        }
        out.retain_mut(|body| self.logged.passes(body));
        Ok(out)
    }

    fn begin(&mut self, mut message: WireMessage, out: &mut Vec<Body>) -> Result<()> {
        self.end(out);
        let id = match take(&mut message, "message_id") {
            Some(id) => MessageId::parse(&id)?,
            None => self.next_id(),
        };
        self.messages = self.messages.saturating_add(1);
        let parts = std::mem::take(&mut message.parts);
        let read = read_message(message)?;
        let times = Times { created_at: read.created_at, completed_at: read.completed_at };
        // Only what a remote states is kept: a message that grows has no end yet.
        let times = Some(times).filter(|times| times.completed_at.is_some());
        let started = MessageEvent::Started { message: id.clone(), role: self.role.clone(), times };
        out.push(Body::Message(started));
        self.open = Some(GrowingMessage { id, parts: 0 });
        parts.into_iter().try_for_each(|part| self.part(part, out))
    }

    fn part(&mut self, part: MessagePart, out: &mut Vec<Body>) -> Result<()> {
        if self.open.is_none() {
            self.begin(WireMessage::default(), out)?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let part = read_parts(vec![part], format_args!("parts[{}]", open.parts))?.remove(0);
        open.parts += 1;
        let message = open.id.clone();
        out.push(Body::Message(match plain_text(&part) {
            Some(text) => MessageEvent::Delta { message, text },
            None => MessageEvent::Part { message, part },
        }));
        Ok(())
    }

    /// A completed message has all its parts: those that no event brought are added.
    fn complete(&mut self, message: WireMessage, out: &mut Vec<Body>) -> Result<()> {
        if self.open.is_none() {
            self.begin(WireMessage { parts: Vec::new(), ..message.clone() }, out)?;
        }
        let is_silent = self.open.as_ref().is_some_and(|open| open.parts == 0);
        if is_silent {
            message.parts.into_iter().try_for_each(|part| self.part(part, out))?;
        }
        self.end(out);
        Ok(())
    }

    fn finish(&mut self, output: Vec<WireMessage>, out: &mut Vec<Body>) -> Result<()> {
        self.end(out);
        for message in output.into_iter().skip(self.completed) {
            self.begin(message, out)?;
            self.end(out);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<Body>) {
        if let Some(GrowingMessage { id, .. }) = self.open.take() {
            self.completed += 1;
            out.push(Body::Message(MessageEvent::Completed { message: id }));
        }
    }

    fn next_id(&self) -> MessageId {
        let id = uuid::Uuid::new_v5(&self.run, &self.messages.to_be_bytes());
        MessageId::parse(&id.to_string()).unwrap_or_else(|_| MessageId::generate())
    }
}

/// A generic event as our own face makes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnGeneric<'a> {
    kind: String,
    entries: Option<Vec<OwnPlanEntry>>,
    rule: Option<String>,
    allowed: Option<bool>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    /// The update of a hosted agent that it was made of.
    #[serde(rename = "x_trilogue")]
    _update: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct OwnPlanEntry {
    content: String,
    status: String,
}

/// A member that is there, `null` included.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

/// What a generic event of a server of ours was there: a plan, a rule or an update of the agent's own. `None` for one that came to it as a generic event, and for the news of a tool call, whose part follows.
fn own_event(generic: &WireJson) -> Result<Option<Body>> {
    let Ok(own) = serde_json::from_str::<OwnGeneric<'_>>(generic.as_str()) else { return Ok(None) };
    Ok(match (own.kind.as_str(), own.entries, own.rule, own.allowed, own.data) {
        ("plan", Some(entries), None, None, None) => {
            let entry = |it: OwnPlanEntry| PlanEntry { content: it.content, status: it.status };
            Some(Body::State(StateEvent::Plan(entries.into_iter().map(entry).collect())))
        }
        ("rule", None, Some(rule), Some(allowed), None) => {
            Some(Body::Interrupt(InterruptEvent::RuleApplied { rule, allowed }))
        }
        (_, None, None, None, Some(data)) => {
            let data = Json::parse(data.get().to_owned())?;
            Some(Body::State(StateEvent::Custom { kind: own.kind, data }))
        }
        _ => None,
    })
}

/// Text that continues a message, where a part is nothing else.
fn plain_text(part: &Part) -> Option<std::sync::Arc<str>> {
    match &part.content {
        Content::Text(text) if *part == Part::text(text.clone()) => Some(text.clone()),
        _ => None,
    }
}

/// The input of a remote run: messages that the agent has not seen yet, then the run's own.
/// Content that is stored beside the log is left out: the caller puts it in its place first.
#[must_use]
pub fn remote_input(missed: &[Message], input: &Input) -> Vec<WireMessage> {
    let mut messages: Vec<_> = missed.iter().map(wire_message).collect();
    match input {
        Input::Messages(own) => messages.extend(own.iter().map(wire_message)),
        Input::Value(value) => messages.push(WireMessage::user(vec![json_part(value)])),
    }
    messages
}

/// A message as another server takes it; its id is where our own face shows it.
fn wire_message(message: &Message) -> WireMessage {
    let id = json!({ "message_id": message.id.as_str() });
    WireMessage {
        role: wire_role(&message.role),
        created_at: message.created_at.map(time).into(),
        completed_at: message.completed_at.map(time).into(),
        extension: Some(WireJson::from_value(&id)),
        ..WireMessage::user(wire_parts(&message.parts))
    }
}

fn wire_parts(parts: &[Part]) -> Vec<MessagePart> {
    let wire = parts.iter().filter_map(|part| {
        let mut rendered = Vec::new();
        write_part(part, false, |_| String::new(), &mut rendered);
        // What this module writes it reads.
        read(&rendered, Rules::Lenient).ok()
    });
    wire.collect()
}

/// The message that answers a remote agent's question.
#[must_use]
pub fn remote_answer(answer: &Answer) -> WireMessage {
    match answer {
        Answer::Option(id) => WireMessage::text(id),
        Answer::Json(value) => match value.to_value().as_str() {
            Some(text) => WireMessage::text(text),
            None => WireMessage::user(vec![json_part(value)]),
        },
        Answer::Message(parts) => WireMessage::user(wire_parts(parts)),
    }
}

fn json_part(value: &Json) -> MessagePart {
    MessagePart::json(&crate::native::json(value))
}

/// What a remote run awaits, and the id under which a server of ours knows it. A question of another server wants a message.
/// Fails with `json_too_deep`, naming the field; `internal` for a run that awaits nothing.
pub fn remote_interrupt(run: &Run) -> Result<(Interrupt, Option<String>)> {
    let Some(request) = &run.await_request else {
        return Err(trilogue_domain::Error::new(
            Code::AgentFailed,
            "the agent's server says that the run waits, and not for what",
        ));
    };
    let mut message = request.message.clone();
    let theirs = extension(&message, "interrupt_id");
    take(&mut message, "interrupt_id");
    let mut prompt = read_parts(message.parts, format_args!("await_request.message."))?;
    let mut interrupt = theirs
        .as_deref()
        .and_then(|id| interrupt_of_data(id, &mut prompt))
        .unwrap_or_else(|| Interrupt::new(InterruptKind::Message));
    interrupt.id = InterruptId::generate();
    interrupt.prompt = prompt;
    interrupt.survives = Survives::Restart;
    Ok((interrupt, theirs))
}

/// Why a remote run failed. The reason and the details of a server of ours are kept.
#[must_use]
pub fn remote_failure(error: &ErrorBody) -> Failure {
    let data = error.data.as_ref().map(WireJson::to_value).unwrap_or_default();
    let reason = data.get("reason").and_then(serde_json::Value::as_str);
    let code = reason.unwrap_or(match error.code {
        ErrorCode::InvalidInput => Code::InvalidInput.as_str(),
        ErrorCode::NotFound => Code::NotFound.as_str(),
        ErrorCode::ServerError => Code::AgentFailed.as_str(),
    });
    let details = match reason {
        Some(_) => data.get("details").cloned(),
        None => error.data.as_ref().map(WireJson::to_value),
    };
    Failure {
        code: code.to_owned(),
        message: error.message.clone(),
        transient: data.get("transient").and_then(serde_json::Value::as_bool).unwrap_or(false),
        data: details.map(|details| Json::from_value(&details)),
    }
}

#[cfg(test)]
mod tests;
