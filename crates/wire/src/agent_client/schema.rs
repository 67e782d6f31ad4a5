use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::{ContentChunk, PromptRequest, PromptResponse};

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
