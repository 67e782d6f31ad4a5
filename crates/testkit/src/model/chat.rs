//! The dialect of chat completions.

use serde_json::{Value, json};

use super::script::{Conversation, Item, Step};
use super::{Dialect, NAME, NamedData, names, pieces, text_of};

pub(super) const DIALECT: Dialect = Dialect { conversation, events, whole };

fn conversation(request: &Value) -> Conversation {
    let messages = request["messages"].as_array().into_iter().flatten();
    let items = messages.map(|message| match message["role"].as_str() {
        Some("user") => Item::User(text_of(&message["content"])),
        Some("assistant") => Item::Model,
        _ => Item::Other,
    });
    Conversation {
        items: items.collect(),
        tools: names(&request["tools"], |tool| &tool["function"]["name"]),
    }
}

fn events(step: &Step, _request: &Value) -> [Vec<NamedData>; 2] {
    let chunk = |delta: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        object("chat.completion.chunk", &choice, false).to_string()
    };
    let text = step.text.as_deref().map(pieces).unwrap_or_default();
    let text = text.iter().map(|piece| chunk(json!({"role": "assistant", "content": piece})));
    let before = text.map(|data| ("", data)).collect();
    let mut after = Vec::new();
    if !step.calls.is_empty() {
        after.push((
            "",
            chunk(json!({"role": "assistant", "content": null, "tool_calls": calls(step)})),
        ));
    }
    let end = json!({"index": 0, "delta": {}, "finish_reason": reason(step)});
    after.push(("", object("chat.completion.chunk", &end, true).to_string()));
    after.push(("", "[DONE]".to_owned()));
    [before, after]
}

fn whole(step: &Step, _request: &Value) -> Value {
    let mut message = json!({"role": "assistant", "content": step.text});
    if !step.calls.is_empty() {
        message["tool_calls"] = calls(step);
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": reason(step)});
    object("chat.completion", &choice, true)
}

fn reason(step: &Step) -> &'static str {
    if step.calls.is_empty() { "stop" } else { "tool_calls" }
}

fn calls(step: &Step) -> Value {
    let calls = step.calls.iter().enumerate().map(|(index, call)| {
        let function = json!({"name": call.tool, "arguments": call.arguments.to_string()});
        json!({"index": index, "id": call.id, "type": "function", "function": function})
    });
    calls.collect()
}

fn object(kind: &str, choice: &Value, is_last: bool) -> Value {
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10});
    json!({
        "id": "chat-1", "object": kind, "created": 1, "model": NAME,
        "choices": [choice], "usage": is_last.then_some(usage),
    })
}
