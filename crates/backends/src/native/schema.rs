use std::fmt;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use trilogue_domain::error::Violation;
use trilogue_domain::{Json, limits};
use trilogue_runtime::work_in_place;

use super::schema_steps::{STEP, StepCounter, with_steps, within_steps};

/// The longest description of one violation, in bytes; the rest is cut off.
const MAX_VIOLATION_BYTES: usize = 512;
/// The longest path of a violation, in bytes. A longer one is cut to a parent.
const MAX_PATH_BYTES: usize = 1_024;
/// The largest value whose violations are all listed, in bytes. For a larger value only the first is listed: a violation costs some hundred bytes, and every second byte may be one.
const MAX_LISTED_BYTES: usize = 16 * 1_024;
/// The largest value whose first violation is searched if the schema has alternatives, in bytes: the search collects the violations of each alternative.
const MAX_SEARCHED_BYTES: usize = 64 * 1_024;

/// The largest schema, or value with its schema, that is handled on the task's thread, in bytes. Most are smaller, and a separate thread would cost more than the check.
const MAX_INLINE_BYTES: usize = 16 * 1_024;

/// A compiled JSON Schema, of the dialect 2020-12 unless it names another. It has no remote references, its patterns match in linear time, and `format` only annotates.
pub(crate) struct Schema {
    validator: Validator,
    /// Whether it has `anyOf` or `oneOf` somewhere.
    has_alternatives: bool,
    /// The length of its text.
    bytes: usize,
}

/// Why a value does not fit: at least one violation, at most [`limits::MAX_VIOLATIONS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mismatch(Vec<Violation>);

// === impl Schema ===

impl Schema {
    pub(crate) fn compile(schema: &Json) -> Result<Self, String> {
        let bytes = schema.as_bytes().len();
        beside_other_tasks(bytes, || Self::compile_inline(schema, bytes))
    }

    fn compile_inline(schema: &Json, bytes: usize) -> Result<Self, String> {
        let schema = schema.to_value();
        let validator = jsonschema::options()
            .with_keyword(STEP, |_, _, _| Ok(Box::new(StepCounter)))
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(PatternOptions::regex())
            .build(&with_steps(&schema))
            .map_err(|error| cut(error.masked().to_string()))?;
        Ok(Self { validator, has_alternatives: has_alternatives(&schema), bytes })
    }

    pub(crate) fn check(&self, value: &Json) -> Result<(), Mismatch> {
        let bytes = value.as_bytes().len();
        beside_other_tasks(self.bytes.saturating_add(bytes), || self.check_inline(value, bytes))
    }

    fn check_inline(&self, value: &Json, bytes: usize) -> Result<(), Mismatch> {
        let value = value.to_value();
        let found = within_steps(bytes, || {
            if self.validator.is_valid(&value) {
                Ok(())
            } else {
                Err(self.violations(&value, bytes))
            }
        });
        match found {
            Some(found) => found.map_err(Mismatch),
            None => Err(Mismatch(vec![Violation {
                path: String::new(),
                message: "the schema refers to itself so often that the value cannot be checked"
                    .to_owned(),
            }])),
        }
    }

    /// The violations of a value of this length. The cost is bounded.
    fn violations(&self, value: &Value, bytes: usize) -> Vec<Violation> {
        let found: Vec<Violation> = if bytes <= MAX_LISTED_BYTES {
            let errors = self.validator.iter_errors(value).take(limits::MAX_VIOLATIONS);
            errors.map(|error| violation(&error)).collect()
        } else if bytes <= MAX_SEARCHED_BYTES || !self.has_alternatives {
            self.validator.validate(value).err().iter().map(violation).collect()
        } else {
            Vec::new()
        };
        if !found.is_empty() {
            return found;
        }
        let message = "the value does not fit; it is too large to say where".to_owned();
        vec![Violation { path: String::new(), message }]
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

// === impl Mismatch ===

impl Mismatch {
    pub(crate) fn into_violations(self) -> Vec<Violation> {
        self.0
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.first() {
            Some(Violation { path, message }) if path.is_empty() => {
                write!(f, "at the top, {message}")
            }
            Some(Violation { path, message }) => write!(f, "at '{path}', {message}"),
            None => f.write_str("it does not fit"),
        }
    }
}

/// Does work on text of this length, beside other tasks if the text is long.
fn beside_other_tasks<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > MAX_INLINE_BYTES { work_in_place(work) } else { work() }
}

fn violation(error: &ValidationError<'_>) -> Violation {
    let mut path = error.instance_path().to_string();
    while path.len() > MAX_PATH_BYTES {
        path.truncate(path.rfind('/').unwrap_or_default());
    }
    Violation { path, message: cut(error.masked().to_string()) }
}

/// Whether a schema has alternatives. A property with such a name counts too, which does no harm.
fn has_alternatives(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, member)| {
            matches!(name.as_str(), "anyOf" | "oneOf") || has_alternatives(member)
        }),
        Value::Array(items) => items.iter().any(has_alternatives),
        _ => false,
    }
}

