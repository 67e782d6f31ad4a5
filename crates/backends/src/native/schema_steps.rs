//! Bounds the steps of a check against a JSON Schema.
//!
//! References that double at each level take time that doubles at each level. So each reference counts a step before it is
//! followed: `{"$ref": X}` becomes `{"allOf": [{step}, {"$ref": X}]}`, which means the same.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value, json};

/// The keyword that counts.
pub(super) const STEP: &str = "urn:trilogue:step";
/// The steps that every value has.
const MIN_STEPS: usize = 100_000;
/// The steps for each byte of a value.
const STEPS_PER_BYTE: usize = 8;
/// The most steps of a check. A million take about a second without optimization.
const MAX_STEPS: usize = 5_000_000;
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords whose value is not a schema.
const VALUES: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords whose value has schemas by name.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

thread_local! {
    /// The remaining steps of the current check on this thread.
    static STEPS: Cell<usize> = const { Cell::new(MAX_STEPS) };
}

/// Counts a step of the check on this thread, and ends the check after the last allowed one.
pub(super) struct StepCounter;

struct StepsUsedUp;

impl<'i> Keyword<'i> for StepCounter {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        count();
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        count();
        true
    }
}

fn count() {
    let left = STEPS.get();
    if left == 0 {
        // The validator offers no other way to stop. This unwinds without a message and is caught below.
        resume_unwind(Box::new(StepsUsedUp));
    }
    STEPS.set(left - 1);
}

/// Does a check of a value of this length. `None` if it takes too many steps.
pub(super) fn within_steps<T>(bytes: usize, check: impl FnOnce() -> T) -> Option<T> {
    STEPS.set(bytes.saturating_mul(STEPS_PER_BYTE).clamp(MIN_STEPS, MAX_STEPS));
    match catch_unwind(AssertUnwindSafe(check)) {
        Ok(found) => Some(found),
        Err(why) if why.is::<StepsUsedUp>() => None,
        Err(why) => resume_unwind(why),
    }
}

/// The schema with a step before each reference.
pub(super) fn with_steps(schema: &Value) -> Value {
    let dialect = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let is_old =
        ["draft-03", "draft-04", "draft-06", "draft-07"].iter().any(|it| dialect.contains(it));
    counted(schema, is_old)
}

/// In old dialects, all keywords next to a reference are ignored.
fn counted(schema: &Value, is_old: bool) -> Value {
    match schema {
        Value::Object(members) => Value::Object(counted_members(members, is_old)),
        Value::Array(items) => items.iter().map(|item| counted(item, is_old)).collect(),
        other => other.clone(),
    }
}

fn counted_members(members: &Map<String, Value>, is_old: bool) -> Map<String, Value> {
    let mut counted_all = Map::new();
    let mut references = Map::new();
    for (name, member) in members {
        let is_reference = REFERENCES.contains(&name.as_str()) && member.is_string();
        let new = match member {
            _ if is_reference => {
                references.insert(name.clone(), member.clone());
                continue;
            }
            _ if VALUES.contains(&name.as_str()) => member.clone(),
            Value::Object(named) if NAMED.contains(&name.as_str()) => {
                named.iter().map(|(name, schema)| (name.clone(), counted(schema, is_old))).collect()
            }
            schema => counted(schema, is_old),
        };
        counted_all.insert(name.clone(), new);
    }
    if references.is_empty() {
        return counted_all;
    }
    if is_old {
        counted_all.retain(|name, _| matches!(name.as_str(), "$schema" | "definitions" | "$defs"));
    }
    let mut all_of = match counted_all.remove("allOf") {
        Some(Value::Array(schemas)) => schemas,
        Some(other) => {
            // Not a valid schema, which the compiler reports.
            counted_all.insert("allOf".to_owned(), other);
            return counted_all;
        }
        None => Vec::new(),
    };
    all_of.push(json!({ "allOf": [{ STEP: true }, references] }));
    counted_all.insert("allOf".to_owned(), Value::Array(all_of));
    counted_all
}
