//! Tracks how much of a remote agent's run is in the log.

use std::collections::{HashMap, HashSet};

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use trilogue_domain::event::{InterruptEvent, MessageEvent, RunEvent, StateEvent};
use trilogue_domain::{Body, Content, Json, MessageId, Part, Role};

const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x8d0e_52b7_4c1a_4f36_a9e3_70d5_1b64_c82f);

/// How much of a remote run's output is in the log: output up to there is left out when it is read again.
///
/// Each message has its own position, so that messages can come again in another order among each other and among the rest; the pieces of one message come in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoggedPosition {
    /// The run here: the source of ids for messages whose own ids were taken.
    run: String,
    /// Positions in the messages; all bodies outside of messages share one.
    places: HashMap<Option<MessageId>, LoggedCount>,
    /// The last output and state, which replace earlier ones.
    output: Option<Json>,
    values: Option<Json>,
    has_result: bool,
    /// Whether the agent has started: earlier messages are input.
    has_started: bool,
    of_users: HashSet<MessageId>,
    /// Messages that have begun and are not complete, oldest first.
    open: Vec<(MessageId, Role)>,
}

/// The logged size of one message, or of all bodies outside of messages. A part that contains only plain text counts as that text, so that the splitting of a text into pieces does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LoggedCount {
    /// Bodies that are not pieces of text.
    bodies: u64,
    /// Bytes of text after the last of them.
    text: usize,
}

// === impl LoggedPosition ===

impl LoggedPosition {
    /// Creates the position of a run whose log is not read yet.
    #[must_use]
    pub fn of_run(run: &str) -> Self {
        Self { run: run.to_owned(), ..Self::default() }
    }

    /// Counts the next event of the run's log, from the first one on.
    pub fn push(&mut self, body: &Body) {
        match body {
            Body::Run(RunEvent::Started) => self.has_started = true,
            Body::Run(RunEvent::Result(_)) => self.has_result = true,
            Body::State(StateEvent::Output(output)) => self.output = Some(output.clone()),
            Body::State(StateEvent::Values(values)) => self.values = Some(values.clone()),
            Body::Interrupt(InterruptEvent::RuleApplied { .. }) => self.count(body),
            Body::Run(_) | Body::Interrupt(_) | Body::Thread(_) => {}
            _ if !self.has_started => {}
            Body::Message(message) => self.message(message, body),
            Body::Tool(_) | Body::State(_) | Body::Opaque => self.count(body),
        }
    }

    /// Returns the agent's incomplete messages, oldest first.
    pub fn open(&self) -> impl Iterator<Item = (&MessageId, &Role)> {
        self.open.iter().map(|(message, role)| (message, role))
    }

    /// Whether a body that is read again comes after this position. Text across the position loses the part before it.
    pub fn passes(&mut self, body: &mut Body) -> bool {
        match body {
            Body::Run(RunEvent::Result(_)) => return !std::mem::take(&mut self.has_result),
            Body::State(StateEvent::Output(output)) => {
                return self.output.take_if(|known| known == output).is_none();
            }
            Body::State(StateEvent::Values(values)) => {
                return self.values.take_if(|known| known == values).is_none();
            }
            _ => {}
        }
        let mut id = message_of(body);
        if let Some(own) = id.as_ref().filter(|_| !self.places.contains_key(&id)) {
            id = Some(replacement_id(&self.run, own));
        }
        let Some(place) = self.places.get_mut(&id) else { return true };
        place.passes(body)
    }

    fn message(&mut self, message: &MessageEvent, body: &Body) {
        match message {
            MessageEvent::Started { message, role, .. } if role.is_user() => {
                self.of_users.insert(message.clone());
            }
            MessageEvent::Started { message, role, .. } => {
                self.open.push((message.clone(), role.clone()));
            }
            MessageEvent::Completed { message } => self.open.retain(|(open, _)| open != message),
            MessageEvent::Delta { .. }
            | MessageEvent::Part { .. }
            | MessageEvent::Thought { .. } => {}
        }
        if message.message().is_none_or(|id| !self.of_users.contains(id)) {
            self.count(body);
        }
    }

    fn count(&mut self, body: &Body) {
        let place = self.places.entry(message_of(body)).or_default();
        match body {
            Body::Message(MessageEvent::Delta { text, .. }) => place.count_text(text),
            Body::Message(MessageEvent::Part { part, .. }) => place.count_part(part),
            _ => place.count_body(),
        }
    }
}

/// Returns the id here of a message of this run whose own id belongs to another message of the thread. It is the same each time, so that a run that is read again is found in its log.
#[must_use]
pub fn replacement_id(run: &str, taken: &MessageId) -> MessageId {
    let run = uuid::Uuid::new_v5(&NAMESPACE, run.as_bytes());
    MessageId::from_uuid(uuid::Uuid::new_v5(&run, taken.as_str().as_bytes()))
}

fn message_of(body: &Body) -> Option<MessageId> {
    match body {
        Body::Message(message) => message.message().cloned(),
        _ => None,
    }
}

// === impl LoggedCount ===

impl LoggedCount {
    pub(crate) fn count_part(&mut self, part: &Part) {
        match plain_text(part) {
            Some(text) => self.count_text(text),
            None => self.count_body(),
        }
    }

    fn count_text(&mut self, text: &str) {
        self.text += text.len();
    }

    fn count_body(&mut self) {
        (self.bodies, self.text) = (self.bodies + 1, 0);
    }

    pub(crate) fn ends_with_text(&self) -> bool {
        self.text > 0
    }

    fn passes(&mut self, body: &mut Body) -> bool {
        match body {
            Body::Message(MessageEvent::Delta { text, .. }) => self.passes_text(text),
            Body::Message(MessageEvent::Part { part, .. }) => self.passes_part(part),
            _ => self.passes_body(),
        }
    }

    /// Whether a part comes after the counted ones. Text that is partly counted loses the counted part.
    pub(crate) fn passes_part(&mut self, part: &mut Part) -> bool {
        match plain_text(part).cloned() {
            Some(mut text) => {
                let passes = self.passes_text(&mut text);
                part.content = Content::Text(text);
                passes
            }
            None => self.passes_body(),
        }
    }

    fn passes_text(&mut self, text: &mut Arc<str>) -> bool {
        if self.bodies > 0 {
            return false;
        }
        let known = std::mem::take(&mut self.text);
        if known >= text.len() {
            self.text = known - text.len();
            return known == 0;
        }
        // A log that was not created from this run may end inside a character.
        if known > 0 {
            *text = text.get(known..).unwrap_or_default().into();
        }
        true
    }

    fn passes_body(&mut self) -> bool {
        self.text = if self.bodies > 0 { self.text } else { 0 };
        let is_known = self.bodies > 0;
        self.bodies = self.bodies.saturating_sub(1);
        !is_known
    }
}

/// Returns the text of a part that contains only text.
pub(crate) fn plain_text(part: &Part) -> Option<&Arc<str>> {
    match &part.content {
        Content::Text(text) if *part == Part::text(Arc::clone(text)) => Some(text),
        _ => None,
    }
}
