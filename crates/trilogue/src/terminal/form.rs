//! The fields of a form, as they are asked for one by one.

use serde_json::{Map, Value};
use trilogue_mapping::choice::Choice;

use super::choice;

/// The most fields of a form that are asked for one by one; a larger form is asked for as JSON.
const MAX_FIELDS: usize = 32;
const YES: [&str; 2] = ["yes", "y"];
const NO: [&str; 2] = ["no", "n"];

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Field {
    /// Its name; `None` where the answer is the value itself.
    name: Option<String>,
    pub(super) title: String,
    /// What the agent says about it.
    pub(super) description: Option<String>,
    pub(crate) kind: FieldKind,
    required: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum FieldKind {
    Text,
    Boolean,
    Number,
    /// One of these.
    Choice(Vec<Choice>),
    /// Any number of these.
    Several(Vec<Choice>),
}

/// The fields of a schema, where it is simple enough to ask for them one by one.
pub(crate) fn fields(schema: &Value) -> Option<Vec<Field>> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Some(vec![Field::new(None, schema, true)?]);
    };
    if properties.is_empty() || properties.len() > MAX_FIELDS {
        return None;
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|it| it.as_str() == Some(name)));
    properties
        .iter()
        .map(|(name, member)| Field::new(Some(name), member, is_required(name)))
        .collect()
}

/// Whether a form asks for consent alone.
pub(crate) fn has_no_fields(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    schema["type"] == "object" && properties.is_none_or(Map::is_empty)
}

/// The answer of a form whose fields got these values.
pub(crate) fn answer(values: Vec<(Field, Option<Value>)>) -> Value {
    let mut members = Map::new();
    for (field, value) in values {
        match (field.name, value) {
            (Some(name), Some(value)) => drop(members.insert(name, value)),
            (None, Some(value)) => return value,
            (_, None) => {}
        }
    }
    Value::Object(members)
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, String> {
    let is_one_of = |words: [&str; 2]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match (is_one_of(YES), is_one_of(NO)) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err("type yes or no".to_owned()),
    }
}

// === impl Field ===

impl Field {
    fn new(name: Option<&String>, schema: &Value, required: bool) -> Option<Self> {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).map(str::to_owned);
        let kind = match (choice::of_schema(schema), schema.get("type").and_then(Value::as_str)) {
            (Some(choices), _) => FieldKind::Choice(choices),
            (None, Some("string")) => FieldKind::Text,
            (None, Some("boolean")) => FieldKind::Boolean,
            (None, Some("number" | "integer")) => FieldKind::Number,
            (None, Some("array")) => FieldKind::Several(choice::of_schema(schema.get("items")?)?),
            _ => return None,
        };
        let (title, description) = (text("title"), text("description"));
        let title = title.or_else(|| name.cloned()).unwrap_or_default();
        Some(Self { name: name.cloned(), title, description, kind, required })
    }

    /// The value that a typed line stands for; `None` leaves the field out.
    ///
    /// # Errors
    /// What to type instead.
    pub(super) fn read(&self, text: &str) -> Result<Option<Value>, String> {
        let line = text.trim();
        if line.is_empty() && !self.required {
            return Ok(None);
        }
        let value = match &self.kind {
            FieldKind::Text if line.is_empty() => return Err("type an answer".to_owned()),
            FieldKind::Text => Value::from(text),
            FieldKind::Boolean => Value::Bool(yes_or_no(line)?),
            FieldKind::Number => {
                let number = serde_json::from_str::<serde_json::Number>(line);
                number.map_err(|_| "type a number".to_owned())?.into()
            }
            FieldKind::Choice(choices) => value(choices, line)?,
            FieldKind::Several(choices) => {
                let named = line.split(',').map(str::trim).filter(|name| !name.is_empty());
                Value::Array(named.map(|name| value(choices, name)).collect::<Result<_, _>>()?)
            }
        };
        Ok(Some(value))
    }

    /// Whether `later` is text for it like any other.
    pub(super) fn takes_any_text(&self) -> bool {
        self.kind == FieldKind::Text
    }

    pub(crate) fn choices(&self) -> &[Choice] {
        match &self.kind {
            FieldKind::Choice(choices) | FieldKind::Several(choices) => choices,
            _ => &[],
        }
    }

    /// What the person types here.
    pub(super) fn cue(&self) -> String {
        let what = match &self.kind {
            FieldKind::Text => "answer",
            FieldKind::Boolean => "yes, no or later",
            FieldKind::Number => "number, or later",
            FieldKind::Choice(_) => "choose by number or name, or later",
            FieldKind::Several(_) => {
                "choose by numbers or names with commas between them, or later"
            }
        };
        let optional = if self.required { "" } else { " (Enter leaves it out)" };
        format!("{what}{optional}: ")
    }
}

/// The value of the choice that a text means.
pub(crate) fn value(choices: &[Choice], text: &str) -> Result<Value, String> {
    let place = choice::find(choices, text)?;
    Ok(choices.get(place).map(|choice| choice.value.clone()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_simple_schema_is_asked_field_by_field() {
        let schema = json!({"type": "object", "required": ["approved"], "properties": {
            "approved": {"type": "boolean", "title": "Send it?"},
            "reason": {"type": "string"},
            "tone": {"enum": ["dry", "warm"]},
            "when": {"type": "string", "oneOf": [{"const": "n", "title": "Now"}]},
            "to": {"type": "array", "items": {"anyOf": [
                {"const": "a", "title": "Ada"}, {"const": "b", "title": "Bob"},
            ]}},
            "copies": {"type": "integer"},
        }});
        let fields = fields(&schema).unwrap();
        let of = |name: &str| fields.iter().find(|it| it.name.as_deref() == Some(name)).unwrap();
        let read = |name: &str, text: &str| of(name).read(text);
        assert_eq!(of("approved").title, "Send it?");
        assert_eq!(read("approved", "Y"), Ok(Some(json!(true))));
        for unclear in ["", "yes please", "true", "1", "later"] {
            assert!(read("approved", unclear).is_err(), "{unclear}");
        }
        assert_eq!(read("reason", ""), Ok(None));
        assert_eq!(read("reason", "later"), Ok(Some(json!("later"))));
        assert_eq!(read("tone", "2"), Ok(Some(json!("warm"))));
        assert_eq!(read("when", "now"), Ok(Some(json!("n"))));
        assert_eq!(read("to", "Bob, 1"), Ok(Some(json!(["b", "a"]))));
        assert_eq!(read("copies", "3"), Ok(Some(json!(3))));
        assert!(read("copies", "x").is_err() && read("to", "Eve").is_err());
    }

    #[test]
    fn a_schema_without_members_is_one_field() {
        let fields = fields(&json!({"enum": [1, "a"]})).unwrap();
        let value = fields[0].read("1").unwrap();
        assert_eq!(answer(vec![(fields[0].clone(), value)]), json!(1));
    }

    #[test]
    fn other_schemas_are_asked_as_json() {
        for schema in [
            json!({}),
            json!(true),
            json!({"properties": {}}),
            json!({"properties": {"list": {"type": "array"}}}),
            json!({"properties": {"nested": {"type": "object"}}}),
        ] {
            assert_eq!(fields(&schema), None, "{schema}");
        }
    }
}
