//! Threads and their states to the wire.

use serde_json::Value;
use trilogue_domain::{Json, Message, ThreadActivity, Timestamp};

use super::block::Links;
use super::message::messages;
use super::run::member;
use super::thread_status;
use crate::time;

/// A thread's state.
#[derive(Clone, Copy, Debug)]
pub enum State<'a> {
    /// What an agent or a client set.
    Value(&'a Json),
    /// What was said.
    Messages(&'a [Message]),
}

/// What the face shows of a stored thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOf<'a> {
    /// Its id.
    pub id: &'a str,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
    /// Its metadata: a JSON object.
    pub metadata: &'a Json,
    /// How it stands.
    pub standing: ThreadActivity,
    /// Its state; `None` where it has none yet, or none that is shown.
    pub state: Option<State<'a>>,
}

/// What the face shows of a checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointOf<'a> {
    /// Its id.
    pub id: &'a str,
    /// The state.
    pub state: State<'a>,
    /// How it came to be: an object.
    pub metadata: Value,
}

/// A thread as JSON.
#[must_use]
pub fn thread(of: &ThreadOf<'_>, links: &Links) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut text =
        |key: &str, value: &str| member(&mut out, key, Value::from(value).to_string().as_bytes());
    text("thread_id", of.id);
    text("created_at", &time(of.created_at).to_string());
    text("updated_at", &time(of.updated_at).to_string());
    text("status", thread_status(of.standing).as_str());
    member(&mut out, "metadata", of.metadata.as_bytes());
    if let Some(state) = of.state {
        write_state(&mut out, state, links);
    }
    out.push(b'}');
    out
}

/// A checkpoint of a thread as JSON.
#[must_use]
pub fn thread_state(of: &CheckpointOf<'_>, links: &Links) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let checkpoint = serde_json::json!({ "checkpoint_id": of.id });
    member(&mut out, "checkpoint", checkpoint.to_string().as_bytes());
    write_state(&mut out, of.state, links);
    member(&mut out, "metadata", of.metadata.to_string().as_bytes());
    out.push(b'}');
    out
}

/// A state alone as JSON: the value that was set, or `{"messages": […]}`.
#[must_use]
pub fn state(state: State<'_>, links: &Links) -> Vec<u8> {
    match state {
        State::Value(value) => value.as_bytes().to_vec(),
        State::Messages(said) => of_messages(&said_json(said, links)),
    }
}

fn write_state(out: &mut Vec<u8>, state: State<'_>, links: &Links) {
    match state {
        State::Value(value) => member(out, "values", value.as_bytes()),
        State::Messages(said) => {
            let said = said_json(said, links);
            member(out, "values", &of_messages(&said));
            member(out, "messages", &said);
        }
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
