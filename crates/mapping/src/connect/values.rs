//! Folds one run's log into its output.
//!
//! A push costs as much as the event's size; JSON is built on demand, and only once for complete messages.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{Event, InterruptEvent, MessageEvent, RunEvent, StateEvent};
use trilogue_domain::{
    AgentCard, Body, Content, InputKind, Interrupt, Json, Outcome, Part, RunId, ThreadId, limits,
};
use trilogue_wire::agent_connect::{
    ErrorUpdate, InterruptUpdate, RunOutput, RunStatus, StreamPayload,
};

use super::block::Links;
use super::growing_message::GrowingMessage;
use super::run::member;
use super::{interrupt, run_error, status};
use crate::shape::{is_of, text_property};

#[derive(Clone, Debug)]
pub struct ValuesOptions {
    pub card: Arc<AgentCard>,
    /// The base address of links to large content: an absolute address with the mount's prefix, without a slash at its end.
    pub base: Arc<str>,
    /// The most stored content of one run that is inlined, in bytes; the rest becomes links.
    pub max_inline_bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Values {
    show: ValuesOptions,
    run_id: Arc<str>,
    links: Links,
    /// The location in the output for text that is not JSON.
    place: TextPlace,
    /// Whether the agent has started: earlier messages are input.
    has_started: bool,
    agent_messages: Vec<GrowingMessage>,
    /// The output that the agent last set.
    output: Option<Json>,
    /// Pending interrupts, oldest first.
    pending: Vec<Arc<Interrupt>>,
    is_cancelling: bool,
    outcome: Option<Outcome>,
    version: u64,
    inlined: u64,
}

/// The location in an output for text that is not JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
enum TextPlace {
    Message,
    Whole,
    Property(String),
    Nowhere,
}

// === impl Values ===

impl Values {
    pub fn new(show: ValuesOptions, run: &RunId, thread: &ThreadId) -> Self {
        Self {
            run_id: Arc::from(run.as_str()),
            links: Links::new(&show.base, thread),
            place: TextPlace::of(&show.card),
            show,
            has_started: false,
            agent_messages: Vec::new(),
            output: None,
            pending: Vec::new(),
            is_cancelling: false,
            outcome: None,
            version: 0,
            inlined: 0,
        }
    }

    pub fn push(&mut self, event: &Event) {
        match &event.body {
            Body::Run(body) => self.run_event(body),
            Body::Message(body) if self.has_started => self.message_event(body, event),
            Body::State(StateEvent::Output(output)) => self.set(output),
            Body::Interrupt(InterruptEvent::Raised(raised)) if !self.is_cancelling => {
                self.pending.push(Arc::new(Interrupt::clone(raised)));
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, .. }) => {
                self.pending.retain(|pending| pending.id != *interrupt);
            }
            _ => {}
        }
    }

    /// Whether this blob should be inlined in its part before the event is pushed: if there is room, and a client sees the part.
    pub fn can_inline(&self, blob: &BlobRef) -> bool {
        self.has_started && blob.length <= self.show.max_inline_bytes.saturating_sub(self.inlined)
    }

    /// Returns a number that grows whenever the output changes; 0 before the first output.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns the oldest pending interrupt.
    pub fn interrupt(&self) -> Option<&Interrupt> {
        self.pending.first().map(Arc::as_ref)
    }

    /// Returns the `values` event with the output so far and the status `pending`; `None` before the first output.
    pub fn snapshot(&self) -> Option<Bytes> {
        let (values, messages) = self.output_and_messages(false)?;
        Some(self.update(RunStatus::Pending, &values, messages.as_deref()))
    }

    /// Returns the event that ends a stream: the output, the interrupt, or the error; `None` while the run continues.
    pub fn terminal(&self) -> Option<Bytes> {
        let Some(outcome) = &self.outcome else {
            let asked = self.interrupt()?;
            return payload(&StreamPayload::Interrupt(InterruptUpdate {
                run_id: self.run_id.to_string(),
                status: RunStatus::Interrupted,
                asked: interrupt(asked, &self.links),
            }));
        };
        match run_error(outcome, &self.show.card, &self.run_id) {
            Some(error) => {
                let status = status(outcome.status());
                payload(&StreamPayload::Error(ErrorUpdate { status, error }))
            }
            None => {
                let nothing = || (Bytes::from_static(b"{}"), None);
                let (values, messages) = self.output_and_messages(true).unwrap_or_else(nothing);
                Some(self.update(RunStatus::Success, &values, messages.as_deref()))
            }
        }
    }

    /// Returns the run's output for waits and callbacks: the result, the interrupt, or the error; `None` while the run continues.
    pub fn output(&self) -> Option<Bytes> {
        let Some(outcome) = &self.outcome else {
            let asked = self.interrupt()?;
            return payload(&RunOutput::Interrupt(interrupt(asked, &self.links)));
        };
        match run_error(outcome, &self.show.card, &self.run_id) {
            Some(error) => payload(&RunOutput::Error(error)),
            None => Some(self.content("result", true)),
        }
    }

    /// Returns the output so far, of the type `values`; `None` before the first output.
    pub fn partial(&self) -> Option<Bytes> {
        (self.version > 0).then(|| self.content("values", self.has_ended()))
    }

