use serde_json::Value;
use trilogue_domain::{Json, Message, ThreadActivity, Timestamp};

use super::block::Links;
use super::message::{message, messages};
use super::run::member;
use super::thread_status;
use crate::time;

#[derive(Clone, Copy, Debug)]
pub enum State<'a> {
    Value(&'a Json),
    Messages(&'a [Message]),
    /// Messages that are sent one by one: the template has placeholders for them.
    Pieces,
}

/// JSON with placeholders for the elements of an array of messages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Template {
    json: Vec<u8>,
    places: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
pub struct ThreadFields<'a> {
    pub id: &'a str,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// A JSON object.
    pub metadata: &'a Json,
    pub standing: ThreadActivity,
    /// `None` if it has no state yet, or the state is not shown.
    pub state: Option<State<'a>>,
}

#[derive(Clone, Debug)]
pub struct CheckpointFields<'a> {
    pub id: &'a str,
    pub state: State<'a>,
    /// The origin of the checkpoint: an object.
    pub metadata: Value,
}

pub fn thread(of: &ThreadFields<'_>, links: &Links) -> Template {
    let mut out = Template::default();
    let mut text = |key: &str, value: &str| {
        member(&mut out.json, key, Value::from(value).to_string().as_bytes())
    };
    text("thread_id", of.id);
    text("created_at", &time(of.created_at).to_string());
    text("updated_at", &time(of.updated_at).to_string());
    text("status", thread_status(of.standing).as_str());
    member(&mut out.json, "metadata", of.metadata.as_bytes());
    if let Some(state) = of.state {
        out.add_state(state, links);
    }
    out.json.push(b'}');
    out
}

pub fn thread_state(of: &CheckpointFields<'_>, links: &Links) -> Template {
    let mut out = Template::default();
    let checkpoint = serde_json::json!({ "checkpoint_id": of.id });
    member(&mut out.json, "checkpoint", checkpoint.to_string().as_bytes());
    out.add_state(of.state, links);
    member(&mut out.json, "metadata", of.metadata.to_string().as_bytes());
    out.json.push(b'}');
    out
}

/// Renders a state alone: the set value, or `{"messages": […]}`.
pub fn state(state: State<'_>, links: &Links) -> Template {
    let mut out = Template::default();
    match state {
        State::Value(value) => out.json.extend_from_slice(value.as_bytes()),
        State::Messages(said) => out.json = of_messages(&said_json(said, links)),
        State::Pieces => {
            out.json = of_messages(b"[]");
            out.place_before(2);
        }
    }
    out
}

/// Renders a message as an element of an array.
pub fn message_json(said: &Message, links: &Links) -> Vec<u8> {
    serde_json::to_vec(&message(said, links)).unwrap_or_else(|_| b"null".to_vec())
}

// === impl Template ===

impl Template {
    /// Returns the whole JSON; arrays with placeholders stay empty.
    #[must_use]
    pub fn into_json(self) -> Vec<u8> {
        self.json
    }

    /// Returns the JSON in parts; the messages go between each two of them.
    #[must_use]
    pub fn parts(&self) -> Vec<Vec<u8>> {
        let ends = self.places.iter().copied().chain([self.json.len()]);
        let mut begin = 0;
        let part = |end| {
            let part = self.json.get(begin..end).unwrap_or_default().to_vec();
            begin = end;
            part
        };
        ends.map(part).collect()
    }

    /// Returns the same as the only element of an array.
    #[must_use]
    pub fn in_array(mut self) -> Self {
        self.json.insert(0, b'[');
        self.json.push(b']');
        self.places.iter_mut().for_each(|place| *place += 1);
        self
    }

    fn add_state(&mut self, state: State<'_>, links: &Links) {
        match state {
            State::Value(value) => member(&mut self.json, "values", value.as_bytes()),
            State::Messages(said) => {
                let said = said_json(said, links);
                member(&mut self.json, "values", &of_messages(&said));
                member(&mut self.json, "messages", &said);
            }
            State::Pieces => {
                member(&mut self.json, "values", &of_messages(b"[]"));
                self.place_before(2);
                member(&mut self.json, "messages", b"[]");
                self.place_before(1);
            }
        }
    }

    /// Adds a placeholder before the last bytes.
    fn place_before(&mut self, bytes: usize) {
        self.places.push(self.json.len().saturating_sub(bytes));
    }
}

fn said_json(said: &[Message], links: &Links) -> Vec<u8> {
    serde_json::to_vec(&messages(said, links)).unwrap_or_else(|_| b"[]".to_vec())
}

fn of_messages(messages: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(messages.len() + 16);
    member(&mut out, "messages", messages);
    out.push(b'}');
    out
}
