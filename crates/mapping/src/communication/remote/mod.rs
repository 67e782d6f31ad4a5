//! Maps a run at a remote server of this protocol: the request that it gets, and the meaning of its events.

mod repeated_parts;
mod streamed_content;

use std::borrow::Cow;

use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;
use trilogue_domain::error::Result;
use trilogue_domain::event::{InterruptEvent, MessageEvent, PlanContent, PlanEntry, StateEvent};
use trilogue_domain::{
    Answer, Body, Code, Error, Failure, Input, Interrupt, InterruptId, InterruptKind, Json,
    Message, MessageId, Part, Role, RuleOrigin, Survives, Times,
};
use trilogue_wire::agent_communication::{
    ErrorBody, ErrorCode, Event, Extra, Json as WireJson, Message as WireMessage, MessagePart,
    OptionalTime, Rules, Run, read,
};

use super::await_message::interrupt_of_data;
use super::input::{extension, read_message, take};
use super::part::{read_parts, write_part};
use super::{further_members, strict, wire_role};
use crate::logged_position::{LoggedCount, plain_text};
use crate::message_members::split_further;
use crate::{LoggedPosition, time};
use repeated_parts::RepeatedParts;
use streamed_content::{Difference, StreamedContent};

/// The kind of the event that reports a contradiction between a message's end and its streamed content.
const CONTRADICTION: &str = "message.contradiction";

/// Reads the events of a remote run, in their order, into the vocabulary.
///
/// The same events give the same bodies with the same ids, so that a run that is read again from its first event can be continued where its log ends.
#[derive(Clone, Debug)]
pub struct RemoteRun {
    /// The local run, from which the ids of messages without an id are made.
    run: uuid::Uuid,
    role: Role,
    progress: RemoteProgress,
    /// The content of the open message that the server may repeat.
    repeats: RepeatedParts,
    /// Whether the remote server is a Trilogue server, whose generic events are known.
    is_ours: bool,
    /// Whether the run's mount holds its agent to the documents' rules.
    is_strict: bool,
    logged: LoggedPosition,
}

/// How far the messages of a remote run have come: kept with a question, so that the run continues there after the answer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RemoteProgress {
    /// How many messages have begun.
    messages: u32,
    /// How many messages of the run's output are complete.
    completed: usize,
    /// The message that is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<OpenRemoteMessage>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct OpenRemoteMessage {
    #[serde(serialize_with = "write_id", deserialize_with = "read_id")]
    id: MessageId,
    /// The content of the message in the events so far.
    brought: LoggedCount,
    /// The content before the question after which the run was resumed.
    #[serde(skip)]
    before: LoggedCount,
    /// The content since then.
    #[serde(skip)]
    streamed: StreamedContent,
}

/// Whether a text that follows a text is the same part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Boundary {
    /// They are pieces of one text.
    Joined,
    /// They are two parts of a whole message.
    Kept,
}

// === impl RemoteRun ===

impl RemoteRun {
    /// Makes the reader for a local run, whose messages get this role.
    #[must_use]
    pub fn new(run: &str, role: Role) -> Self {
        let run = uuid::Uuid::new_v5(&super::NAMESPACE, run.as_bytes());
        let (progress, repeats) = (RemoteProgress::default(), RepeatedParts::default());
        let logged = LoggedPosition::default();
        Self { run, role, progress, repeats, is_ours: false, is_strict: false, logged }
    }

    /// Sets whether the remote server is a Trilogue server.
    #[must_use]
    pub fn at_ours(self, is_ours: bool) -> Self {
        Self { is_ours, ..self }
    }

    /// Sets the mount through which the run was created, by the name of its rules for agents' output.
    #[must_use]
    pub fn under_rules(self, rules: Option<&str>) -> Self {
        Self { is_strict: rules == Some(strict::RULES), ..self }
    }

    /// The same run, continued after a question: with the [`RemoteRun::progress`] that it had then.
    #[must_use]
    pub fn with_progress(self, mut progress: RemoteProgress) -> Self {
        if let Some(open) = &mut progress.open {
            open.before = open.brought;
        }
        Self { progress, ..self }
    }

