//! A run's input, brought into the form that the agent takes.

use serde_json::{Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{
    AgentCard, Code, Content, Error, InputKind, Json, Message, MessageId, Part, Role,
};
use trilogue_runtime::Input;

use super::schema::Schema;

/// Checks an input against what the agent takes; messages become a value and a value a message where the agent wants the other.
pub(super) fn admit(card: &AgentCard, schema: Option<&Schema>, input: Input) -> Result<Input> {
    match (&card.input, schema, input) {
        (InputKind::Schema(declared), Some(schema), Input::Value(value)) => {
            fits(card, declared, schema, &value)?;
            Ok(Input::Value(value))
        }
        (InputKind::Schema(declared), Some(schema), Input::Messages(messages)) => {
            value_of(card, declared, schema, &messages).map(Input::Value)
        }
        (_, _, Input::Value(value)) => Ok(Input::Messages(vec![message_of(&value)])),
        (_, _, Input::Messages(messages)) if messages.is_empty() => {
            Err(Error::new(Code::InvalidInput, "the input has no message")
                .hint("give a text, or at least one message"))
        }
        (_, _, messages) => Ok(messages),
    }
}

/// The user's message that says this value: a string as text, anything else as JSON.
fn message_of(value: &Json) -> Message {
    let part = match value.to_value() {
        Value::String(text) => Part::text(text),
        _ => Part::json(value),
    };
    let now = SystemClock.now();
    Message {
        id: MessageId::generate(),
        role: Role::User,
        parts: vec![part],
        created_at: now,
        completed_at: Some(now),
    }
}

/// The value that messages stand for: the last user message's JSON part; else its text as the schema's one string property; else its text read as JSON.
fn value_of(
    card: &AgentCard,
    declared: &Json,
    schema: &Schema,
    messages: &[Message],
) -> Result<Json> {
    let message = messages.iter().rfind(|message| message.role.is_user()).or(messages.last());
    let Some(message) = message else {
        return Err(mismatch(card, declared, "the input has no message"));
    };
    if let Some(part) = message.parts.iter().find(|part| is_json(&part.content_type)) {
        let value = json_of(part)?;
        fits(card, declared, schema, &value)?;
        return Ok(value);
    }
    let text = message.text();
    if let Some(property) = text_property(&declared.to_value()) {
        let value = Json::from_value(&json!({ property: text }));
        fits(card, declared, schema, &value)?;
        return Ok(value);
    }
    let Ok(value) = Json::parse(text) else {
        return Err(mismatch(card, declared, "the text is no JSON"));
    };
    fits(card, declared, schema, &value)?;
    Ok(value)
}

fn is_json(content_type: &str) -> bool {
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

/// The property that plain text goes to: the only one that is required, or the only one there is, if it is a string.
fn text_property(schema: &Value) -> Option<String> {
    let properties = schema.get("properties")?.as_object()?;
    let is_string = |name: &str| {
        properties.get(name).and_then(|property| property.get("type")) == Some(&json!("string"))
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let strings: Vec<&str> = required.iter().copied().filter(|name| is_string(name)).collect();
    let only = properties.keys().next().filter(|_| properties.len() == 1);
    let name = match (strings.as_slice(), only) {
        ([name], _) => *name,
        (_, Some(name)) if is_string(name) => name,
        _ => return None,
    };
    Some(name.to_owned())
}

fn fits(card: &AgentCard, declared: &Json, schema: &Schema, value: &Json) -> Result<()> {
    schema.check(value).map_err(|why| mismatch(card, declared, &why))
}

/// The longest schema that an error repeats, in bytes.
const MAX_SHOWN_SCHEMA_BYTES: usize = 1_024;

fn mismatch(card: &AgentCard, declared: &Json, why: &str) -> Error {
    let message = format!("the input does not fit the agent '{}': {why}", card.name);
    let hint = match declared.as_str() {
        text if text.len() <= MAX_SHOWN_SCHEMA_BYTES => {
            format!("it takes a value by the schema {text}")
        }
        _ => "the agent's 'input.schema' says what fits".to_owned(),
    };
    Error::new(Code::InvalidInput, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trilogue_sdk::Card;

    /// What the agent would get, as JSON, or the error's code and message.
    fn check(schema: &Value, parts: Vec<Part>) -> std::result::Result<Value, (Code, String)> {
        let card = Card::schema("sample", "", schema).build().unwrap();
        let compiled = Schema::compile(&Json::from_value(schema)).unwrap();
        let mut message = message_of(&Json::null());
        message.parts = parts;
        let admitted = admit(&card, Some(&compiled), Input::Messages(vec![message]));
        match admitted.map_err(|error| (error.code(), error.message().to_owned()))? {
            Input::Value(value) => Ok(value.to_value()),
            Input::Messages(messages) => panic!("{messages:?}"),
        }
    }

    #[test]
    fn text_goes_to_the_one_string() {
        let text = || vec![Part::text("5")];
        let string = json!({ "type": "string" });
        let only = json!({ "properties": { "message": string } });
        assert_eq!(check(&only, text()), Ok(json!({ "message": "5" })));
        let required = json!({
            "required": ["name"],
            "properties": { "name": string, "age": {}, "nick": string }
        });
        assert_eq!(check(&required, text()), Ok(json!({ "name": "5" })));
        let number = json!({ "type": "number" });
        assert_eq!(check(&number, text()), Ok(json!(5)));
        let (code, message) = check(&number, vec![Part::text("five")]).unwrap_err();
        assert_eq!((code, message.contains("no JSON")), (Code::InvalidInput, true), "{message}");
    }

    #[test]
    fn a_json_part_is_the_value_and_is_checked() {
        let schema = json!({ "properties": { "message": { "type": "string" } } });
        let part =
            |value: Value| vec![Part::text("ignored"), Part::json(&Json::from_value(&value))];
        assert_eq!(
            check(&schema, part(json!({ "message": "hi" }))),
            Ok(json!({ "message": "hi" }))
        );
        let (code, message) = check(&schema, part(json!({ "message": 5 }))).unwrap_err();
        assert_eq!(code, Code::InvalidInput);
        assert!(message.contains("'/message'"), "{message}");
        let url = vec![Part::url("application/json", "http://example.com/")];
        assert_eq!(check(&schema, url).map_err(|(code, _)| code), Err(Code::InvalidInput));
    }

    #[test]
    fn a_chat_agent_gets_a_value_as_a_message() {
        let card = Card::chat("chat", "").build().unwrap();
        let parts = |value: Value| match admit(&card, None, Input::Value(Json::from_value(&value)))
        {
            Ok(Input::Messages(messages)) => messages[0].parts.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(parts(json!("hi")), [Part::text("hi")]);
        let value = json!({ "a": 1 });
        assert_eq!(parts(value.clone()), [Part::json(&Json::from_value(&value))]);
        let empty = admit(&card, None, Input::Messages(Vec::new()));
        assert_eq!(empty.map_err(|error| error.code()), Err(Code::InvalidInput));
    }
}
