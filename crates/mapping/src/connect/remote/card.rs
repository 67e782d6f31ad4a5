use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, InputKind, Json};

use crate::connect;
use crate::shape::Properties;

/// Returns the card of an agent that its server describes with this descriptor: it takes messages if the descriptor's input has them, otherwise a value by its schema.
/// Fails as [`connect::card`].
pub fn remote_card(base: AgentCard, descriptor: &Json) -> Result<AgentCard> {
    connect::card(descriptor, AgentCard { input: remote_input_kind(descriptor), ..base })
}

/// Returns how an agent takes its input by its descriptor.
#[must_use]
pub fn remote_input_kind(descriptor: &Json) -> InputKind {
    let descriptor = descriptor.to_value();
    match descriptor.pointer("/specs/input") {
        Some(input) if !is_chat_input(input) => InputKind::Schema(Json::from_value(input)),
        Some(_) | None => InputKind::Chat,
    }
}

/// Whether an input has the form of messages: an object with `messages`, whose items have a role and a content, and that requires at most `message` in addition.
fn is_chat_input(schema: &Value) -> bool {
    let Some(Properties { all, required }) = Properties::of(schema) else { return false };
    let items = all.get("messages").and_then(|messages| messages.get("items"));
    let item = items.map(|items| resolved(schema, items));
    let is_message = item.and_then(Properties::of).is_some_and(|message| {
        ["role", "content"].iter().all(|name| message.all.contains_key(*name))
    });
    is_message && required.iter().all(|name| matches!(*name, "messages" | "message"))
}

/// Resolves a reference to a schema within the same document.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let place = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
    place.and_then(|place| root.pointer(place)).unwrap_or(schema)
}
