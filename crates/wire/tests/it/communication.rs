//! Shared code for the tests of the Agent Communication Protocol.

use serde_json::Value;
use trilogue_wire::agent_communication::{Message, Read, Rules, RunCreateRequest, Violation, read};

/// The rules that a server can choose.
pub(crate) const SERVER_RULES: [Rules; 2] = [Rules::Compatible, Rules::Strict];

pub(crate) fn read_value<T: Read>(value: &Value, rules: Rules) -> Result<T, Violation> {
    read(value.to_string().as_bytes(), rules)
}

/// Reads a request for a run with this one input message, as the server does.
pub(crate) fn request(message: &Value, rules: Rules) -> Result<Message, Violation> {
    let body = serde_json::json!({"agent_name": "echo", "input": [message]});
    let request: RunCreateRequest = read_value(&body, rules)?;
    Ok(request.input.into_iter().next().unwrap())
}

/// Reads a request for a run whose message has this one part.
pub(crate) fn request_part(part: &Value, rules: Rules) -> Result<Message, Violation> {
    request(&serde_json::json!({"role": "user", "parts": [part]}), rules)
}

pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}
