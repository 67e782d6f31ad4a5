//! Where the published documents of the Agent Connect Protocol lie, and how JSON is held to them.

use std::path::Path;

use serde_json::{Value, json};

/// The document of the protocol, or `None` where nobody said where it lies.
pub(crate) fn document() -> Option<Value> {
    file("openapi-0.2.3.json")
}

/// A published file.
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
pub(crate) fn file(name: &str) -> Option<Value> {
    let Some(specs) = std::env::var_os("TRILOGUE_SPECS") else {
        eprintln!("NOT RUN: TRILOGUE_SPECS names no folder with the published schemas");
        assert!(std::env::var_os("CI").is_none(), "CI has to set TRILOGUE_SPECS");
        return None;
    };
    let path = Path::new(&specs).join("agent_connect").join(name);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
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