    /// Reads the run again from its first event: content that is logged already is left out.
    #[must_use]
    pub fn from_log(mut self, logged: LoggedPosition) -> Self {
        self.logged = logged;
        self
    }

    /// How far its messages have come.
    #[must_use]
    pub fn progress(&self) -> &RemoteProgress {
        &self.progress
    }

    /// The message that is not complete, with its role.
    #[must_use]
    pub fn open_message(&self) -> Option<(&MessageId, &Role)> {
        self.progress.open.as_ref().map(|open| (&open.id, &self.role))
    }

    /// Returns the additions of an event to the log. An event about the run adds the part of its output that the earlier events lack. Fails with
    /// `json_too_deep`, naming the field; with `output_invalid` if the event breaks the rules of a strict mount, and with `protocol_violation` if it
    /// contradicts an earlier one there.
    pub fn push(&mut self, event: Event) -> Result<Vec<Body>> {
        if self.is_strict {
            strict::check_event(&event)?;
        }
        let mut out = Vec::new();
        match event {
            Event::MessageCreated { message } => self.create(message, &mut out)?,
            Event::MessagePart { part } => self.part(part, &mut out)?,
            Event::MessageCompleted { message } => {
                self.complete_to(message, true, &mut out)?;
                self.end(&mut out);
            }
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
            Event::RunCompleted { run } => {
                self.output(run.output, true, &mut out)?;
                self.end(&mut out);
            }
            Event::RunAwaiting { run } | Event::RunFailed { run } | Event::RunCancelled { run } => {
                self.output(run.output, false, &mut out)?
            }
            Event::RunCreated { .. } | Event::RunInProgress { .. } | Event::Error { .. } => {}
        }
        out.retain_mut(|body| self.logged.passes(body));
        Ok(out)
    }

    /// A message that may have all its parts already. The official server repeats these one by one.
    fn create(&mut self, mut message: WireMessage, out: &mut Vec<Body>) -> Result<()> {
        let parts = read_parts(std::mem::take(&mut message.parts), format_args!("message."))?;
        self.begin(message, out)?;
        parts.iter().for_each(|part| self.add(part.clone(), Boundary::Kept, out));
        self.repeats = RepeatedParts::of(parts);
        Ok(())
    }

    /// The message has no parts yet.
    fn begin(&mut self, mut message: WireMessage, out: &mut Vec<Body>) -> Result<()> {
        self.end(out);
        let id = match take(&mut message, "message_id") {
            Some(id) => MessageId::parse(&id)?,
            None => self.next_id(),
        };
        self.progress.messages = self.progress.messages.saturating_add(1);
        let read = read_message(message)?;
        let times = Times { created_at: read.created_at, completed_at: read.completed_at };
        // Only times that the remote states are kept: a message that grows has no end yet.
        let times = Some(times).filter(|times| times.completed_at.is_some());
        self.progress.open = Some(OpenRemoteMessage {
            id: id.clone(),
            brought: LoggedCount::default(),
            before: LoggedCount::default(),
            streamed: StreamedContent::default(),
        });
        let started = MessageEvent::Started { message: id, role: self.role.clone(), times };
        out.push(Body::Message(started));
        Ok(())
    }

    fn part(&mut self, part: MessagePart, out: &mut Vec<Body>) -> Result<()> {
        if self.progress.open.is_none() {
            self.begin(WireMessage::default(), out)?;
        }
        for part in read_parts(vec![part], format_args!(""))? {
            for new in self.repeats.without(part) {
                self.add(new, Boundary::Joined, out);
            }
        }
        Ok(())
    }

