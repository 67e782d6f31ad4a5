use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use trilogue_domain::interrupt::Effect;
use trilogue_domain::{Content, Interrupt, InterruptKind, Json, Part};
use trilogue_wire::agent_connect as wire;
use trilogue_wire::agent_connect::RunInterrupt;

use super::block::{Links, TreeRoom, block};
use crate::agent_client::tool_call_of;
use crate::native::json as to_wire;

/// Renders a run's question: the payload under the name of its type, the type and the payload alone, and the interrupt's id.
/// An agent's own interrupt has its payload unchanged. The others have `message` with the question as text, `content` for other content, `options` for a choice, and the agent's additional data under `payload`.
pub fn interrupt(interrupt: &Interrupt, links: &Links) -> RunInterrupt {
    let payload = payload(interrupt, links);
    let kind = interrupt.kind.as_str();
    let keyed = format!("{{{}:{}}}", Value::from(kind), payload.as_str());
    RunInterrupt {
        interrupt: wire::Json::parse(keyed).unwrap_or_else(|_| wire::Json::null()),
        interrupt_type: Some(kind.to_owned()),
        interrupt_payload: Some(payload),
        interrupt_id: Some(interrupt.id.as_str().to_owned()),
        resume_schema: resume_schema(interrupt),
    }
}

fn payload(interrupt: &Interrupt, links: &Links) -> wire::Json {
    if let InterruptKind::Custom(_) = interrupt.kind {
        return to_wire(&interrupt.payload);
    }
    // Its JSON stays as it is written: its values would need far more memory.
    let mut shown: BTreeMap<&str, wire::Json> = BTreeMap::new();
    let mut set = |key, value: wire::Json| drop(shown.insert(key, value));
    let words: Vec<&str> = interrupt.prompt.iter().filter_map(Part::as_text).collect();
    if !words.is_empty() {
        set("message", json_of(&words.join("\n")));
    }
    let is_words = |part: &Part| matches!(part.content, Content::Text(_)) && part.name.is_none();
    if !interrupt.prompt.iter().all(is_words) {
        let mut room = TreeRoom::new();
        let prompt = interrupt.prompt.iter();
        let blocks: Vec<_> = prompt.map(|part| block(part, links, &mut room)).collect();
        set("content", json_of(&blocks));
    }
    if interrupt.kind == InterruptKind::Permission {
        set("options", json_of(&interrupt.options.iter().map(option).collect::<Vec<_>>()));
    }
    if interrupt.payload.as_str().trim() != "null" {
        let is_permission = interrupt.kind == InterruptKind::Permission;
        let call = is_permission.then(|| tool_call_of(&interrupt.payload)).flatten();
        let key = if is_permission { "tool_call" } else { "payload" };
        set(key, call.unwrap_or_else(|| to_wire(&interrupt.payload)));
    }
    json_of(&shown)
}

fn json_of(value: &impl Serialize) -> wire::Json {
    let text = serde_json::to_string(value).and_then(wire::Json::parse);
    text.unwrap_or_else(|_| wire::Json::null())
}

fn option(option: &trilogue_domain::interrupt::PermissionOption) -> Value {
    let kind = match (option.effect, option.always) {
        (Effect::Allow, false) => "allow_once",
        (Effect::Allow, true) => "allow_always",
        (Effect::Reject, false) => "reject_once",
        (Effect::Reject, true) => "reject_always",
    };
    json!({ "option_id": option.id, "name": option.name, "kind": kind })
}

/// Returns the schema of the answer: the interrupt's own, or that of its kind.
fn resume_schema(interrupt: &Interrupt) -> Option<wire::Json> {
    if let Some(schema) = &interrupt.schema {
        return Some(to_wire(schema));
    }
    let schema = match interrupt.kind {
        InterruptKind::Permission => {
            let ids: Vec<&str> = interrupt.options.iter().map(|it| it.id.as_str()).collect();
            json!({
                "type": "object",
                "properties": { "option_id": { "enum": ids } },
                "required": ["option_id"]
            })
        }
        InterruptKind::Message => json!({
            "type": "object",
            "properties": { "message": { "type": "string" } },
            "required": ["message"]
        }),
        InterruptKind::Form | InterruptKind::Url | InterruptKind::Custom(_) => return None,
    };
    Some(wire::Json::from_value(&schema))
}

/// Returns the properties that the schema allows in the answer to an interrupt.
pub(super) fn answer_properties(schema: Option<&Json>) -> Vec<String> {
    let schema = schema.map_or(Value::Null, Json::to_value);
    match schema.get("properties") {
        Some(Value::Object(properties)) => properties.keys().cloned().collect(),
        _ => Vec::new(),
    }
}
