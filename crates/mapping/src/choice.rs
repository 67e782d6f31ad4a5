//! Questions whose answer is one of a few values.

use serde_json::{Value, json};

use crate::shape::Properties;

/// One value that a schema allows.
pub(crate) struct Choice {
    /// Its id for programs: its text, or its JSON where it is not text.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) value: Value,
}

pub(crate) fn choices(schema: &Value) -> Vec<Choice> {
    let id = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let choice = |value: &Value| Choice {
            id: id(value),
            name: id(value),
            description: None,
            value: value.clone(),
        };
        return values.iter().map(choice).collect();
    }
    let titled = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array);
    let choice = |item: &Value| {
        let value = item.get("const")?;
        let text = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Choice {
            id: id(value),
            name: text("title").unwrap_or_else(|| id(value)),
            description: text("description"),
            value: value.clone(),
        })
    };
    titled.and_then(|items| items.iter().map(choice).collect::<Option<_>>()).unwrap_or_default()
}

/// The single boolean, or the single list of values, of a schema: its property, and the values.
pub(crate) fn one_choice(schema: &Value) -> Option<(Option<String>, Vec<Choice>)> {
    let whole = values(schema);
    if !whole.is_empty() {
        return Some((None, whole));
    }
    let Properties { all, required } = Properties::of(schema)?;
    let name = match required.as_slice() {
        [name] => (*name).to_owned(),
        [] if all.len() == 1 => all.keys().next()?.clone(),
        _ => return None,
    };
    let values = values(all.get(&name)?);
    (!values.is_empty()).then_some((Some(name), values))
}

fn values(schema: &Value) -> Vec<Choice> {
    if schema.get("type").and_then(Value::as_str) == Some("boolean") {
        let truth = |value: bool, name: &str| Choice {
            id: value.to_string(),
            name: name.to_owned(),
            description: None,
            value: value.into(),
        };
        return vec![truth(true, "Yes"), truth(false, "No")];
    }
    choices(schema)
}

/// The answer that a text chooses by the value, the title or the number of a choice. `None` if the schema has no single choice, or the
/// text is none of it. A number of a yes or no chooses nothing, because it consents to nothing.
pub(crate) fn chosen(schema: &Value, text: &str) -> Option<Value> {
    let (property, choices) = one_choice(schema)?;
    let same = |name: &str| name.to_lowercase() == text.to_lowercase();
    let by_number = || {
        let number: usize = text.trim_end_matches(['.', ')']).parse().ok()?;
        choices.get(number.checked_sub(1)?).filter(|choice| !choice.value.is_boolean())
    };
    let by_id = choices.iter().find(|choice| choice.id == text);
    let by_name = || choices.iter().find(|choice| same(&choice.name));
    let value = by_id.or_else(by_name).or_else(by_number)?.value.clone();
    Some(match property {
        Some(property) => json!({ property: value }),
        None => value,
    })
}

/// The choices as a numbered list.
pub(crate) fn list(choices: &[Choice]) -> String {
    let line = |(at, choice): (usize, &Choice)| {
        let Choice { id, name, description, .. } = choice;
        let name = if name == id { name.clone() } else { format!("{name} ({id})") };
        match description {
            Some(description) => format!("{}. {name}: {description}", at + 1),
            None => format!("{}. {name}", at + 1),
        }
    };
    choices.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_made_by_value_title_or_number() {
        let size = json!({ "oneOf": [{ "const": "s", "title": "Small" }, { "const": "l", "title": "Large" }] });
        let form =
            json!({ "type": "object", "properties": { "size": size }, "required": ["size"] });
        for text in ["l", "Large", "large", "2", "2."] {
            assert_eq!(chosen(&size, text), Some("l".into()), "{text}");
            assert_eq!(chosen(&form, text), Some(json!({ "size": "l" })), "{text}");
        }
        for text in ["0", "3", "-1", "huge", ""] {
            assert_eq!(chosen(&size, text), None, "{text}");
        }
        // A value comes before the number of another.
        let numbers = json!({ "enum": [3, 2, 1] });
        assert_eq!(chosen(&numbers, "1"), Some(1.into()));
        let truth = json!({ "type": "boolean" });
        assert_eq!((chosen(&truth, "1"), chosen(&truth, "yes")), (None, Some(true.into())));
        let (_, choices) = one_choice(&size).unwrap();
        assert_eq!(list(&choices), "1. Small (s)\n2. Large (l)");
    }
}
