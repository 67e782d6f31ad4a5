//! Where the published documents of the Agent Connect Protocol lie, and how JSON is held to them.

use serde_json::{Value, json};

use crate::specs;

/// The document of the protocol, or `None` where nobody said where it lies.
pub(crate) fn document() -> Option<Value> {
    file("openapi-0.2.3.json")
}

pub(crate) fn file(name: &str) -> Option<Value> {
    let text = std::fs::read(specs::document(&format!("agent_connect/{name}"))?).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

/// Holds a value to one of the document's schemas, with the others where its references look for them; without a document nothing is held.
#[track_caller]
pub(crate) fn keeps(document: Option<&Value>, name: &str, sample: &Value) {
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

/// Holds a value to a schema of an agent's.
#[track_caller]
pub(crate) fn fits(schema: &Value, sample: &Value) {
    let compiled = jsonschema::validator_for(schema).unwrap();
    if let Err(error) = compiled.validate(sample) {
        panic!("{error} in {sample}");
    }
}
