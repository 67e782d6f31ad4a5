//! Finds the published documents of the Agent Connect Protocol, and checks JSON against them.

use serde_json::{Value, json};

use crate::specs;

pub(crate) fn published(name: &str) -> Option<Value> {
    let text = std::fs::read(specs::document(&format!("agent_connect/{name}"))?).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

/// Checks a value against one of the document's schemas, with the others at the paths of its references.
pub(crate) fn check_schema(document: &Value, name: &str, sample: &Value) -> Result<(), String> {
    let root = json!({
        "$ref": format!("#/components/schemas/{name}"),
        "components": { "schemas": document["components"]["schemas"] },
    });
    let schema = jsonschema::options().should_validate_formats(true).build(&root).unwrap();
    schema.validate(sample).map_err(|error| format!("{name}: {error} in {sample}"))
}
