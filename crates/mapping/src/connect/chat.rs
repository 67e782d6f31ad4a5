//! The schemas of an agent that takes messages.

use serde_json::{Value, json};
use trilogue_domain::AgentCommand;
use trilogue_wire::agent_connect::Json;

/// Returns the input schema: `messages`, `message`, or both. The agent's commands are its examples.
pub(super) fn input(commands: &[AgentCommand]) -> Json {
    let mut schema = input_schema();
    if !commands.is_empty() {
        let example = |command: &AgentCommand| json!({ "message": format!("/{}", command.name) });
        schema["examples"] = commands.iter().map(example).collect();
        let describe =
            |command: &AgentCommand| format!("/{}: {}", command.name, command.description);
        let all: Vec<_> = commands.iter().map(describe).collect();
        schema["$comment"] = format!("Commands:\n{}", all.join("\n")).into();
    }
    Json::from_value(&schema)
}

fn input_schema() -> Value {
    json!({
        "type": "object",
        "description": "The messages for the agent. A string in their place is one message of the user.",
        "properties": {
            "messages": messages("The messages, oldest first"),
            "message": { "type": "string", "description": "The last message of the user" }
        },
        "anyOf": [{ "required": ["messages"] }, { "required": ["message"] }],
        "additionalProperties": false,
        "$defs": { "Message": message() }
    })
}

pub(super) fn output() -> Json {
    Json::from_value(&json!({
        "type": "object",
        "description": "What the agent said.",
        "properties": {
            "messages": messages("The messages of the agent, oldest first"),
            "message": { "type": "string", "description": "The text of its last message" }
        },
        "required": ["messages"],
        "$defs": { "Message": message() }
    }))
}

pub(super) fn state() -> Json {
    Json::from_value(&json!({
        "type": "object",
        "description": "What was said on the thread.",
        "properties": { "messages": messages("The whole conversation, oldest first") },
        "required": ["messages"],
        "$defs": { "Message": message() }
    }))
}

fn messages(description: &str) -> Value {
    json!({
        "type": "array",
        "description": description,
        "items": { "$ref": "#/$defs/Message" }
    })
}

fn message() -> Value {
    json!({
        "type": "object",
        "properties": {
            "role": { "type": "string", "description": "Who said it: `user` or `assistant`" },
            "content": {
                "description": "A text, or its pieces",
                "oneOf": [
                    { "type": "string" },
                    {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "type": { "type": "string" },
                                "text": { "type": "string" },
                                "metadata": { "type": "object" }
                            },
                            "required": ["type"]
                        }
                    }
                ]
            },
            "id": { "type": "string" },
            "metadata": { "type": "object" }
        },
        "required": ["role", "content"]
    })
}
