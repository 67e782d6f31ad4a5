use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::message::object_schemas;
use super::{
    AGENT_CAPABILITIES, CLIENT_CAPABILITIES, Capability, ContentChunk, METHODS, Meta,
    PromptRequest, PromptResponse, Side, Stability, UPDATES,
};

/// Returns the JSON Schema of the members that identify messages, as a document.
pub fn message_id_schema() -> String {
    let mut kinds = Map::new();
    kinds.insert("ContentChunk".to_owned(), only::<ContentChunk>("messageId"));
    kinds.insert("PromptRequest".to_owned(), only::<PromptRequest>("messageId"));
    kinds.insert("PromptResponse".to_owned(), only::<PromptResponse>("userMessageId"));
    // All names are in alphabetical order, so that the text is the same even if objects keep another order.
    let document = json!({
        "$defs": kinds,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Message ids of the Agent Client Protocol",
    });
    format!("{document:#}\n")
}

/// Returns what is served of the protocol, as a document: methods, updates, capabilities, and the members of each object.
///
/// `scripts/drift` compares it with the newest official packages.
pub fn served_document() -> String {
    let stability = |stability| match stability {
        Stability::Stable => "stable",
        Stability::Unstable => "unstable",
    };
    let methods: Map<_, _> = METHODS
        .iter()
        .map(|method| {
            let side = match method.to {
                Side::Agent => "agent",
                Side::Client => "client",
                Side::Both => "protocol",
            };
            let row = json!({ "side": side, "stability": stability(method.stability) });
            (method.name.to_owned(), row)
        })
        .collect();
    let updates: Map<_, _> = UPDATES
        .iter()
        .map(|kind| (kind.name.to_owned(), stability(kind.stability).into()))
        .collect();
    let capabilities = |table: &[Capability]| -> Map<String, Value> {
        table.iter().map(|row| (row.path.join("."), stability(row.stability).into())).collect()
    };
    let document = json!({
        "capabilities": {
            "AgentCapabilities": capabilities(AGENT_CAPABILITIES),
            "ClientCapabilities": capabilities(CLIENT_CAPABILITIES),
        },
        "members": members(),
        "methods": methods,
        "updates": updates,
    });
    format!("{document:#}\n")
}

/// Returns the names of the members of each object of the messages.
fn members() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    object_schemas(&mut generator);
    let definitions = generator.take_definitions(true);
    let names = |schema: &Value| {
        let names = schema.get("properties")?.as_object()?.keys();
        Some(names.filter(|name| *name != Meta::KEY).cloned().collect::<Vec<_>>())
    };
    let objects = definitions.iter().filter_map(|(name, it)| Some((name.clone(), names(it)?)));
    let mut objects: Vec<_> = objects.collect();
    objects.sort();
    objects.into_iter().map(|(name, members)| (name, members.into())).collect()
}

fn only<T: JsonSchema>(key: &str) -> Value {
    let schema = schemars::schema_for!(T).to_value();
    let required = schema["required"].as_array().is_some_and(|all| all.contains(&key.into()));
    let required = if required { vec![key] } else { Vec::new() };
    json!({
        "properties": { key: schema["properties"][key] },
        "required": required,
        "type": schema["type"],
    })
}
