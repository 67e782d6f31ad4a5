//! What is told of an agent before it was started.

use serde_json::{Value, json};
use trilogue_domain::{Abilities, AgentCard, AgentName, DeclaredInterrupt, InputKind, Json};

/// The card of an agent of which nothing is known but how it is started: it converses, what it says is streamed as a whole and piece by piece, and it may ask for permission, for a form to be filled in and for an address to be visited.
#[must_use]
pub fn card(name: AgentName, description: String) -> AgentCard {
    AgentCard {
        name,
        id: None,
        title: None,
        version: String::new(),
        url: None,
        description,
        input: InputKind::Chat,
        output_schema: None,
        state_schema: None,
        config_schema: None,
        update_schema: None,
        interrupts: questions(),
        errors: Vec::new(),
        abilities: Abilities {
            streams_values: Some(true),
            streams_updates: Some(true),
            ..Abilities::default()
        },
        descriptor: None,
        input_content_types: vec!["text/plain".to_owned()],
        output_content_types: vec!["text/plain".to_owned()],
    }
}

/// What the protocol lets an agent ask (`session/request_permission`, and `elicitation/create` in its two modes).
fn questions() -> Vec<DeclaredInterrupt> {
    let asked = |rest: Value| {
        let mut properties = json!({ "message": { "type": "string" } });
        if let (Some(properties), Value::Object(rest)) = (properties.as_object_mut(), rest) {
            properties.extend(rest);
        }
        json!({ "type": "object", "properties": properties })
    };
    let options = json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "option_id": { "type": "string" },
                "name": { "type": "string" },
                "kind": { "enum": ["allow_once", "allow_always", "reject_once", "reject_always"] },
            },
            "required": ["option_id", "name", "kind"],
        },
    });
    let choice = json!({
        "type": "object",
        "properties": { "option_id": { "type": "string" } },
        "required": ["option_id"],
    });
    let declared = |kind: &str, payload: &Value, answer: &Value| DeclaredInterrupt {
        kind: kind.to_owned(),
        payload_schema: Json::from_value(payload),
        answer_schema: Json::from_value(answer),
    };
    vec![
        declared(
            "permission",
            &asked(json!({ "options": options, "tool_call": { "type": "object" } })),
            &choice,
        ),
        // What a form is answered with is said where it is asked; `false` declines it.
        declared("form", &asked(json!({ "payload": {} })), &json!({})),
        declared("url", &asked(json!({ "payload": {} })), &json!({ "type": ["boolean", "null"] })),
    ]
}
