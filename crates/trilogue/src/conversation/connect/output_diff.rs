//! Finds the additions of each update to a run's output: the protocol sends the whole output every
//! time.

use serde_json::{Map, Value};
use trilogue_sdk::client::connect::{RunError, RunStatus as UpdateStatus, StreamPayload};
use trilogue_wire::native::{
    Event, EventBody, Json, MessageCompleted, MessageDelta, MessagePart, MessageStarted, Outcome,
    Part, RunEnded, RunError as Failure, RunResult, RunStatus, StateCustom,
};

use super::super::unnumbered;
use super::agent_message::{AgentMessage, MessagePiece, agent_messages};

const ROLE: &str = "assistant";
/// The `errcode` of a cancellation, and of one that removed the run too.
const CANCELLED: [i64; 2] = [5, 6];

/// Turns the updates of one run into events with only the text that is new.
#[derive(Debug, Default)]
pub(super) struct OutputDiff {
    /// The messages so far. The count is the id of the last one.
    messages: u64,
    /// The part of the last message that was emitted; `None` if the message is complete.
    open: Option<SentMessage>,
    complete: usize,
    /// Whether the server also sends every message as events: then the output adds nothing.
    sends_events: bool,
}

#[derive(Debug, Default)]
struct SentMessage {
    pieces: usize,
    text: String,
}

// === impl OutputDiff ===

impl OutputDiff {
    pub(super) fn push(&mut self, event: StreamPayload) -> Vec<Event> {
        let mut bodies = Vec::new();
        match event {
            StreamPayload::Custom(update) => {
                bodies.push(self.update(update.update.as_json(), update.kind));
            }
            StreamPayload::Interrupt(_) => {}
            StreamPayload::Values(update) => {
                let is_last = update.status != UpdateStatus::Pending;
                let values = update.values.to_value();
                if !self.sends_events {
                    let messages = agent_messages(update.messages, &values, is_last);
                    self.extend(&messages, is_last, &mut bodies);
                }
                if is_last {
                    self.close(&mut bodies);
                    // Messages are the whole answer.
                    if !values.get("messages").is_some_and(Value::is_array) {
                        let value = update.values;
                        bodies.push(EventBody::RunResult(RunResult { value }));
                    }
                    bodies.push(run_ended_event(RunStatus::Completed, None, None));
                }
            }
            StreamPayload::Error(update) => {
                self.close(&mut bodies);
                bodies.push(failure_event(update.status, update.error));
            }
        }
        bodies.into_iter().map(unnumbered).collect()
    }

    /// Reads a native event under its own name, otherwise an agent's own update.
    fn update(&mut self, update: &Json, kind: Option<String>) -> EventBody {
        if let (None, Some(body)) = (&kind, native(update)) {
            self.sends_events |= matches!(body, EventBody::MessageStarted(_));
            return body;
        }
        let Some(kind) = kind else {
            let kind = "update".to_owned();
            return EventBody::StateCustom(StateCustom { kind, data: update.clone() });
        };
        let value = update.to_value();
        let wrapped = value.as_object().filter(|members| members.len() == 2);
        let wrapped = wrapped.filter(|members| members.get("kind") == Some(&kind.as_str().into()));
        let data = wrapped.and_then(|members| members.get("data")).map(Json::from_value);
        EventBody::StateCustom(StateCustom { data: data.unwrap_or_else(|| update.clone()), kind })
    }

    fn extend(&mut self, messages: &[AgentMessage], is_last: bool, bodies: &mut Vec<EventBody>) {
        while self.complete < messages.len() {
            let Some(message) = messages.get(self.complete) else { return };
            let is_whole = is_last || self.complete + 1 < messages.len();
            let mut open = match self.open.take() {
                Some(open) if open.fits(message) => open,
                changed => {
                    // A message that is no longer a continuation begins again.
                    if changed.is_some() {
                        bodies.push(EventBody::MessageCompleted(MessageCompleted {
                            message_id: self.messages.to_string(),
                        }));
                    }
                    self.messages += 1;
                    let (message_id, role) = (self.messages.to_string(), ROLE.to_owned());
                    bodies.push(EventBody::MessageStarted(MessageStarted { message_id, role }));
                    SentMessage::default()
                }
            };
            open.extend(message, &self.messages.to_string(), bodies);
            self.open = Some(open);
            if !is_whole {
                return;
            }
            self.close(bodies);
            self.complete += 1;
        }
    }

    fn close(&mut self, bodies: &mut Vec<EventBody>) {
        if self.open.take().is_some() {
            let message_id = self.messages.to_string();
            bodies.push(EventBody::MessageCompleted(MessageCompleted { message_id }));
        }
    }
}

// === impl SentMessage ===

impl SentMessage {
    fn fits(&self, message: &AgentMessage) -> bool {
        match message.0.get(self.pieces) {
            None => self.text.is_empty() && message.0.len() == self.pieces,
            Some(MessagePiece::Text(text)) => text.starts_with(&self.text),
            Some(MessagePiece::Part(_)) => self.text.is_empty(),
        }
    }

    fn extend(&mut self, message: &AgentMessage, id: &str, bodies: &mut Vec<EventBody>) {
        while let Some(piece) = message.0.get(self.pieces) {
            let message_id = id.to_owned();
            match piece {
                MessagePiece::Part(part) => {
                    let part = Part::clone(part);
                    bodies.push(EventBody::MessagePart(MessagePart { message_id, part }));
                }
                MessagePiece::Text(whole) => {
                    let text = whole.get(self.text.len()..).unwrap_or_default().to_owned();
                    if !text.is_empty() {
                        bodies.push(EventBody::MessageDelta(MessageDelta { message_id, text }));
                    }
                    if self.pieces + 1 == message.0.len() {
                        self.text.clone_from(whole);
                        return;
                    }
                }
            }
            self.text.clear();
            self.pieces += 1;
        }
    }
}

/// One of our events, which an update holds under its own name; `None` for any other update.
fn native(update: &Json) -> Option<EventBody> {
    let mut members: Map<String, Value> = update.read().ok()?;
    let kind = members.get("kind")?.as_str()?;
    if !EventBody::TYPES.contains(&kind) {
        return None;
    }
    let kind = members.remove("kind")?;
    let head = [("type", kind), ("id", "".into()), ("number", 0.into()), ("at", "".into())];
    members.extend(head.map(|(name, value)| (name.to_owned(), value)));
    let event: Event = serde_json::from_value(Value::Object(members)).ok()?;
    Some(event.body)
}

fn failure_event(status: UpdateStatus, error: RunError) -> EventBody {
    let data = error.data.as_ref().map(Json::to_value).unwrap_or_default();
    let reason = data.get("reason").and_then(Value::as_str).map(str::to_owned);
    if CANCELLED.contains(&error.errcode) {
        return run_ended_event(RunStatus::Cancelled, reason, None);
    }
    if status == UpdateStatus::Timeout {
        return run_ended_event(RunStatus::TimedOut, reason, None);
    }
    let code = error.code.unwrap_or_else(|| format!("error {}", error.errcode));
    let failure = Failure {
        // The protocol's code says only that the agent failed; the reason is the agent's own code.
        code: reason.unwrap_or(code),
        message: error.description,
        transient: error.transient,
        data: error.data,
    };
    run_ended_event(RunStatus::Failed, None, Some(failure))
}

fn run_ended_event(status: RunStatus, reason: Option<String>, error: Option<Failure>) -> EventBody {
    EventBody::RunEnded(RunEnded { outcome: Outcome { status, reason, error } })
}

#[cfg(test)]
mod tests;
