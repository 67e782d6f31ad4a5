//! Validates the conversions' output against the official schema of the Agent Client Protocol.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::specs;

fn document() -> Option<&'static Value> {
    static DOCUMENT: OnceLock<Option<Value>> = OnceLock::new();
    DOCUMENT.get_or_init(read).as_ref()
}

fn read() -> Option<Value> {
    let path = specs::document("agent_client/v1.20.schema.json")?;
    Some(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
}

/// Validates a value against one of the schema's definitions: the document itself accepts anything.
#[track_caller]
pub(crate) fn assert_valid(name: &str, value: &Value) {
    let Some(document) = document() else { return };
    assert!(document["$defs"][name].is_object(), "no definition {name}");
    let root = json!({ "$ref": format!("#/$defs/{name}"), "$defs": document["$defs"] });
    let validator = jsonschema::options().should_validate_formats(true).build(&root).unwrap();
    let kept = validator.validate(value);
    assert!(kept.is_ok(), "{name}: {} in {value}", kept.unwrap_err());
}
