//! Converts a run's input into the form that the agent takes, and checks it against the schema.

use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{AgentCard, Input};
use trilogue_mapping::shape;

use super::schema::Schema;

pub(super) fn admit(card: &AgentCard, schema: Option<&Schema>, input: Input) -> Result<Input> {
    let input = shape::input(card, input, SystemClock.now())?;
    if let (Some(schema), Input::Value(value)) = (schema, &input) {
        schema.check(value).map_err(|why| {
            shape::mismatch(card, &why.to_string()).violations(why.into_violations())
        })?;
    }
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use trilogue_domain::{Code, Json, Message, Part, Role};
    use trilogue_sdk::Card;

    /// The input that an agent with this schema would get, as JSON, or the error's code and message.
    fn check(schema: &Value, input: Input) -> std::result::Result<Value, (Code, String)> {
        let card = Card::schema("sample", "", schema).build().unwrap();
        let compiled = Schema::compile(&Json::from_value(schema)).unwrap();
        let admitted = admit(&card, Some(&compiled), input);
        match admitted.map_err(|error| (error.code(), error.message().to_owned()))? {
            Input::Value(value) => Ok(value.to_value()),
            Input::Messages(messages) => panic!("{messages:?}"),
        }
    }

    fn user_input(part: Part) -> Input {
        Input::Messages(vec![Message::new(Role::User, vec![part], Some(SystemClock.now()))])
    }

    #[test]
    fn whatever_form_a_value_comes_in_it_is_checked() {
        let schema = json!({ "properties": { "message": { "type": "string", "maxLength": 3 } } });
        let value = |value: &Value| Json::from_value(value);
        let good = json!({ "message": "hi" });
        for input in [
            Input::Value(value(&good)),
            user_input(Part::json(&value(&good))),
            user_input(Part::text("hi")),
        ] {
            assert_eq!(check(&schema, input), Ok(good.clone()));
        }
        let bad = json!({ "message": "hello" });
        for input in [
            Input::Value(value(&bad)),
            user_input(Part::json(&value(&bad))),
            user_input(Part::text("hello")),
        ] {
            let (code, message) = check(&schema, input).unwrap_err();
            assert_eq!(code, Code::InvalidInput);
            assert!(message.contains("'/message'"), "{message}");
        }
        let number = json!({ "type": "number" });
        assert_eq!(check(&number, user_input(Part::text("5"))), Ok(json!(5)));
        assert_eq!(
            check(&number, user_input(Part::text("\"5\""))).unwrap_err().0,
            Code::InvalidInput
        );
    }
}
