use serde_json::Value;
use trilogue_domain::{Json, Message, ThreadActivity, Timestamp};

use super::block::Links;
use super::message::messages;
use super::run::member;
use super::thread_status;
use crate::time;

#[derive(Clone, Copy, Debug)]
pub enum State<'a> {
    Value(&'a Json),
    Messages(&'a [Message]),
}

#[derive(Clone, Copy, Debug)]
pub struct ThreadFields<'a> {
    pub id: &'a str,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// A JSON object.
    pub metadata: &'a Json,
    pub standing: ThreadActivity,
    /// `None` where it has none yet, or it is not shown.
    pub state: Option<State<'a>>,
}

#[derive(Clone, Debug)]
pub struct CheckpointFields<'a> {
    pub id: &'a str,
    pub state: State<'a>,
    /// How it was made: an object.
    pub metadata: Value,
}

pub fn thread(of: &ThreadFields<'_>, links: &Links) -> Vec<u8> {
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

pub fn thread_state(of: &CheckpointFields<'_>, links: &Links) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let checkpoint = serde_json::json!({ "checkpoint_id": of.id });
    member(&mut out, "checkpoint", checkpoint.to_string().as_bytes());
    write_state(&mut out, of.state, links);
    member(&mut out, "metadata", of.metadata.to_string().as_bytes());
    out.push(b'}');
    out
}

/// A state alone as JSON: the set value, or `{"messages": […]}`.
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
