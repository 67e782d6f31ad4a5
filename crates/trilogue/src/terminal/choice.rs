//! The values that a question offers, and which of them a text means.

use serde_json::Value;
use trilogue_mapping::choice::{Choice, choices};
use trilogue_wire::native::PermissionOption;

use super::safe;

/// The choices of a permission: its options, by id.
pub(crate) fn of_options(options: &[PermissionOption]) -> Vec<Choice> {
    let choice = |option: &PermissionOption| {
        Choice::new(Value::from(option.id.as_str()), Some(&option.name))
    };
    options.iter().map(choice).collect()
}

/// Returns the choices of a schema, if it has any.
pub(crate) fn of_schema(schema: &Value) -> Option<Vec<Choice>> {
    Some(choices(schema)).filter(|choices| !choices.is_empty())
}

/// Finds the place of the choice that a text names by its number from 1, its value or its title.
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

/// Returns the choice's name, followed by its value if that differs.
pub(crate) fn label(choice: &Choice) -> String {
    let value = safe::visible(&choice.id);
    if choice.name == choice.id {
        return value;
    }
    format!("{} ({value})", safe::visible(&choice.name))
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
        assert_eq!(label(&choices[0]), "Very dry (dry)");
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
