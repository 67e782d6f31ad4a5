//! The card of an agent of this protocol that has not been started yet.

use serde_json::{Value, json};
use trilogue_domain::{Abilities, AgentCard, AgentName, DeclaredInterrupt, InputKind, Json};

/// Returns the card of an agent of which only the command is known: it takes messages, streams values and updates, and may raise permissions, forms and addresses to visit.
pub fn card(name: AgentName, description: String) -> AgentCard {
    AgentCard {
        description,
        interrupts: interrupts(),
        abilities: Abilities {
            streams_values: Some(true),
            streams_updates: Some(true),
            ..Abilities::default()
        },
        input_content_types: vec!["text/plain".to_owned()],
        output_content_types: vec!["text/plain".to_owned()],
        ..AgentCard::new(name, InputKind::Chat)
    }
}

/// Returns the protocol's interrupts (`session/request_permission`, and `elicitation/create` in its two modes).
fn interrupts() -> Vec<DeclaredInterrupt> {
    let payload = |rest: Value| {
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
            &payload(json!({ "options": options, "tool_call": { "type": "object" } })),
            &choice,
        ),
        // The schema of a form comes with its interrupt; `false` declines.
        declared("form", &payload(json!({ "payload": {} })), &json!({})),
        declared(
            "url",
            &payload(json!({ "payload": {} })),
            &json!({ "type": ["boolean", "null"] }),
        ),
    ]
}
