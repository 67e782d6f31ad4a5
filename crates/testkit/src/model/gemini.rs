//! The dialect of Gemini.

use serde_json::{Value, json};

use super::script::{Conversation, Item, Step};
use super::{Dialect, NAME, NamedData, names, pieces, text_of};

pub(super) const DIALECT: Dialect = Dialect { conversation, events, whole };

/// What the name of a streaming call ends with. Requests of this dialect do not say it themselves.
pub(super) const STREAMING_CALL: &str = ":streamGenerateContent";

fn conversation(request: &Value) -> Conversation {
    let contents = request["contents"].as_array().into_iter().flatten();
    let items = contents.map(|content| match content["role"].as_str() {
        Some("model") => Item::Model,
        // Results of tools come as messages of the user.
        _ if has_result(&content["parts"]) => Item::Other,
        _ => Item::User(text_of(&content["parts"])),
    });
    let groups = request["tools"].as_array().into_iter().flatten();
    let tools = groups.flat_map(|group| names(&group["functionDeclarations"], |it| &it["name"]));
    Conversation { items: items.collect(), tools: tools.collect() }
}

fn has_result(parts: &Value) -> bool {
    parts.as_array().is_some_and(|parts| parts.iter().any(|it| it["functionResponse"].is_object()))
}

fn events(step: &Step, _request: &Value) -> [Vec<NamedData>; 2] {
    let text = step.text.as_deref().map(pieces).unwrap_or_default();
    let text = text.iter().map(|piece| ("", response(&[json!({"text": piece})], None).to_string()));
    let end = response(&calls(step), Some("STOP")).to_string();
    [text.collect(), vec![("", end)]]
}

fn whole(step: &Step, _request: &Value) -> Value {
    let text = step.text.iter().map(|text| json!({"text": text}));
    let parts: Vec<_> = text.chain(calls(step)).collect();
    response(&parts, Some("STOP"))
}

fn calls(step: &Step) -> Vec<Value> {
    let calls = step.calls.iter().map(
        |call| json!({"functionCall": {"id": call.id, "name": call.tool, "args": call.arguments}}),
    );
    calls.collect()
}

fn response(parts: &[Value], reason: Option<&str>) -> Value {
    let content = json!({"role": "model", "parts": parts});
    json!({
        "candidates": [{"index": 0, "content": content, "finishReason": reason}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10},
        "modelVersion": NAME,
    })
}
