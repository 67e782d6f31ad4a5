//! Questions whose answer is one of a few values.

use serde_json::{Value, json};

use crate::shape::Properties;

/// A value that a question allows.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// Its id for programs: its text, or its JSON if it is not text.
    pub id: String,
    /// The agent's name for it, or its id without a name.
    pub name: String,
    pub description: Option<String>,
    pub value: Value,
}

/// Returns the choices of a schema: `enum`, with `enumNames` if present, or `const` and `title` of each alternative. Empty for another schema.
pub fn choices(schema: &Value) -> Vec<Choice> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array);
    if let Some(values) = list("enum") {
        let names = list("enumNames").filter(|names| names.len() == values.len());
        let name = |place: usize| names?.get(place)?.as_str();
        let choice = |(place, value): (usize, &Value)| Choice::new(value.clone(), name(place));
        return values.iter().enumerate().map(choice).collect();
    }
    let choice = |item: &Value| {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let description = text("description").map(str::to_owned);
        Some(Choice { description, ..Choice::new(item.get("const")?.clone(), text("title")) })
    };
    let alternatives = list("oneOf").or_else(|| list("anyOf"));
    alternatives.and_then(|items| items.iter().map(choice).collect()).unwrap_or_default()
}

/// Returns the single boolean, or the single list of values, of a schema: its property, and the values.
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
        return vec![Choice::new(true.into(), Some("Yes")), Choice::new(false.into(), Some("No"))];
    }
    choices(schema)
}

/// Returns the answer that a text chooses by the value, the title or the number of a choice. `None` if the schema has no single choice, the text
/// matches no choice, or it matches several: a name never counts as the number of another choice.
/// A number chooses nothing for a yes or no, because it does not consent to anything.
pub(crate) fn chosen(schema: &Value, text: &str) -> Option<Value> {
    let (property, choices) = one_choice(schema)?;
    let number = text.trim_end_matches(['.', ')']).parse::<usize>().ok();
    let is_meant = |(place, choice): &(usize, &Choice)| {
        choice.is_called(text) || (number == Some(place + 1) && !choice.value.is_boolean())
    };
    let mut meant = choices.iter().enumerate().filter(is_meant);
    let (Some((_, choice)), None) = (meant.next(), meant.next()) else { return None };
    let value = choice.value.clone();
    Some(match property {
        Some(property) => json!({ property: value }),
        None => value,
    })
}

/// Returns the choices as a numbered list.
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

// === impl Choice ===

impl Choice {
    pub fn new(value: Value, name: Option<&str>) -> Self {
        let id = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name = name.filter(|name| !name.is_empty()).unwrap_or(&id).to_owned();
        Self { id, name, description: None, value }
    }

    /// Whether a text is its value or its title, in any case.
    pub fn is_called(&self, text: &str) -> bool {
        let text = text.trim().to_lowercase();
        [&self.id, &self.name].iter().any(|name| name.trim().to_lowercase() == text)
    }
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
        // The number of a choice can also be its own value, but not the value or the title of another.
        assert_eq!(chosen(&json!({ "enum": [1, 2] }), "2"), Some(2.into()));
        assert_eq!(chosen(&json!({ "enum": [3, 2, 1] }), "1"), None);
        let posing = json!({ "oneOf": [
            { "const": "allow", "title": "2" }, { "const": "reject", "title": "Reject" },
        ]});
        assert_eq!(chosen(&posing, "2"), None);
        assert_eq!(chosen(&posing, "reject"), Some("reject".into()));
        assert_eq!(chosen(&json!({ "enum": ["a", "A"] }), "a"), None);
        let truth = json!({ "type": "boolean" });
        assert_eq!((chosen(&truth, "1"), chosen(&truth, "yes")), (None, Some(true.into())));
        let (_, choices) = one_choice(&size).unwrap();
        assert_eq!(list(&choices), "1. Small (s)\n2. Large (l)");
        let named = json!({ "enum": ["a", 2], "enumNames": ["One", ""] });
        assert_eq!(chosen(&named, "one"), Some("a".into()));
        assert_eq!(list(&super::choices(&named)), "1. One (a)\n2. 2");
    }
}
