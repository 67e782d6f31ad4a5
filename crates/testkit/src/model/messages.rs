//! The dialect of Anthropic's messages.

use serde_json::{Value, json};

use super::script::{Conversation, Item, Step};
use super::{Dialect, NamedData, names, pieces, text_of};

pub(super) const DIALECT: Dialect = Dialect { conversation, events, whole };

fn conversation(request: &Value) -> Conversation {
    let messages = request["messages"].as_array().into_iter().flatten();
    let items = messages.map(|message| match message["role"].as_str() {
        // Results of tools come as messages of the user, with notes of the agent beside them.
        Some("user") if has_result(&message["content"]) => Item::Other,
        Some("user") => Item::User(text_of(&message["content"])),
        Some("assistant") => Item::Model,
        _ => Item::Other,
    });
    Conversation { items: items.collect(), tools: names(&request["tools"], |tool| &tool["name"]) }
}

fn has_result(content: &Value) -> bool {
    content.as_array().is_some_and(|parts| parts.iter().any(|part| part["type"] == "tool_result"))
}

fn events(step: &Step, request: &Value) -> [Vec<NamedData>; 2] {
    let mut index = 0;
    let mut before = vec![("message_start", json!({"message": message(&[], None, step, request)}))];
    if let Some(text) = &step.text {
        let deltas =
            pieces(text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        before.extend(block(index, &json!({"type": "text", "text": ""}), deltas));
        index += 1;
    }
    let mut after = Vec::new();
    for call in &step.calls {
        let start = json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": {}});
        let delta = json!({"type": "input_json_delta", "partial_json": call.arguments.to_string()});
        after.extend(block(index, &start, [delta].into_iter()));
        index += 1;
    }
    let delta = json!({"stop_reason": reason(step), "stop_sequence": null});
    after.push(("message_delta", json!({"delta": delta, "usage": {"output_tokens": 3}})));
    after.push(("message_stop", json!({})));
    [before, after].map(|events| {
        let typed = events.into_iter().map(|(name, mut data)| {
            data["type"] = json!(name);
            (name, data.to_string())
        });
        typed.collect()
    })
}

fn block(
    index: usize,
    start: &Value,
    deltas: impl Iterator<Item = Value>,
) -> Vec<(&'static str, Value)> {
    let mut events = vec![("content_block_start", json!({"index": index, "content_block": start}))];
    events.extend(
        deltas.map(|delta| ("content_block_delta", json!({"index": index, "delta": delta}))),
    );
    events.push(("content_block_stop", json!({"index": index})));
    events
}

fn whole(step: &Step, request: &Value) -> Value {
    let text = step.text.iter().map(|text| json!({"type": "text", "text": text}));
    let calls = step.calls.iter().map(|call| {
        json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": call.arguments})
    });
    let content: Vec<_> = text.chain(calls).collect();
    message(&content, Some(reason(step)), step, request)
}

fn reason(step: &Step) -> &'static str {
    if step.calls.is_empty() { "end_turn" } else { "tool_use" }
}

fn message(content: &[Value], stop: Option<&str>, step: &Step, request: &Value) -> Value {
    json!({
        "id": format!("msg_{}", step.number), "type": "message", "role": "assistant", "model": request["model"],
        "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    })
}