    /// Adds the content of a whole message that the earlier events lack. Streamed content cannot be taken back. If the message contradicts it, the log records
    /// that, and the message's own parts follow from the first that differs.
    fn complete_to(
        &mut self,
        mut message: WireMessage,
        is_final: bool,
        out: &mut Vec<Body>,
    ) -> Result<()> {
        let parts = read_parts(std::mem::take(&mut message.parts), format_args!("message."))?;
        if self.progress.open.is_none() {
            self.begin(message, out)?;
        }
        // Servers that stream parts may end their message without them.
        let (Some(open), [_, ..]) = (&self.progress.open, parts.as_slice()) else { return Ok(()) };
        let mut before = open.before;
        let whole: Vec<Part> = parts
            .into_iter()
            .filter_map(|mut part| before.passes_part(&mut part).then_some(part))
            .collect();
        let Difference { parts, is_contradiction } = open.streamed.compare(&whole, is_final);
        if is_contradiction {
            out.push(self.contradiction()?);
        }
        if is_final {
            self.repeats = RepeatedParts::default();
        }
        parts.into_iter().for_each(|(part, boundary)| self.add(part, boundary, out));
        if let Some(open) = self.progress.open.as_mut().filter(|_| is_contradiction) {
            open.streamed = StreamedContent::of(&whole);
        }
        Ok(())
    }

    /// Fails with `protocol_violation` on a strict mount.
    fn contradiction(&self) -> Result<Body> {
        let because = "the agent's server completed the message with other content than it had streamed; the parts that differ follow";
        if self.is_strict {
            return Err(Error::new(
                Code::ProtocolViolation,
                "the agent's server completed a message with other content than it had streamed",
            )
            .hint("mend the agent's server, or reach the agent through a mount without `strict = true`"));
        }
        let data = Json::from_value(&json!({ "because": because }));
        Ok(Body::State(StateEvent::Custom { kind: CONTRADICTION.to_owned(), data }))
    }

    /// Adds the content of a run's output that the earlier events lack. Its last message may be unfinished, unless the run is complete.
    fn output(
        &mut self,
        output: Vec<WireMessage>,
        is_complete: bool,
        out: &mut Vec<Body>,
    ) -> Result<()> {
        let count = output.len();
        for (place, message) in output.into_iter().enumerate().skip(self.progress.completed) {
            let is_unfinished = match message.completed_at {
                OptionalTime::At(_) => false,
                OptionalTime::Null => true,
                OptionalTime::Absent => self.progress.open.is_some(),
            };
            let is_final = is_complete || !is_unfinished || place + 1 < count;
            self.complete_to(message, is_final, out)?;
            if is_final {
                self.end(out);
            }
        }
        Ok(())
    }

    fn add(&mut self, part: Part, boundary: Boundary, out: &mut Vec<Body>) {
        let Some(open) = &mut self.progress.open else { return };
        let message = open.id.clone();
        let is_behind_text = open.brought.ends_with_text();
        open.brought.count_part(&part);
        open.streamed.push(&part);
        let joined = plain_text(&part).filter(|_| boundary == Boundary::Joined || !is_behind_text);
        out.push(Body::Message(match joined {
            Some(text) => MessageEvent::Delta { message, text: text.clone() },
            None => MessageEvent::Part { message, part },
        }));
    }

    fn end(&mut self, out: &mut Vec<Body>) {
        if let Some(begun) = std::mem::take(&mut self.repeats).unfinished() {
            self.add(begun, Boundary::Joined, out);
        }
        if let Some(OpenRemoteMessage { id, .. }) = self.progress.open.take() {
            self.progress.completed += 1;
            out.push(Body::Message(MessageEvent::Completed { message: id }));
        }
    }

    fn next_id(&self) -> MessageId {
        let id = uuid::Uuid::new_v5(&self.run, &self.progress.messages.to_be_bytes());
        MessageId::parse(&id.to_string()).unwrap_or_else(|_| MessageId::generate())
    }
}

/// Whether an event reports a contradiction between a message's end and its streamed content.
pub fn is_contradiction(body: &Body) -> bool {
    matches!(body, Body::State(StateEvent::Custom { kind, .. }) if kind == CONTRADICTION)
}

fn write_id<S: Serializer>(id: &MessageId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_str())
}

fn read_id<'de, D: Deserializer<'de>>(value: D) -> Result<MessageId, D::Error> {
    MessageId::parse(&String::deserialize(value)?).map_err(D::Error::custom)
}

/// A generic event as our own face makes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnGeneric<'a> {
    kind: String,
    plan_id: Option<String>,
    entries: Option<Vec<OwnPlanEntry>>,
    markdown: Option<String>,
    path: Option<String>,
    rule: Option<String>,
    allowed: Option<bool>,
    origin: Option<String>,
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

