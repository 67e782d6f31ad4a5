//! The fields of a form, as they are asked for one by one.

use serde_json::{Map, Number, Value};
use trilogue_mapping::choice::Choice;

use super::{choice, safe};

/// The most fields of a form that are asked for one by one; a larger form is asked for as JSON.
const MAX_FIELDS: usize = 32;
const YES: [&str; 2] = ["yes", "y"];
const NO: [&str; 2] = ["no", "n"];

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Field {
    /// The field's name; `None` if the answer is the value itself.
    name: Option<String>,
    pub(super) title: String,
    /// The agent's description of the field.
    pub(super) description: Option<String>,
    pub(crate) kind: FieldKind,
    pub(super) required: bool,
    /// The value that Enter alone sends.
    default: Option<Value>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum FieldKind {
    Text {
        /// The format of the value, such as `email`.
        format: Option<String>,
        min_chars: Option<u64>,
        max_chars: Option<u64>,
    },
    Boolean,
    Number {
        whole: bool,
        min: Option<Number>,
        max: Option<Number>,
    },
    /// One of these.
    Choice(Vec<Choice>),
    /// Any number of these.
    Several(Vec<Choice>),
}

/// Returns the fields of a schema if it is simple enough to ask for them one by one, otherwise `None`.
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
            (None, Some("string")) => FieldKind::Text {
                format: text("format"),
                min_chars: schema.get("minLength").and_then(Value::as_u64),
                max_chars: schema.get("maxLength").and_then(Value::as_u64),
            },
            (None, Some("boolean")) => FieldKind::Boolean,
            (None, Some(kind @ ("number" | "integer"))) => {
                let number = |name: &str| schema.get(name).and_then(Value::as_number).cloned();
                let (min, max) = (number("minimum"), number("maximum"));
                FieldKind::Number { whole: kind == "integer", min, max }
            }
            (None, Some("array")) => FieldKind::Several(choice::of_schema(schema.get("items")?)?),
            _ => return None,
        };
        let (title, description) = (text("title"), text("description"));
        let title = title.or_else(|| name.cloned()).unwrap_or_default();
        let default = schema.get("default").filter(|value| !value.is_null()).cloned();
        Some(Self { name: name.cloned(), title, description, kind, required, default })
    }

    /// Reads a typed line as the field's value; returns `None` to leave the field out.
    ///
    /// # Errors
    /// What to type instead.
    pub(super) fn read(&self, text: &str) -> Result<Option<Value>, String> {
        let line = text.trim();
        match &self.default {
            Some(default) if line.is_empty() => return Ok(Some(default.clone())),
            None if line.is_empty() && !self.required => return Ok(None),
            _ => {}
        }
        let FieldKind::Number { whole, min, max } = &self.kind else {
            return self.read_text(text).map(Some);
        };
        let why = || format!("type {}", self.about().unwrap_or_default());
        let number: Number = serde_json::from_str(line).map_err(|_| why())?;
        let is_over = |limit: &Option<Number>, sign: f64| {
            let limit = limit.as_ref().and_then(Number::as_f64);
            let over = |limit| number.as_f64().is_some_and(|number| (number - limit) * sign > 0.0);
            limit.is_some_and(over)
        };
        let is_broken = *whole && !number.is_i64() && !number.is_u64();
        if is_broken || is_over(max, 1.0) || is_over(min, -1.0) {
            return Err(why());
        }
        Ok(Some(number.into()))
    }

    fn read_text(&self, text: &str) -> Result<Value, String> {
        let FieldKind::Text { min_chars, max_chars, .. } = &self.kind else {
            return Err("choose one of them".to_owned());
        };
        if text.trim().is_empty() {
            return Err("type an answer".to_owned());
        }
        let chars = text.chars().count() as u64;
        if min_chars.is_some_and(|min| chars < min) || max_chars.is_some_and(|max| chars > max) {
            return Err(format!("type {}", self.about().unwrap_or_default()));
        }
        Ok(Value::from(text))
    }

    /// Whether `later` is text for it like any other.
    pub(super) fn takes_any_text(&self) -> bool {
        matches!(self.kind, FieldKind::Text { .. })
    }

    pub(crate) fn choices(&self) -> &[Choice] {
        match &self.kind {
            FieldKind::Choice(choices) | FieldKind::Several(choices) => choices,
            _ => &[],
        }
    }

    /// Returns the option that is marked at first. A required decision has no default, so that Enter alone is not
    /// consent.
    pub(super) fn default_bool(&self) -> Option<bool> {
        self.default.as_ref().and_then(Value::as_bool).filter(|_| !self.required)
    }

    /// The places of the choices that are marked or taken at first. As for a decision, a required choice has none.
    pub(super) fn default_places(&self) -> Vec<usize> {
        let defaults = match self.default.as_ref().filter(|_| !self.required) {
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
            None => &[],
        };
        let place = |value: &Value| self.choices().iter().position(|choice| choice.value == *value);
        defaults.iter().filter_map(place).collect()
    }

    /// Whether a line is Enter alone, so that the default counts, or no value.
    pub(super) fn is_untouched(line: &str) -> bool {
        line.trim().is_empty()
    }

    /// Returns a description of the accepted values, unless the title has it already.
    pub(super) fn about(&self) -> Option<String> {
        let range =
            |what: &str, unit: &str, min: Option<String>, max: Option<String>| match (min, max) {
                (Some(min), Some(max)) => format!("{what} from {min} to {max}{unit}"),
                (Some(min), None) => format!("{what} of at least {min}{unit}"),
                (None, Some(max)) => format!("{what} of at most {max}{unit}"),
                (None, None) => what.to_owned(),
            };
        let shown = |number: &Option<Number>| number.as_ref().map(Number::to_string);
        match &self.kind {
            FieldKind::Text { format, min_chars, max_chars } => {
                let what = match format.as_deref() {
                    Some("email") => "an e-mail address",
                    Some("uri") => "an address, such as https://example.com",
                    Some("date") => "a date, such as 2026-11-23",
                    Some("date-time") => "a time, such as 2026-11-23T12:00:00Z",
                    _ if min_chars.is_none() && max_chars.is_none() => return None,
                    _ => "text",
                };
                let (min, max) =
                    (min_chars.map(|it| it.to_string()), max_chars.map(|it| it.to_string()));
                Some(range(what, " characters", min, max))
            }
            FieldKind::Number { whole, min, max } => {
                let what = if *whole { "a whole number" } else { "a number" };
                Some(range(what, "", shown(min), shown(max)))
            }
            FieldKind::Several(_) => {
                Some("the space key takes one, Enter sends all taken".to_owned())
            }
            FieldKind::Boolean | FieldKind::Choice(_) => None,
        }
    }

    /// What the person types here.
    pub(super) fn cue(&self) -> String {
        let what = match &self.kind {
            FieldKind::Text { .. } => "answer",
            FieldKind::Boolean => "yes, no or later",
            FieldKind::Number { .. } => "number, or later",
            FieldKind::Choice(_) => "choose",
            FieldKind::Several(_) => "choose any",
        };
        let default = self.default.as_ref().filter(|_| self.choices().is_empty());
        let default = default.filter(|_| self.kind != FieldKind::Boolean);
        match (default, self.required) {
            (Some(Value::String(text)), _) => {
                format!("{what} (Enter takes {}): ", safe::visible(text))
            }
            (Some(value), _) => {
                format!("{what} (Enter takes {}): ", safe::visible(&value.to_string()))
            }
            (None, false) if self.default.is_none() => format!("{what} (Enter leaves it out): "),
            (None, _) => format!("{what}: "),
        }
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
            "approved": {"type": "boolean", "title": "Send it?", "default": true},
            "reason": {"type": "string"},
            "tone": {"enum": ["dry", "warm"], "default": "warm"},
            "when": {"type": "string", "oneOf": [{"const": "n", "title": "Now"}]},
            "to": {"type": "array", "default": ["b", "a"], "items": {"anyOf": [
                {"const": "a", "title": "Ada"}, {"const": "b", "title": "Bob"},
            ]}},
            "copies": {"type": "integer", "minimum": 1, "maximum": 10, "default": 2},
            "loud": {"type": "boolean", "default": true},
            "mail": {"type": "string", "format": "email", "maxLength": 40},
        }});
        let fields = fields(&schema).unwrap();
        let of = |name: &str| fields.iter().find(|it| it.name.as_deref() == Some(name)).unwrap();
        let read = |name: &str, text: &str| of(name).read(text);
        assert_eq!(of("approved").title, "Send it?");
        assert_eq!(of("approved").cue(), "yes, no or later: ");
        assert_eq!(of("approved").default_bool(), None, "a default does not consent");
        assert_eq!(of("loud").default_bool(), Some(true));
        assert_eq!(read("reason", ""), Ok(None));
        assert_eq!(read("reason", "later"), Ok(Some(json!("later"))));
        assert_eq!(of("reason").cue(), "answer (Enter leaves it out): ");
        assert_eq!(of("tone").default_places(), [1]);
        assert_eq!(of("to").default_places(), [1, 0]);
        assert_eq!(of("when").choices().len(), 1);
        assert_eq!(read("copies", "3"), Ok(Some(json!(3))));
        assert_eq!(read("copies", ""), Ok(Some(json!(2))));
        assert_eq!(of("copies").cue(), "number, or later (Enter takes 2): ");
        for bad in ["x", "0", "11", "1.5"] {
            assert_eq!(read("copies", bad), Err("type a whole number from 1 to 10".to_owned()));
        }
        assert_eq!(of("mail").about().unwrap(), "an e-mail address of at most 40 characters");
        assert!(read("mail", &"x".repeat(41)).is_err());
    }

    #[test]
    fn a_schema_without_members_is_one_field() {
        let fields = fields(&json!({"enum": [1, "a"]})).unwrap();
        let chosen = value(fields[0].choices(), "1").unwrap();
        assert_eq!(answer(vec![(fields[0].clone(), Some(chosen))]), json!(1));
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
