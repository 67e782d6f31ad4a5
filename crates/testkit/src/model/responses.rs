//! The dialect of OpenAI's responses.

use serde_json::{Value, json};

use super::script::{Conversation, Item, Step};
use super::{Dialect, NamedData, names, pieces, text_of};

pub(super) const DIALECT: Dialect = Dialect { conversation, events, whole };

fn conversation(request: &Value) -> Conversation {
    let input = request["input"].as_array().into_iter().flatten();
    let items = input.map(|item| match (item["type"].as_str(), item["role"].as_str()) {
        (Some("message") | None, Some("user")) => Item::User(text_of(&item["content"])),
        (Some("message"), Some("assistant")) | (Some("function_call" | "reasoning"), _) => {
            Item::Model
        }
        _ => Item::Other,
    });
    let mut tools = names(&request["tools"], |tool| &tool["name"]);
    let groups = request["tools"].as_array().into_iter().flatten();
    for group in groups.filter(|tool| tool["type"] == "namespace") {
        let group_name = group["name"].as_str().unwrap_or_default();
        let grouped = names(&group["tools"], |tool| &tool["name"]).into_iter();
        tools.extend(grouped.map(|tool| format!("{group_name}/{tool}")));
    }
    Conversation { items: items.collect(), tools }
}

fn events(step: &Step, _request: &Value) -> [Vec<NamedData>; 2] {
    let [text, calls] = items(step);
    let mut before = vec![("response.created", json!({"response": {"id": ID}}))];
    let mut after = Vec::new();
    for item in &text {
        let start =
            json!({"type": "message", "id": item["id"], "role": "assistant", "content": []});
        before.push(("response.output_item.added", json!({"output_index": 0, "item": start})));
        let text = step.text.as_deref().unwrap_or_default();
        before.extend(pieces(text).into_iter().map(|piece| {
            let delta = json!({"item_id": item["id"], "output_index": 0, "content_index": 0, "delta": piece});
            ("response.output_text.delta", delta)
        }));
        after.push(("response.output_item.done", json!({"output_index": 0, "item": item})));
    }
    for (index, item) in calls.iter().enumerate() {
        let place = json!({"output_index": index + text.len(), "item": item});
        after.push(("response.output_item.added", place.clone()));
        after.push(("response.output_item.done", place));
    }
    after.push(("response.completed", json!({"response": {"id": ID, "usage": usage()}})));
    [before, after].map(|events| {
        let typed = events.into_iter().map(|(name, mut data)| {
            data["type"] = json!(name);
            (name, data.to_string())
        });
        typed.collect()
    })
}

fn whole(step: &Step, request: &Value) -> Value {
    json!({
        "id": ID, "object": "response", "status": "completed", "model": request["model"],
        "output": items(step).concat(), "usage": usage(),
    })
}

const ID: &str = "resp_1";

/// The items of an answer: its text, and its calls.
fn items(step: &Step) -> [Vec<Value>; 2] {
    let text = step.text.iter().map(|text| {
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        json!({"type": "message", "id": format!("msg_{}", step.number), "role": "assistant", "content": content})
    });
    let calls = step.calls.iter().map(|call| {
        let mut item = json!({
            "type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id,
            "name": call.tool, "arguments": call.arguments.to_string(),
        });
        if let Some((group, tool)) = call.tool.split_once('/') {
            item["namespace"] = json!(group);
            item["name"] = json!(tool);
        }
        item
    });
    [text.collect(), calls.collect()]
}

fn usage() -> Value {
    json!({
        "input_tokens": 7, "input_tokens_details": null, "output_tokens": 3,
        "output_tokens_details": null, "total_tokens": 10,
    })
}