    fn run_event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Created { .. } => {}
            RunEvent::Started => self.has_started = true,
            RunEvent::Resumed => self.pending.clear(),
            RunEvent::Cancelling { .. } => {
                self.is_cancelling = true;
                self.pending.clear();
            }
            RunEvent::Result(value) => self.set(value),
            RunEvent::Ended(outcome) => {
                self.pending.clear();
                self.outcome = Some(outcome.clone());
            }
        }
    }

    fn set(&mut self, output: &Json) {
        self.output = Some(output.clone());
        self.version += 1;
    }

    fn message_event(&mut self, body: &MessageEvent, event: &Event) {
        match body {
            // An answer is not output.
            MessageEvent::Started { role, .. } if role.is_user() => {}
            MessageEvent::Started { message, role, times: _ } => {
                self.agent_messages.push(GrowingMessage::new(message, role, event));
            }
            MessageEvent::Delta { message, text } => {
                let Some(said) = self.agent_messages.iter_mut().rfind(|said| said.has_id(message))
                else {
                    return;
                };
                said.add_text(text);
                self.version += 1;
            }
            MessageEvent::Part { message, part } => {
                let Some(said) = self.agent_messages.iter_mut().rfind(|said| said.has_id(message))
                else {
                    return;
                };
                said.add_part(part);
                self.inlined = self.inlined.saturating_add(inlined(part));
                self.version += 1;
            }
            MessageEvent::Completed { message } => {
                let links = &self.links;
                if let Some(said) =
                    self.agent_messages.iter_mut().rfind(|said| said.has_id(message))
                {
                    said.complete(links);
                }
            }
            MessageEvent::Thought { .. } => {}
        }
    }

    /// Returns the output and the messages; `None` if there is nothing to show. Text without a location in the output is shown as messages only at the end.
    fn output_and_messages(&self, is_end: bool) -> Option<(Bytes, Option<Bytes>)> {
        let is_chat = self.place == TextPlace::Message;
        let messages = (is_chat || !self.agent_messages.is_empty()).then(|| self.messages());
        if let Some(output) = &self.output {
            return Some((output.as_bytes().clone(), messages));
        }
        let last = self.agent_messages.last().map(GrowingMessage::text);
        let chat = || {
            let size = last.as_ref().map_or(0, |text| text.len());
            let mut out = Vec::with_capacity(size + messages.as_ref().map_or(0, Bytes::len) + 64);
            if let Some(text) = &last {
                member(&mut out, "message", Value::from(&**text).to_string().as_bytes());
            }
            member(&mut out, "messages", messages.as_deref().unwrap_or(b"[]"));
            out.push(b'}');
            Bytes::from(out)
        };
        let values = match (&self.place, &last) {
            (TextPlace::Message, _) if is_end || self.version > 0 => chat(),
            (TextPlace::Whole, Some(text)) => Value::from(&**text).to_string().into(),
            (TextPlace::Property(name), Some(text)) => {
                json!({ name.as_str(): &**text }).to_string().into()
            }
            (TextPlace::Nowhere, Some(_)) if is_end => chat(),
            _ => return None,
        };
        Some((values, messages))
    }

    fn messages(&self) -> Bytes {
        let messages: Vec<_> =
            self.agent_messages.iter().map(|said| said.json(&self.links)).collect();
        let size = messages.iter().map(|message| message.len() + 1).sum::<usize>();
        let mut out = Vec::with_capacity(size + 2);
        out.push(b'[');
        for (place, message) in messages.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(message);
        }
        out.push(b']');
        Bytes::from(out)
    }

    fn update(&self, status: RunStatus, values: &[u8], messages: Option<&[u8]>) -> Bytes {
        let size = 2 * values.len() + messages.map_or(0, <[u8]>::len);
        let mut out = Vec::with_capacity(size + 160);
        member(&mut out, "type", b"\"values\"");
        member(&mut out, "run_id", Value::from(&*self.run_id).to_string().as_bytes());
        member(&mut out, "status", format!("\"{status}\"").as_bytes());
        member(&mut out, "values", values);
        if let Some(messages) = messages {
            member(&mut out, "messages", messages);
        }
        member(&mut out, "result", values);
        out.push(b'}');
        Bytes::from(out)
    }

    /// Renders the output as `values`, and as `result`, its name in the protocol's document.
    fn content(&self, kind: &str, is_end: bool) -> Bytes {
        let content = self.output_and_messages(is_end);
        let size = content.as_ref().map_or(0, |(values, messages)| {
            2 * values.len() + messages.as_ref().map_or(0, Bytes::len)
        });
        let mut out = Vec::with_capacity(size + 128);
        member(&mut out, "type", format!("\"{kind}\"").as_bytes());
        if let Some((values, messages)) = content {
            member(&mut out, "values", &values);
            if let Some(messages) = messages {
                member(&mut out, "messages", &messages);
            }
            member(&mut out, "result", &values);
        }
        out.push(b'}');
        Bytes::from(out)
    }
}

// === impl TextPlace ===

impl TextPlace {
    fn of(card: &AgentCard) -> Self {
        if card.input == InputKind::Chat && card.output_schema.is_none() {
            return Self::Message;
        }
        let schema = card.output_schema.as_ref().map_or(Value::Null, Json::to_value);
        if schema.get("type").and_then(Value::as_str) == Some("string") {
            return Self::Whole;
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let has_message = properties.is_some_and(|all| is_of(all, "message", "string"));
        match text_property(&schema) {
            Some(name) => Self::Property(name),
            None if has_message => Self::Property("message".to_owned()),
            None => Self::Nowhere,
        }
    }
}

/// Returns the bytes of a part that count against the limit of inlined content.
fn inlined(part: &Part) -> u64 {
    let length = match &part.content {
        Content::Text(text) => text.len(),
        Content::Bytes(bytes) => bytes.len(),
        Content::Empty | Content::Url(_) | Content::Blob(_) => 0,
    };
    if length > limits::INLINE_CONTENT_BYTES { length as u64 } else { 0 }
}

fn payload(value: &impl serde::Serialize) -> Option<Bytes> {
    serde_json::to_vec(value).ok().map(Bytes::from)
}