/// Returns the original of a Trilogue server's generic event: a plan, a rule or an update of the agent's own. Returns `None` for an event that was generic at
/// that server too, and for the news of a tool call, whose part follows.
fn own_event(generic: &WireJson) -> Result<Option<Body>> {
    let Ok(own) = serde_json::from_str::<OwnGeneric<'_>>(generic.as_str()) else { return Ok(None) };
    let entry = |it: OwnPlanEntry| PlanEntry { content: it.content, status: it.status };
    let entries = own.entries.map(|entries| entries.into_iter().map(entry).collect());
    if let Some(plan) = own.plan_id {
        let event = match (own.kind.as_str(), entries, own.markdown) {
            ("plan_updated", Some(entries), None) => {
                StateEvent::PlanUpdated { plan, content: PlanContent::Entries(entries) }
            }
            ("plan_updated", None, Some(text)) => {
                let content = PlanContent::Markdown { text, path: own.path };
                StateEvent::PlanUpdated { plan, content }
            }
            ("plan_removed", None, None) => StateEvent::PlanRemoved { plan },
            _ => return Ok(None),
        };
        return Ok(Some(Body::State(event)));
    }
    Ok(match (own.kind.as_str(), entries, own.rule, own.allowed, own.data) {
        ("plan", Some(entries), None, None, None) => Some(Body::State(StateEvent::Plan(entries))),
        ("rule", None, Some(rule), Some(allowed), None) => {
            let origin = own.origin.as_deref().and_then(RuleOrigin::from_text);
            Some(Body::Interrupt(InterruptEvent::RuleApplied { rule, allowed, origin }))
        }
        (_, None, None, None, Some(data)) => {
            let data = Json::parse(data.get().to_owned())?;
            Some(Body::State(StateEvent::Custom { kind: own.kind, data }))
        }
        _ => None,
    })
}

/// Returns the input of a remote run: messages that the agent has not seen yet, then the run's own. Content that is stored outside the log is left out: the
/// caller must insert it first.
#[must_use]
pub fn remote_input(missed: &[Message], input: &Input) -> Vec<WireMessage> {
    let mut messages: Vec<_> = missed.iter().map(wire_message).collect();
    match input {
        Input::Messages(own) => messages.extend(own.iter().map(wire_message)),
        Input::Value(value) => messages.push(WireMessage::user(vec![json_part(value)])),
    }
    messages
}

/// Makes a message for another server; the id is in the member in which Trilogue shows ids.
fn wire_message(message: &Message) -> WireMessage {
    let id = json!({ "message_id": message.id.as_str() });
    let mut extra = Extra::new();
    let mut parts = Cow::Borrowed(message.parts.as_slice());
    if let [first, rest @ ..] = message.parts.as_slice()
        && let Some((first, further)) = split_further(first)
    {
        parts = first.into_iter().chain(rest.iter().cloned()).collect();
        for (name, value) in further_members(further) {
            extra.set(name, WireJson::from_value(&value));
        }
    }
    WireMessage {
        role: wire_role(&message.role),
        created_at: message.created_at.map(time).into(),
        completed_at: message.completed_at.map(time).into(),
        extension: Some(WireJson::from_value(&id)),
        extra,
        ..WireMessage::user(wire_parts(&parts))
    }
}

fn wire_parts(parts: &[Part]) -> Vec<MessagePart> {
    let wire = parts.iter().filter_map(|part| {
        let mut rendered = Vec::new();
        write_part(part, false, |_| String::new(), &mut rendered);
        // Every message that this module writes is readable.
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

/// Returns the question of a remote run, and its id if the remote is a Trilogue server. A question of another server expects a message. Fails with
/// `json_too_deep`, naming the field; `protocol_violation` for a run that awaits nothing.
pub fn remote_interrupt(run: &Run) -> Result<(Interrupt, Option<String>)> {
    let Some(request) = &run.await_request else {
        return Err(Error::new(
            Code::ProtocolViolation,
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

/// Returns why a remote run failed. The reason and the details of a Trilogue server are kept.
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
