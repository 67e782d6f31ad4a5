//! Fits input from the command line to the schema of an agent of the Agent Connect Protocol.

use serde_json::{Value, json};
use trilogue_wire::native::{ContentEncoding, InputMessage, InputPart, Json, RunInput};

use crate::terminal::exit::{CliError, Result};
use crate::terminal::safe;

/// The longest schema that an error shows, in characters.
const MAX_SHOWN_SCHEMA_CHARS: usize = 400;

/// The content type of text without one.
const PLAIN: &str = "text/plain";

/// The input in the first form that the schema takes: a string, its one text property, messages, or the text parsed as JSON. A JSON value is passed on unchanged.
pub(super) fn by_schema(input: RunInput, schema: Option<&Value>) -> Result<Json> {
    let parts = match input {
        RunInput::Value(value) => return Ok(value),
        RunInput::Text(text) => vec![InputPart::text(text)],
        RunInput::Messages(messages) => {
            messages.into_iter().flat_map(|InputMessage { parts, .. }| parts).collect()
        }
    };
    let text = match parts.as_slice() {
        [InputPart { content: Some(text), content_type: None, name: None, .. }] => Some(text),
        _ => None,
    };
    let Some(schema) = schema else {
        return Ok(Json::from_value(&match text {
            Some(text) => json!({ "message": text }),
            None => json!({ "messages": [message(&parts, "role", "user")] }),
        }));
    };
    if let Some(text) = text {
        if schema.get("type").and_then(Value::as_str) == Some("string") {
            return Ok(Json::from_value(&json!(text)));
        }
        if let Some(property) = text_property(schema) {
            return Ok(Json::from_value(&json!({ property: text })));
        }
    }
    if let Some(messages) = schema.pointer("/properties/messages") {
        let item = resolve_reference(schema, messages.get("items").unwrap_or(&Value::Null));
        let (role, who) = speaker(item);
        return Ok(Json::from_value(&json!({ "messages": [message(&parts, role, who)] })));
    }
    if let Some(value) = text.and_then(|text| Json::parse(text.clone()).ok()) {
        return Ok(value);
    }
    let what = if text.is_some() { "plain text" } else { "attachments" };
    let shown: String = schema.to_string().chars().take(MAX_SHOWN_SCHEMA_CHARS).collect();
    Err(CliError::usage(format!("the agent does not take {what}"))
        .hint(format!("pass --input with JSON that fits {}", safe::visible(&shown))))
}

/// Returns the property that takes a text: the only one, the only required one, or `message` if no property is required.
fn text_property(schema: &Value) -> Option<&str> {
    let properties = schema.get("properties")?.as_object()?;
    let is_text = |name: &str| {
        let property = properties.get(name).map(|property| resolve_reference(schema, property));
        property.and_then(|it| it.get("type")).and_then(Value::as_str) == Some("string")
    };
    let required = schema.get("required").and_then(Value::as_array);
    let required: Vec<_> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let only = match (required.as_slice(), properties.len()) {
        ([only], _) => Some(*only),
        ([], 1) => properties.keys().next().map(String::as_str),
        ([], _) => Some("message"),
        _ => None,
    };
    only.filter(|name| is_text(name))
}

fn resolve_reference<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    let place = part.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
    place.and_then(|place| schema.pointer(place)).unwrap_or(part)
}

/// The member and value that mark a user's message: some servers' messages have a `type` in place of the `role`.
fn speaker(item: &Value) -> (&'static str, &'static str) {
    if item.pointer("/properties/role").is_some() || item.pointer("/properties/type").is_none() {
        return ("role", "user");
    }
    let words = item.pointer("/properties/type/enum").and_then(Value::as_array);
    let is_user = words.into_iter().flatten().any(|word| word == "user");
    ("type", if is_user { "user" } else { "human" })
}

fn message(parts: &[InputPart], role: &str, who: &str) -> Value {
    let content = match parts {
        [InputPart { content: Some(text), content_type: None, name: None, .. }] => json!(text),
        parts => parts.iter().map(block).collect(),
    };
    json!({ role: who, "content": content })
}

