use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::{Input, Json, Message, Part, ThreadId};
use trilogue_wire::agent_connect as wire;

use crate::connect::{Links, message};
use crate::native::json as to_wire;

/// Returns the input of a remote run: a value unchanged; messages after those that the agent has not seen yet.
/// Our servers keep ids and metadata; others get only the role and the content of a message.
/// Stored content is left out: the caller inlines it first.
#[must_use]
pub fn remote_input(missed: &[Message], input: &Input, is_ours: bool) -> wire::Json {
    let own = match input {
        Input::Value(value) => return to_wire(value),
        Input::Messages(own) => own,
    };
    let links = no_links();
    let said = missed.iter().chain(own).map(|said| {
        let mut said = message(said, &links);
        if !is_ours {
            (said.id, said.metadata) = (None, None);
            said.extra.clear();
        }
        serde_json::to_value(said).unwrap_or(Value::Null)
    });
    wire::Json::from_value(&json!({ "messages": said.collect::<Vec<_>>() }))
}

/// Returns the payload that answers a question with a message.
pub(super) fn message_payload(parts: &[Part]) -> Json {
    let texts: Vec<&str> = parts.iter().filter_map(|part| plain(part)).collect();
    if texts.len() == parts.len() {
        return Json::from_value(&json!({ "message": texts.concat() }));
    }
    let said = Message::new(trilogue_domain::Role::User, parts.to_vec(), None);
    let wire::Message { content, .. } = message(&said, &no_links());
    Json::from_value(&json!({ "role": "user", "content": content }))
}

fn plain(part: &Part) -> Option<&str> {
    part.as_text().filter(|text| *part == Part::text(*text))
}

/// Returns links for messages without stored content, so that no link is created.
pub(super) fn no_links() -> Links {
    Links::new(&Arc::from(""), &ThreadId::from_uuid(uuid::Uuid::nil()))
}
