//! The values that a question offers, and which of them a text means.

use serde_json::Value;
use trilogue_wire::native::PermissionOption;

use super::safe;

/// A value that a question offers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Choice {
    pub(crate) value: Value,
    /// What the agent calls it, where that is not the value.
    title: Option<String>,
}

/// The choices of a permission: its options, by id.
pub(crate) fn of_options(options: &[PermissionOption]) -> Vec<Choice> {
    let choice = |option: &PermissionOption| {
        Choice::new(Value::from(option.id.as_str()), Some(option.name.clone()))
    };
    options.iter().map(choice).collect()
}

/// The choices of a schema: `enum`, with `enumNames` where they are, or `const` and `title` of each alternative.
pub(crate) fn of_schema(schema: &Value) -> Option<Vec<Choice>> {
    let list = |name: &str| schema.get(name).and_then(Value::as_array);
    if let Some(values) = list("enum") {
        let titles = list("enumNames").filter(|titles| titles.len() == values.len());
        let title = |place: usize| titles?.get(place)?.as_str().map(str::to_owned);
        let choice = |(place, value): (usize, &Value)| Choice::new(value.clone(), title(place));
        return some(values.iter().enumerate().map(choice).collect());
    }
    let alternatives = list("oneOf").or_else(|| list("anyOf"))?;
    let choice = |schema: &Value| {
        let title = schema.get("title").and_then(Value::as_str);
        Some(Choice::new(schema.get("const")?.clone(), title.map(str::to_owned)))
    };
    some(alternatives.iter().map(choice).collect::<Option<_>>()?)
}

fn some(choices: Vec<Choice>) -> Option<Vec<Choice>> {
    (!choices.is_empty()).then_some(choices)
}

/// The place of the choice that a text means by its number from 1, its value or its title.
///
/// # Errors
/// What to type instead.
pub(crate) fn find(choices: &[Choice], text: &str) -> Result<usize, String> {
    let text = text.trim();
    let place = |number: &str| {
        let number: usize = number.parse().ok()?;
        number.checked_sub(1).filter(|place| *place < choices.len())
    };
    if let Some(place) = text.strip_prefix('#').and_then(place) {
        return Ok(place);
    }
    let mut meant: Vec<usize> = place(text).into_iter().collect();
    let named = choices.iter().enumerate().filter(|(_, choice)| choice.is_called(text));
    meant.extend(named.map(|(place, _)| place).filter(|it| Some(*it) != place(text)));
    match meant.as_slice() {
        [place] => Ok(*place),
        [] => Err(format!("type a number from 1 to {}, or a name", choices.len())),
        [place, ..] => Err(format!(
            "'{}' means several choices: type # and a number, such as #{}",
            safe::visible(text),
            place + 1
        )),
    }
}

// === impl Choice ===

impl Choice {
    fn new(value: Value, title: Option<String>) -> Self {
        let text = text(&value);
        Self { value, title: title.filter(|title| !title.is_empty() && *title != text) }
    }

    /// Its title, and its value behind it where that is something else.
    pub(crate) fn label(&self) -> String {
        let value = safe::visible(&text(&self.value));
        match &self.title {
            Some(title) => format!("{} ({value})", safe::visible(title)),
            None => value,
        }
    }

    fn is_called(&self, text: &str) -> bool {
        let same = |name: &str| name.trim().to_lowercase() == text.to_lowercase();
        same(&self::text(&self.value)) || self.title.as_deref().is_some_and(same)
    }
}

/// A value as somebody types it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_is_found_by_value_title_and_number() {
        let schema = json!({ "oneOf": [
            { "const": "dry", "title": "Very dry" }, { "const": "warm", "title": "Warm" },
        ]});
        let choices = of_schema(&schema).unwrap();
        for (text, place) in
            [("dry", 0), ("very DRY", 0), ("1", 0), ("#1", 0), (" warm ", 1), ("2", 1)]
        {
            assert_eq!(find(&choices, text), Ok(place), "{text}");
        }
        for text in ["", "0", "3", "#3", "d", "y"] {
            assert!(find(&choices, text).is_err(), "{text}");
        }
        assert_eq!(choices[0].label(), "Very dry (dry)");
        let mixed = of_schema(&json!({ "enum": [1, true, "a"] })).unwrap();
        assert_eq!(find(&mixed, "true"), Ok(1));
        assert_eq!(find(&mixed, "A"), Ok(2));
        let named = of_schema(&json!({ "enum": ["a", "b"], "enumNames": ["One", "Two"] })).unwrap();
        assert_eq!(find(&named, "two"), Ok(1));
        assert_eq!(of_schema(&json!({ "oneOf": [{ "type": "string" }] })), None);
        assert_eq!(of_schema(&json!({ "enum": [] })), None);
    }

    #[test]
    fn a_name_cannot_pose_as_the_number_of_another_choice() {
        // The agent calls the choice that allows "2", which is the number of the one that rejects.
        let choices = of_schema(&json!({ "oneOf": [
            { "const": "allow", "title": "2" }, { "const": "reject", "title": "Reject" },
        ]}))
        .unwrap();
        assert!(find(&choices, "2").unwrap_err().contains('#'));
        assert_eq!(find(&choices, "#2"), Ok(1));
        assert_eq!(find(&choices, "allow"), Ok(0));
        // The number and the name of one choice may agree, and two of one name are no answer.
        assert_eq!(find(&of_schema(&json!({ "enum": [1, 2] })).unwrap(), "2"), Ok(1));
        assert!(find(&of_schema(&json!({ "enum": ["a", "A"] })).unwrap(), "a").is_err());
    }
}
