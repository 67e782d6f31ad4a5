//! Conversions between chat and JSON by schema.
//!
//! Only the form is decided here: the caller checks a value against its compiled schema.

use serde_json::{Map, Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentCard, Code, Content, Error, Input, InputKind, Json, Message, Part, Role, Timestamp,
};

/// The longest schema that an error repeats, in bytes.
const MAX_SHOWN_SCHEMA_BYTES: usize = 1_024;

/// Converts an input to the form that the agent takes: messages to a value, or a value to a message, if the agent needs the other form.
/// A message that is built from a value is sent now.
/// Errors: `invalid_input` if the messages represent no value; `json_too_deep`.
pub fn input(card: &AgentCard, input: Input, now: Timestamp) -> Result<Input> {
    match (&card.input, input) {
        (InputKind::Schema(_), Input::Value(value)) => Ok(Input::Value(value)),
        (InputKind::Schema(schema), Input::Messages(messages)) => {
            value_of(card, schema, &messages).map(Input::Value)
        }
        (InputKind::Chat, Input::Value(value)) => {
            Ok(Input::Messages(vec![message_of(&value, now)]))
        }
        (InputKind::Chat, messages) => Ok(messages),
    }
}

/// Converts a value to parts: the text of its one string property, or of the one called `message`, and then the value itself; a string is only its text.
pub fn output(value: &Json) -> Vec<Part> {
    let read = value.to_value();
    if let Value::String(text) = read {
        return vec![Part::text(text)];
    }
    let mut parts = Vec::with_capacity(2);
    if let Some(text) = said_text(&read) {
        parts.push(Part::text(text));
    }
    parts.push(Part::json(value));
    parts
}

fn said_text(value: &Value) -> Option<&str> {
    let object = value.as_object()?;
    let mut strings = object.values().filter_map(Value::as_str);
    match (strings.next(), strings.next()) {
        (Some(only), None) => Some(only),
        _ => object.get("message").and_then(Value::as_str),
    }
}

/// Returns the error of an unsuitable input; it names what the agent takes.
pub fn mismatch(card: &AgentCard, why: &str) -> Error {
    let message = format!("the input does not fit the agent '{}': {why}", card.name);
    let hint = match &card.input {
        InputKind::Schema(schema) if schema.as_bytes().len() <= MAX_SHOWN_SCHEMA_BYTES => {
            format!("it takes a value by the schema {}", schema.as_str())
        }
        InputKind::Schema(_) => "the agent's 'input.schema' says what fits".to_owned(),
        InputKind::Chat => "it takes messages".to_owned(),
    };
    Error::new(Code::InvalidInput, message).hint(hint)
}

/// Converts a value to the user's message: a string as text, anything else as JSON.
fn message_of(value: &Json, now: Timestamp) -> Message {
    let part = match value.to_value() {
        Value::String(text) => Part::text(text),
        _ => Part::json(value),
    };
    Message::new(Role::User, vec![part], Some(now))
}

/// Converts messages to a value: the last user message's JSON part; otherwise its text as the schema's one string property; otherwise its text parsed as JSON.
fn value_of(card: &AgentCard, schema: &Json, messages: &[Message]) -> Result<Json> {
    let message = messages.iter().rfind(|message| message.role.is_user()).or(messages.last());
    let Some(message) = message else {
        return Err(mismatch(card, "the input has no message"));
    };
    if let Some(part) = message.parts.iter().find(|part| is_json(&part.content_type)) {
        return json_of(part);
    }
    let text = message.text();
    match text_property(&schema.to_value()) {
        Some(property) => Ok(Json::from_value(&json!({ property: text }))),
        None => Json::parse(text).map_err(|_| mismatch(card, "the text is not JSON")),
    }
}

/// Whether a content type is JSON, with any parameters.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn json_of(part: &Part) -> Result<Json> {
    match &part.content {
        Content::Text(text) => Json::parse(text.as_bytes().to_vec()),
        Content::Bytes(bytes) => Json::parse(bytes.clone()),
        Content::Empty | Content::Url(_) | Content::Blob(_) => Err(Error::new(
            Code::InvalidInput,
            "the input's part 'application/json' has no inline content",
        )
        .hint("send the JSON inline; it is not fetched")),
    }
}

/// Returns the property for plain text: the only required string, or the only property, if it is a string.
pub(crate) fn text_property(schema: &Value) -> Option<String> {
    let Properties { all, required } = Properties::of(schema)?;
    let is_string = |name: &str| is_of(all, name, "string");
    let strings: Vec<&str> = required.iter().copied().filter(|name| is_string(name)).collect();
    let only = all.keys().next().filter(|_| all.len() == 1);
    let name = match (strings.as_slice(), only) {
        ([name], _) => *name,
        (_, Some(name)) if is_string(name) => name,
        _ => return None,
    };
    Some(name.to_owned())
}

