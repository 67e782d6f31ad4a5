//! JSON Schemas, compiled.

use std::fmt;

use jsonschema::{PatternOptions, Validator};
use trilogue_domain::Json;

/// The longest description of a mismatch, in bytes; the rest is cut off.
const MAX_MISMATCH_BYTES: usize = 512;

/// A compiled JSON Schema. It refers to nothing outside itself, and its patterns match in linear time.
pub(super) struct Schema(Validator);

// === impl Schema ===

impl Schema {
    /// Compiles a schema; the error says what is wrong with it.
    pub(super) fn compile(schema: &Json) -> Result<Self, String> {
        jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex())
            .build(&schema.to_value())
            .map(Self)
            .map_err(|error| cut(error.masked().to_string()))
    }

    /// Checks a value; the error names the path and does not repeat the value.
    pub(super) fn check(&self, value: &Json) -> Result<(), String> {
        let value = value.to_value();
        self.0.validate(&value).map_err(|error| {
            let path = error.instance_path().to_string();
            let place =
                if path.is_empty() { "at the top".to_owned() } else { format!("at '{path}'") };
            cut(format!("{place}, {}", error.masked()))
        })
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

fn cut(mut text: String) -> String {
    let mut end = text.len().min(MAX_MISMATCH_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(value: &serde_json::Value) -> Result<Schema, String> {
        Schema::compile(&Json::from_value(value))
    }

    #[test]
    fn a_mismatch_names_its_path_and_keeps_the_value_to_itself() {
        let schema = schema(&serde_json::json!({
            "properties": { "to": { "items": { "type": "string" } } }
        }))
        .unwrap();
        let value = serde_json::json!({ "to": ["a", { "secret": "swordfish" }] });
        let why = schema.check(&Json::from_value(&value)).unwrap_err();
        assert!(why.contains("'/to/1'"), "{why}");
        assert!(!why.contains("swordfish"), "{why}");
        assert_eq!(schema.check(&Json::empty_object()), Ok(()));
    }

    #[test]
    fn schemas_that_reach_outside_or_are_none_do_not_compile() {
        for bad in [
            serde_json::json!({ "$ref": "https://example.com/schema.json" }),
            serde_json::json!({ "$ref": "file:///etc/passwd" }),
            serde_json::json!({ "type": "strnig" }),
            serde_json::json!({ "pattern": "(" }),
        ] {
            assert!(schema(&bad).is_err(), "{bad}");
        }
    }
}
