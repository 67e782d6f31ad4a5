//! A run's output, which comes whole again and again, as what each time is new.

mod said;

use serde_json::{Map, Value};
use trilogue_sdk::connect::{RunError, RunStatus as Standing, StreamPayload};
use trilogue_wire::native::{
    Event, EventBody, Json, MessageCompleted, MessageDelta, MessagePart, MessageStarted, Outcome,
    Part, RunEnded, RunError as Failure, RunResult, RunStatus, StateCustom,
};

use said::{Piece, Said};

/// The role under which everything that a run says is shown.
const ROLE: &str = "assistant";
/// The number of the error that is a cancellation, and of the one that removed the run too.
const CANCELLED: [i64; 2] = [5, 6];

/// Turns the events of one run into those that the terminal shows. Text that was shown is not shown again.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Events so far: their numbers.
    events: u64,
    /// The messages that were shown, the last of them open.
    told: u64,
    /// How much of the last message was shown; `None` where it is complete.
    open: Option<Open>,
    /// The messages of the output that are complete.
    complete: usize,
    /// Whether the server tells every word as an update of its own too: then the output has nothing to add.
    narrated: bool,
}

/// How much of a message was shown.
#[derive(Debug, Default)]
struct Open {
    /// Its pieces that are complete.
    pieces: usize,
    /// The text of the one behind them.
    text: String,
}

// === impl Growth ===

impl Growth {
    /// What an event adds.
    pub(super) fn take(&mut self, event: StreamPayload) -> Vec<Event> {
        let mut bodies = Vec::new();
        match event {
            StreamPayload::Custom(update) => {
                bodies.push(self.update(update.update.as_json(), update.kind));
            }
            StreamPayload::Interrupt(_) => {}
            StreamPayload::Values(update) => {
                let is_last = update.status != Standing::Pending;
                let values = update.values.to_value();
                if !self.narrated {
                    let said = said::of(update.messages, &values, is_last);
                    self.grow(&said, is_last, &mut bodies);
                }
                if is_last {
                    self.close(&mut bodies);
                    // What was said needs no value beside it.
                    if !values.get("messages").is_some_and(Value::is_array) {
                        let value = update.values;
                        bodies.push(EventBody::RunResult(RunResult { value }));
                    }
                    bodies.push(ended(RunStatus::Completed, None, None));
                }
            }
            StreamPayload::Error(update) => {
                self.close(&mut bodies);
                bodies.push(failed(update.status, update.error));
            }
        }
        bodies.into_iter().map(|body| self.event(body)).collect()
    }

    fn event(&mut self, body: EventBody) -> Event {
        self.events += 1;
        Event {
            id: self.events.to_string(),
            number: self.events,
            run_number: None,
            run_id: None,
            at: String::new(),
            body,
            original: None,
        }
    }

    /// An update: an event of ours under its own name, else the agent's own.
    fn update(&mut self, update: &Json, kind: Option<String>) -> EventBody {
        if let (None, Some(body)) = (&kind, native(update)) {
            self.narrated |= matches!(body, EventBody::MessageStarted(_));
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

    /// Shows what these messages have beyond what was shown.
    fn grow(&mut self, said: &[Said], is_last: bool, bodies: &mut Vec<EventBody>) {
        while self.complete < said.len() {
            let Some(message) = said.get(self.complete) else { return };
            let is_whole = is_last || self.complete + 1 < said.len();
            let mut open = match self.open.take() {
                Some(open) if open.fits(message) => open,
                changed => {
                    // A message that became another one is shown anew.
                    if changed.is_some() {
                        bodies.push(EventBody::MessageCompleted(MessageCompleted {
                            message_id: self.told.to_string(),
                        }));
                    }
                    self.told += 1;
                    let (message_id, role) = (self.told.to_string(), ROLE.to_owned());
                    bodies.push(EventBody::MessageStarted(MessageStarted { message_id, role }));
                    Open::default()
                }
            };
            open.grow(message, &self.told.to_string(), bodies);
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
            let message_id = self.told.to_string();
            bodies.push(EventBody::MessageCompleted(MessageCompleted { message_id }));
        }
    }
}

// === impl Open ===

impl Open {
    /// Whether the message still begins with what was shown of it.
    fn fits(&self, message: &Said) -> bool {
        match message.0.get(self.pieces) {
            None => self.text.is_empty() && message.0.len() == self.pieces,
            Some(Piece::Text(text)) => text.starts_with(&self.text),
            Some(Piece::Part(_)) => self.text.is_empty(),
        }
    }

    fn grow(&mut self, message: &Said, id: &str, bodies: &mut Vec<EventBody>) {
        while let Some(piece) = message.0.get(self.pieces) {
            let message_id = id.to_owned();
            match piece {
                Piece::Part(part) => {
                    let part = Part::clone(part);
                    bodies.push(EventBody::MessagePart(MessagePart { message_id, part }));
                }
                Piece::Text(whole) => {
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

/// An event of ours, which is an update under its own name; `None` for any other.
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

fn failed(status: Standing, error: RunError) -> EventBody {
    let data = error.data.as_ref().map(Json::to_value).unwrap_or_default();
    let reason = data.get("reason").and_then(Value::as_str).map(str::to_owned);
    if CANCELLED.contains(&error.errcode) {
        return ended(RunStatus::Cancelled, reason, None);
    }
    if status == Standing::Timeout {
        return ended(RunStatus::TimedOut, reason, None);
    }
    let code = error.code.unwrap_or_else(|| format!("error {}", error.errcode));
    let failure = Failure {
        // The protocol says of an agent's own words only that they are the agent's.
        code: reason.unwrap_or(code),
        message: error.description,
        transient: error.transient,
        data: error.data,
    };
    ended(RunStatus::Failed, None, Some(failure))
}

fn ended(status: RunStatus, reason: Option<String>, error: Option<Failure>) -> EventBody {
    EventBody::RunEnded(RunEnded { outcome: Outcome { status, reason, error } })
}

#[cfg(test)]
mod tests;
