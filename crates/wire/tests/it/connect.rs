//! Where the published documents of the Agent Connect Protocol lie, and how JSON is held to them.

use std::path::Path;

use serde_json::{Value, json};

/// A published document, or `None` where nobody said where they lie.
#[expect(clippy::print_stderr, reason = "a test that did not run says so")]
pub(crate) fn published(name: &str) -> Option<Value> {
    let Some(specs) = std::env::var_os("TRILOGUE_SPECS") else {
        eprintln!("NOT RUN: TRILOGUE_SPECS names no folder with the published schemas");
        assert!(std::env::var_os("CI").is_none(), "CI has to set TRILOGUE_SPECS");
        return None;
    };
    let path = Path::new(&specs).join("agent_connect").join(name);
    let text = std::fs::read(&path).unwrap();
    Some(serde_json::from_slice(&text).unwrap())
}

/// Holds a value to one of the document's schemas, with the others where its references look for them.
pub(crate) fn keeps(document: &Value, name: &str, sample: &Value) -> Result<(), String> {
    let root = json!({
        "$ref": format!("#/components/schemas/{name}"),
        "components": { "schemas": document["components"]["schemas"] },
    });
    let schema = jsonschema::options().should_validate_formats(true).build(&root).unwrap();
    schema.validate(sample).map_err(|error| format!("{name}: {error} in {sample}"))
}
