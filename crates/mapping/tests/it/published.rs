//! The published documents of the Agent Connect Protocol, and validation of JSON against them.

use serde_json::{Value, json};

use crate::specs;

/// The protocol's document, or `None` if the environment does not name its path.
pub(crate) fn document() -> Option<Value> {
    file("openapi-0.2.3.json")
}

pub(crate) fn file(name: &str) -> Option<Value> {
    let text = std::fs::read(specs::document(&format!("agent_connect/{name}"))?).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

/// Validates a value against one of the document's schemas, and resolves references to the others. Without a document, checks nothing.
#[track_caller]
pub(crate) fn assert_valid(document: Option<&Value>, name: &str, sample: &Value) {
    let Some(document) = document else { return };
    let root = json!({
        "$ref": format!("#/components/schemas/{name}"),
        "components": { "schemas": document["components"]["schemas"] },
    });
    let schema = jsonschema::options().should_validate_formats(true).build(&root).unwrap();
    if let Err(error) = schema.validate(sample) {
        panic!("{name}: {error} in {sample}");
    }
}

/// Validates a value against an agent's schema.
#[track_caller]
pub(crate) fn fits(schema: &Value, sample: &Value) {
    let compiled = jsonschema::validator_for(schema).unwrap();
    if let Err(error) = compiled.validate(sample) {
        panic!("{error} in {sample}");
    }
}