/// A part as a block; the metadata holds everything but its text.
fn block(part: &InputPart) -> Value {
    let coded = part.content_encoding == Some(ContentEncoding::Base64);
    let media = part.content_type.as_deref().and_then(|kind| kind.split('/').next());
    let kind = match media {
        Some(media @ ("image" | "audio" | "video")) => media,
        _ if part.content_url.is_some() => "link",
        _ if coded => "file",
        _ => "text",
    };
    let mut metadata = serde_json::Map::new();
    let mut set = |name: &str, value: Option<&str>| {
        metadata.extend(value.map(|value| (name.to_owned(), json!(value))));
    };
    set("content_type", part.content_type.as_deref().filter(|kind| *kind != PLAIN));
    set("name", part.name.as_deref());
    set("content_url", part.content_url.as_deref());
    let mut block = json!({ "type": kind });
    if coded {
        set("content", part.content.as_deref());
        set("content_encoding", Some("base64"));
    } else if let Some(text) = &part.content {
        block["type"] = "text".into();
        block["text"] = json!(text);
    }
    if !metadata.is_empty() {
        block["metadata"] = metadata.into();
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, schema: &Value) -> Result<Value> {
        by_schema(RunInput::Text(text.to_owned()), Some(schema)).map(|input| input.to_value())
    }

    #[test]
    fn text_goes_where_the_schema_takes_it() {
        let string = json!({ "type": "string" });
        let one = json!({ "properties": { "query": string } });
        assert_eq!(of("hi", &string).unwrap(), json!("hi"));
        assert_eq!(of("hi", &one).unwrap(), json!({ "query": "hi" }));
        let required =
            json!({ "properties": { "a": string, "b": string, "n": {} }, "required": ["b"] });
        assert_eq!(of("hi", &required).unwrap(), json!({ "b": "hi" }));
        let chat = json!({ "properties": { "messages": { "type": "array" }, "message": string } });
        assert_eq!(of("hi", &chat).unwrap(), json!({ "message": "hi" }));
        let number = json!({ "type": "integer" });
        assert_eq!(of("7", &number).unwrap(), json!(7));
        let error = of("hi", &number).unwrap_err();
        assert!(error.hint.unwrap().contains(r#"{"type":"integer"}"#));
        let by_hand = by_schema(RunInput::Value(Json::parse("[1]").unwrap()), Some(&number));
        assert_eq!(by_hand.unwrap().as_str(), "[1]");
        let unknown = by_schema(RunInput::Text("hi".to_owned()), None).unwrap();
        assert_eq!(unknown.to_value(), json!({ "message": "hi" }));
    }

    #[test]
    fn messages_have_the_schemas_member_for_the_role() {
        let of_item = |item: Value| {
            let schema = json!({
                "properties": { "messages": { "items": { "$ref": "#/$defs/M" } } },
                "$defs": { "M": item },
            });
            of("hi", &schema).unwrap()["messages"][0].clone()
        };
        let string = json!({ "type": "string" });
        let role = json!({ "properties": { "role": string, "type": string, "content": string } });
        assert_eq!(of_item(role), json!({ "role": "user", "content": "hi" }));
        let kind =
            json!({ "properties": { "type": { "enum": ["human", "ai"] }, "content": string } });
        assert_eq!(of_item(kind), json!({ "type": "human", "content": "hi" }));
        let user = json!({ "properties": { "type": { "enum": ["user"] } } });
        assert_eq!(of_item(user)["type"], "user");
    }

    #[test]
    fn attachments_are_blocks_of_a_message() {
        let part = |content_type: &str, coded: bool| InputPart {
            content_type: Some(content_type.to_owned()),
            content: Some("AA==".to_owned()),
            content_encoding: coded.then_some(ContentEncoding::Base64),
            name: Some("a".to_owned()),
            ..InputPart::default()
        };
        let link = InputPart {
            content_type: Some("application/pdf".to_owned()),
            content_url: Some("https://x/a.pdf".to_owned()),
            ..InputPart::default()
        };
        let parts = vec![
            InputPart::text("look".to_owned()),
            part("text/css", false),
            part("image/png", true),
            link,
        ];
        let input = RunInput::Messages(vec![InputMessage { parts, ..InputMessage::default() }]);
        let chat = json!({ "properties": { "messages": {}, "message": { "type": "string" } } });
        let fitted = by_schema(input.clone(), Some(&chat)).unwrap().to_value();
        assert_eq!(
            fitted["messages"][0]["content"],
            json!([
                { "type": "text", "text": "look" },
                { "type": "text", "text": "AA==", "metadata": { "content_type": "text/css", "name": "a" } },
                { "type": "image", "metadata": { "content_type": "image/png", "name": "a", "content": "AA==", "content_encoding": "base64" } },
                { "type": "link", "metadata": { "content_type": "application/pdf", "content_url": "https://x/a.pdf" } },
            ])
        );
        let error = by_schema(input, Some(&json!({ "type": "object" }))).unwrap_err();
        assert!(error.message.contains("attachments"), "{error}");
    }
}