pub(crate) struct Properties<'a> {
    pub(crate) all: &'a Map<String, Value>,
    pub(crate) required: Vec<&'a str>,
}

// === impl Properties ===

impl<'a> Properties<'a> {
    /// Returns the properties, or `None` if the schema names no properties.
    pub(crate) fn of(schema: &'a Value) -> Option<Self> {
        let all = schema.get("properties")?.as_object()?;
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str).collect();
        Some(Self { all, required })
    }
}

pub(crate) fn is_of(properties: &Map<String, Value>, name: &str, kind: &str) -> bool {
    let property = properties.get(name).and_then(|property| property.get("type"));
    property.and_then(Value::as_str) == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trilogue_domain::AgentName;

    fn card(input: InputKind) -> AgentCard {
        AgentCard::new(AgentName::parse("sample").unwrap(), input)
    }

    fn message(role: Role, parts: Vec<Part>) -> Message {
        Message { role, parts, ..message_of(&Json::null(), Timestamp::default()) }
    }

    /// Returns the value that an agent with this schema gets, or the error's code and message.
    fn shape(schema: &Value, messages: Vec<Message>) -> std::result::Result<Value, (Code, String)> {
        let card = card(InputKind::Schema(Json::from_value(schema)));
        let shaped = input(&card, Input::Messages(messages), Timestamp::default());
        match shaped.map_err(|error| (error.code(), error.message().to_owned()))? {
            Input::Value(value) => Ok(value.to_value()),
            Input::Messages(messages) => panic!("{messages:?}"),
        }
    }

    #[test]
    fn text_goes_to_the_one_string_or_is_read_as_json() {
        let text = |text: &str| vec![message(Role::User, vec![Part::text(text)])];
        let string = json!({ "type": "string" });
        let only = json!({ "properties": { "message": string } });
        assert_eq!(shape(&only, text("5")), Ok(json!({ "message": "5" })));
        let required = json!({
            "required": ["name"],
            "properties": { "name": string, "age": {}, "nick": string }
        });
        assert_eq!(shape(&required, text("5")), Ok(json!({ "name": "5" })));
        let two = json!({ "required": ["a", "b"], "properties": { "a": string, "b": string } });
        assert_eq!(shape(&two, text("{\"a\":1}")), Ok(json!({ "a": 1 })));
        let (code, message) = shape(&json!({ "type": "number" }), text("five")).unwrap_err();
        assert_eq!((code, message.contains("not JSON")), (Code::InvalidInput, true), "{message}");
    }

    #[test]
    fn the_last_message_of_the_user_counts_and_its_json_part_comes_first() {
        let schema = json!({ "properties": { "message": { "type": "string" } } });
        let part = Part::json(&Json::from_value(&json!({ "message": 5 })));
        let messages = vec![
            message(Role::User, vec![Part::text("first")]),
            message(Role::User, vec![Part::text("ignored"), part]),
            message(Role::Agent, vec![Part::text("not yours")]),
        ];
        assert_eq!(shape(&schema, messages), Ok(json!({ "message": 5 })));
        let elsewhere =
            message(Role::User, vec![Part::url("application/json", "http://example.com/")]);
        assert_eq!(shape(&schema, vec![elsewhere]).unwrap_err().0, Code::InvalidInput);
        assert_eq!(shape(&schema, Vec::new()).unwrap_err().0, Code::InvalidInput);
    }

    #[test]
    fn a_value_is_shown_as_its_text_and_itself() {
        let json = |value: &Value| Json::from_value(value);
        assert_eq!(output(&json(&json!("hi"))), [Part::text("hi")]);
        for (value, text) in [
            (json!({ "answer": "42", "sure": true }), Some("42")),
            (json!({ "a": "1", "message": "2" }), Some("2")),
            (json!({ "a": "1", "b": "2" }), None),
            (json!([1]), None),
        ] {
            let parts = output(&json(&value));
            let said = parts.iter().find_map(Part::as_text);
            assert_eq!(said, text, "{value}");
            assert_eq!(parts.last(), Some(&Part::json(&json(&value))));
        }
    }

    #[test]
    fn a_chat_agent_gets_a_value_as_a_message() {
        let parts = |value: &Value| {
            let value = Input::Value(Json::from_value(value));
            match input(&card(InputKind::Chat), value, Timestamp::default()) {
                Ok(Input::Messages(messages)) => messages[0].parts.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(parts(&json!("hi")), [Part::text("hi")]);
        let value = json!({ "a": 1 });
        assert_eq!(parts(&value), [Part::json(&Json::from_value(&value))]);
    }

    #[test]
    fn a_chat_agent_may_be_given_no_message_where_the_face_allows_it() {
        let none = Input::Messages(Vec::new());
        assert_eq!(input(&card(InputKind::Chat), none.clone(), Timestamp::default()), Ok(none));
    }
}