fn cut(mut text: String) -> String {
    let mut end = text.len().min(MAX_VIOLATION_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(value: &Value) -> Result<Schema, String> {
        Schema::compile(&Json::from_value(value))
    }

    #[test]
    fn a_mismatch_names_its_path_and_keeps_the_value_to_itself() {
        let schema =
            schema(&json!({ "properties": { "to": { "items": { "type": "string" } } } })).unwrap();
        let value = json!({ "to": ["a", { "secret": "swordfish" }] });
        let why = schema.check(&Json::from_value(&value)).unwrap_err();
        assert!(why.to_string().contains("'/to/1'"), "{why}");
        assert!(!format!("{why}{why:?}").contains("swordfish"), "{why}");
        assert_eq!(schema.check(&Json::empty_object()), Ok(()));
    }

    #[test]
    fn every_place_is_named_up_to_a_limit() {
        let schema = schema(&json!({ "items": { "type": "string" } })).unwrap();
        let paths = |value: Value| -> Vec<String> {
            let why = schema.check(&Json::from_value(&value)).unwrap_err();
            why.into_violations().into_iter().map(|violation| violation.path).collect()
        };
        assert_eq!(paths(json!([1, "a", 2])), ["/0", "/2"]);
        assert_eq!(paths(json!(vec![1; 100])).len(), limits::MAX_VIOLATIONS);
    }

    #[test]
    fn of_a_large_value_only_the_first_place_is_named() {
        let text = json!({ "type": "string" });
        let all = schema(&json!({ "items": text })).unwrap();
        let any = schema(&json!({ "items": { "anyOf": [text, { "type": "null" }] } })).unwrap();
        let paths = |schema: &Schema, items: usize| -> Vec<String> {
            let value = Json::from_value(&json!(vec![1; items]));
            let why = schema.check(&value).unwrap_err();
            why.into_violations().into_iter().map(|violation| violation.path).collect()
        };
        for (items, named) in [(10_000, "/0"), (40_000, "/0")] {
            assert_eq!(paths(&all, items), [named]);
        }
        for (items, named) in [(10_000, "/0"), (40_000, "")] {
            assert_eq!(paths(&any, items), [named]);
        }
    }

    #[test]
    fn of_a_long_path_the_place_around_it_is_named() {
        let closed = json!({ "additionalProperties": { "type": "null" } });
        let schema = schema(&json!({ "properties": { "a": closed } })).unwrap();
        let long = "x".repeat(MAX_PATH_BYTES);
        let why = schema.check(&Json::from_value(&json!({ "a": { long: 1 } }))).unwrap_err();
        assert_eq!(why.into_violations()[0].path, "/a");
    }

    #[test]
    fn paths_are_json_pointers() {
        let schema = schema(&json!({ "additionalProperties": { "type": "null" } })).unwrap();
        let why = schema.check(&Json::from_value(&json!({ "a/b~c": 1 }))).unwrap_err();
        assert_eq!(why.into_violations()[0].path, "/a~1b~0c");
    }

    #[test]
    fn formats_only_annotate_whatever_the_dialect() {
        for dialect in [
            "https://json-schema.org/draft/2020-12/schema",
            "http://json-schema.org/draft-07/schema#",
        ] {
            let schema = schema(&json!({ "$schema": dialect, "format": "email" })).unwrap();
            assert_eq!(schema.check(&Json::from_value(&json!("nobody"))), Ok(()), "{dialect}");
        }
    }

    #[test]
    fn schemas_that_reach_outside_or_are_none_do_not_compile() {
        for bad in [
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "type": "strnig" }),
            json!({ "pattern": "(" }),
        ] {
            assert!(schema(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_schema_whose_references_double_takes_bounded_steps() {
        let doubled = |keyword: &str, last: Value| {
            let mut definitions = serde_json::Map::new();
            for level in 0..40 {
                let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
                definitions.insert(format!("d{level}"), json!({ keyword: [next, next] }));
            }
            definitions.insert("d40".to_owned(), last);
            schema(&json!({ "$ref": "#/$defs/d0", "$defs": definitions })).unwrap()
        };
        for (keyword, last) in [
            ("allOf", json!({ "type": "string" })),
            ("anyOf", json!({ "type": "null" })),
            ("anyOf", json!(false)),
            ("oneOf", json!({ "type": "string" })),
        ] {
            let why = doubled(keyword, last).check(&Json::from_value(&json!("a"))).unwrap_err();
            assert!(why.to_string().contains("refers to itself so often"), "{keyword}: {why}");
        }
        let deep = (0..60).fold(json!(1), |value, _| json!({ "a": value }));
        let back = json!({ "properties": { "a": { "$ref": "#" } } });
        let own = schema(&json!({ "anyOf": [false, back, back], "type": "object" })).unwrap();
        let why = own.check(&Json::from_value(&deep)).unwrap_err();
        assert!(why.to_string().contains("refers to itself so often"), "{why}");
    }

    #[test]
    fn references_mean_what_they_did() {
        let tree = schema(&json!({
            "$ref": "#/$defs/tree",
            "$defs": { "tree": {
                "type": "object",
                "properties": { "$ref": { "type": "string" }, "more": { "items": { "$ref": "#/$defs/tree" } } },
                "unevaluatedProperties": false,
            } },
        }))
        .unwrap();
        let check = |value: Value| tree.check(&Json::from_value(&value));
        assert_eq!(check(json!({ "$ref": "a", "more": [{ "more": [] }] })), Ok(()));
        let why = check(json!({ "more": [{ "$ref": 1 }] })).unwrap_err();
        assert_eq!(why.into_violations()[0].path, "/more/0/$ref");
        let closed = schema(&json!({
            "$ref": "#/$defs/a", "$defs": { "a": { "properties": { "b": true } } }, "unevaluatedProperties": false,
        }))
        .unwrap();
        assert_eq!(closed.check(&Json::from_value(&json!({ "b": 1 }))), Ok(()));
        assert!(closed.check(&Json::from_value(&json!({ "c": 1 }))).is_err());
        let constant = schema(&json!({ "const": { "$ref": "#" } })).unwrap();
        assert_eq!(constant.check(&Json::from_value(&json!({ "$ref": "#" }))), Ok(()));
        let old = schema(&json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/a", "type": "null", "definitions": { "a": { "type": "string" } },
        }))
        .unwrap();
        assert_eq!(old.check(&Json::from_value(&json!("text"))), Ok(()), "siblings do not count");
    }

    /// The runtime has one worker: a task that blocks it would delay the other task to its end.
    fn order_of(work: impl FnOnce() + Send + 'static) -> Vec<&'static str> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        runtime.unwrap().block_on(async {
            let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
            let of_check = ends.clone();
            let check = tokio::spawn(async move {
                let other = tokio::spawn(async move { ends.send("other").unwrap() });
                work();
                of_check.send("work").unwrap();
                other.await.unwrap();
            });
            check.await.unwrap();
            vec![ended.recv().await.unwrap(), ended.recv().await.unwrap()]
        })
    }

    #[test]
    fn other_tasks_go_on_while_a_large_schema_or_value_is_handled() {
        let doubling = || {
            let level = |number: usize| {
                let next = json!({ "$ref": format!("#/$defs/{}", number + 1) });
                (number.to_string(), json!({ "allOf": [next, next] }))
            };
            let mut defs: serde_json::Map<_, _> = (0..30).map(level).collect();
            defs.insert("30".to_owned(), json!(true));
            json!({ "$ref": "#/$defs/0", "$defs": defs })
        };
        let maximal = || Json::from_value(&json!(["x".repeat(1024 * 1024)]));
        let (checked, value) = (schema(&doubling()).unwrap(), maximal());
        let order = order_of(move || assert!(checked.check(&value).is_err()));
        assert_eq!(order, ["other", "work"]);
        let members = (0..20_000).map(|key| (key.to_string(), json!({ "type": "string" })));
        let members: serde_json::Map<_, _> = members.collect();
        let large = Json::from_value(&json!({ "properties": members }));
        let order = order_of(move || assert!(Schema::compile(&large).is_ok()));
        assert_eq!(order, ["other", "work"]);
    }
}
