//! The card of an agent of this protocol after its start: with its response to `initialize`, and the offers in its sessions.

use serde_json::{Map, Value, json};
use trilogue_domain::{AgentCard, AgentCommand, Json};
use trilogue_wire::agent_client::PromptCapabilities;

/// Content types other than text, by the prompt capability that accepts them.
const TYPES: [(&str, &[&str]); 3] = [
    ("image", &["image/*"]),
    ("audio", &["audio/*"]),
    ("embeddedContext", &["text/*", "application/*"]),
];

/// Returns the prompt capabilities in an agent's response to `initialize`.
#[must_use]
pub fn prompt_capabilities(greeting: &Json) -> PromptCapabilities {
    let greeting = greeting.to_value();
    let takes = greeting.pointer("/agentCapabilities/promptCapabilities");
    let has = |name: &str| takes.and_then(|takes| takes.get(name)) == Some(&Value::Bool(true));
    PromptCapabilities {
        image: has("image"),
        audio: has("audio"),
        embedded_context: has("embeddedContext"),
        ..PromptCapabilities::default()
    }
}

/// Adds what an agent has reported to its card. Members that the card already has stay, because its author wrote them.
///
/// `greeting` is the response to `initialize`; `offers` has `availableModes`, `configOptions` and `availableCommands` if the agent offered them.
pub fn learned_card(base: &AgentCard, greeting: &Json, offers: &Json) -> AgentCard {
    let (greeting, offers) = (greeting.to_value(), offers.to_value());
    let mut card = base.clone();
    if card.version.is_empty() {
        let version = greeting.pointer("/agentInfo/version").and_then(Value::as_str);
        card.version = version.unwrap_or_default().to_owned();
    }
    let takes = greeting.pointer("/agentCapabilities/promptCapabilities");
    for (capability, types) in TYPES {
        if takes.and_then(|takes| takes.get(capability)) == Some(&Value::Bool(true)) {
            let new =
                types.iter().filter(|kind| !base.input_content_types.iter().any(|it| it == *kind));
            card.input_content_types.extend(new.map(|kind| (*kind).to_owned()));
        }
    }
    if card.config_schema.is_none() {
        card.config_schema = config_schema(&offers);
    }
    if card.commands.is_empty() {
        card.commands = list(&offers, "availableCommands").filter_map(command).collect();
    }
    card
}

fn command(command: &Value) -> Option<AgentCommand> {
    Some(AgentCommand {
        name: text(command, "name")?.to_owned(),
        description: text(command, "description").unwrap_or_default().to_owned(),
    })
}

/// Returns the schema of a run's configuration: the mode and the options of the agent's session, by their ids. `None` if it has neither.
fn config_schema(offers: &Value) -> Option<Json> {
    let mut properties = Map::new();
    let modes: Vec<_> =
        list(offers, "availableModes").filter_map(|mode| alternative(mode, "id")).collect();
    if !modes.is_empty() {
        properties.insert("mode".to_owned(), json!({ "title": "Mode", "oneOf": modes }));
    }
    for option in list(offers, "configOptions") {
        let (Some(id), Some(property)) = (text(option, "id"), property(option)) else { continue };
        properties.insert(id.to_owned(), property);
    }
    if properties.is_empty() {
        return None;
    }
    let schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    Some(Json::from_value(&schema))
}

/// Returns an option as a property; `None` if its type is unknown.
fn property(option: &Value) -> Option<Value> {
    let mut property = match text(option, "type")? {
        "boolean" => json!({ "type": "boolean" }),
        "select" => {
            // Groups contain their choices one level below.
            let flat = list(option, "options").flat_map(|choice| match choice.get("options") {
                Some(Value::Array(grouped)) => grouped.as_slice(),
                _ => std::slice::from_ref(choice),
            });
            let choices: Vec<_> = flat.filter_map(|choice| alternative(choice, "value")).collect();
            json!({ "oneOf": choices })
        }
        _ => return None,
    };
    if let Some(name) = text(option, "name") {
        property["title"] = name.into();
    }
    if let Some(description) = text(option, "description") {
        property["description"] = description.into();
    }
    Some(property)
}

/// Returns one choice, whose id is the member `key`.
fn alternative(choice: &Value, key: &str) -> Option<Value> {
    let mut alternative = json!({ "const": text(choice, key)? });
    for (from, to) in [("name", "title"), ("description", "description")] {
        if let Some(said) = text(choice, from) {
            alternative[to] = said.into();
        }
    }
    Some(alternative)
}

fn list<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    of.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    of.get(key).and_then(Value::as_str)
}
