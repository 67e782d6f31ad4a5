use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{ContentChunk, PromptRequest, PromptResponse};

/// The JSON Schema of the members by which messages are told apart, as a document.
pub fn message_id_schema() -> String {
    let mut kinds = Map::new();
    kinds.insert("ContentChunk".to_owned(), only::<ContentChunk>("messageId"));
    kinds.insert("PromptRequest".to_owned(), only::<PromptRequest>("messageId"));
    kinds.insert("PromptResponse".to_owned(), only::<PromptResponse>("userMessageId"));
    // In the order of the alphabet everywhere, so that the text is the same whether objects keep their order or not.
    let document = json!({
        "$defs": kinds,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Message ids of the Agent Client Protocol",
    });
    format!("{document:#}\n")
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
