use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentCard, Code, Error, Input, InputKind, Json, Message, Part, Role, Timestamp, Violation,
    limits,
};
use trilogue_wire::agent_connect as wire;
use trilogue_wire::agent_connect::RunCreate;

use super::message::read_messages;
use crate::native::read_json;

/// Returns the input of a request: `input`, or an object with its top-level `message`; `None` if it has neither.
/// Errors: `invalid_input` if it has both; `json_too_deep`.
pub fn stated_input(request: &RunCreate) -> Result<Option<Json>> {
    match (&request.input, &request.message) {
        (None, None) => Ok(None),
        (Some(input), None) => read_json(input.clone()).map(Some),
        (None, Some(message)) => {
            Json::parse(format!("{{\"message\":{}}}", message.as_str())).map(Some)
        }
        (Some(_), Some(_)) => Err(invalid_input(
            "/message",
            "stands beside `input`: only one of them can be the input",
        )),
    }
}

/// Returns the agent's input. An agent of messages takes an object of `messages`, `message` or both, or a string; any other takes the value, or `null` without one.
/// The caller checks the value against the compiled schema.
/// Errors: `invalid_input`, naming the location; `too_many_parts`, `json_too_deep`.
pub fn input(card: &AgentCard, given: Option<Json>, now: Timestamp) -> Result<Input> {
    let given = given.unwrap_or_else(Json::null);
    match card.input {
        InputKind::Schema(_) => Ok(Input::Value(given)),
        InputKind::Chat => chat_messages(&given, now).map(Input::Messages),
    }
}

/// The object form of a chat agent's input.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatInput {
    #[serde(default)]
    messages: Option<Vec<wire::Message>>,
    #[serde(default)]
    message: Option<String>,
}

fn chat_messages(given: &Json, now: Timestamp) -> Result<Vec<Message>> {
    // A list or an object can need far more memory when it is parsed.
    let is_scalar = !given.as_str().trim_ascii_start().starts_with(['[', '{']);
    match is_scalar.then(|| given.to_value()) {
        Some(Value::String(text)) => return Ok(vec![user(text, now)]),
        Some(Value::Null) => {
            let why = "is missing: it is a string, or an object of `messages`, `message` or both";
            return Err(invalid_input("/input", why));
        }
        _ => {}
    }
    let sent: ChatInput = wire::decode(given.as_bytes()).map_err(|violation| {
        invalid_input(&format!("/input{}", violation.path), &violation.message)
    })?;
    if sent.messages.is_none() && sent.message.is_none() {
        return Err(invalid_input("/input", "has neither `messages` nor `message`"));
    }
    let mut messages = sent.messages.unwrap_or_default();
    if messages.len() + usize::from(sent.message.is_some()) > limits::MAX_MESSAGES_PER_INPUT {
        let most = limits::MAX_MESSAGES_PER_INPUT;
        let message = format!("the input has more than {most} messages");
        return Err(Error::new(Code::TooManyParts, message));
    }
    let mut read = read_messages(std::mem::take(&mut messages), now, "/input/messages")?;
    read.extend(sent.message.map(|text| user(text, now)));
    Ok(read)
}

fn user(text: String, now: Timestamp) -> Message {
    Message::new(Role::User, vec![Part::text(text)], Some(now))
}

pub(super) fn invalid_input(path: &str, why: &str) -> Error {
    Error::new(Code::InvalidInput, format!("{path} {why}"))
        .violations(vec![Violation { path: path.to_owned(), message: why.to_owned() }])
}
