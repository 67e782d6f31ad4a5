use serde_json::{Map, Value};
use trilogue_domain::{AgentCard, AgentCommand, AgentName, InputKind};
use trilogue_wire::agent_communication::{
    AgentManifest, Capability, Extra, Json, ManifestMetadata,
};

use super::{EXTENSION, face_name};

/// Returns an agent's manifest. Its schemas, version and title are under the extension key.
pub fn agent(card: &AgentCard) -> AgentManifest {
    let mut extra = Extra::new();
    extra.set(EXTENSION, Json::from_value(&Value::Object(extension_members(card))));
    AgentManifest {
        metadata: ManifestMetadata {
            capabilities: capabilities(card),
            extra,
            ..ManifestMetadata::default()
        },
        input_content_types: at_least_one(&card.input_content_types),
        output_content_types: at_least_one(&card.output_content_types),
        ..AgentManifest::new(face_name(&card.name), card.description.clone())
    }
}

/// Returns an agent's commands; `None` if it has no commands.
fn capabilities(card: &AgentCard) -> Option<Vec<Capability>> {
    let capability = |command: &AgentCommand| Capability {
        name: command.name.clone(),
        description: command.description.clone(),
    };
    (!card.commands.is_empty()).then(|| card.commands.iter().map(capability).collect())
}

fn extension_members(card: &AgentCard) -> Map<String, Value> {
    let mut beyond = Map::new();
    let mut set = |key: &str, value: Value| drop(beyond.insert(key.to_owned(), value));
    set("version", Value::from(card.version.clone()));
    if face_name(&card.name) != card.name.as_str() {
        set("name", Value::from(card.name.as_str()));
    }
    if let Some(title) = &card.title {
        set("title", Value::from(title.clone()));
    }
    if let InputKind::Schema(schema) = &card.input {
        set("input_schema", schema.to_value());
    }
    if let Some(schema) = &card.output_schema {
        set("output_schema", schema.to_value());
    }
    if let Some(schema) = &card.config_schema {
        set("config_schema", schema.to_value());
    }
    beyond
}

/// Returns at least one content type, because official clients refuse an agent without any.
fn at_least_one(types: &[String]) -> Vec<String> {
    if types.is_empty() { vec!["*/*".to_owned()] } else { types.to_vec() }
}

/// Returns the card of a remote agent from its manifest. It keeps its name here; data beyond the protocol from one of our servers is taken over.
/// Invalid schemas are left out.
pub fn card(name: AgentName, manifest: &AgentManifest) -> AgentCard {
    let beyond = manifest.metadata.extra.get(EXTENSION).map(Json::to_value).unwrap_or_default();
    let text = |key: &str| beyond.get(key).and_then(Value::as_str).map(str::to_owned);
    let schema = |key: &str| {
        let schema = beyond.get(key).filter(|schema| schema.is_object())?;
        Some(trilogue_domain::Json::from_value(schema))
    };
    let input = schema("input_schema").map_or(InputKind::Chat, InputKind::Schema);
    AgentCard {
        title: text("title").or_else(|| Some(manifest.name.clone())),
        version: text("version").unwrap_or_default(),
        description: manifest.description.clone(),
        output_schema: schema("output_schema"),
        config_schema: schema("config_schema"),
        input_content_types: manifest.input_content_types.clone(),
        output_content_types: manifest.output_content_types.clone(),
        ..AgentCard::new(name, input)
    }
}
