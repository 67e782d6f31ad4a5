use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{ContentEncoding, Json, PartMetadata};
use crate::json::record::record;
use crate::json::schema::schema;

/// A run's input. A string is one user message, an array contains messages, and any other value is one JSON value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunInput {
    /// One user message in plain text.
    Text(String),
    /// Messages, oldest first.
    Messages(Vec<InputMessage>),
    /// One JSON value: an object, a number, a boolean or `null`.
    Value(Json),
}

record! {
    /// A message from a client.
    pub strict struct InputMessage: Default {
        /// The id of the message, unique in the tenant. The server makes one by default.
        id?: String,
        /// The author: `user`, `agent` or `agent/NAME`. The default is `user`.
        role?: String,
        /// The parts of the message, in the order in which they are shown.
        parts: Vec<InputPart>,
    }

    /// A part from a client. A part with a name is an artifact.
    pub strict struct InputPart: Default {
        /// The MIME type. The default is `text/plain`.
        content_type?: String,
        /// The content, in the form of `content_encoding`. Excludes `content_url`.
        content?: String,
        /// The encoding of `content`. The default is `plain`.
        content_encoding?: ContentEncoding,
        /// A reference to the content. The server passes it on and does not fetch it.
        content_url?: String,
        /// The artifact's name.
        name?: String,
        /// The meaning of the part beyond its content.
        metadata?: PartMetadata,
        /// Members that this API does not define, as one object.
        extra?: Json,
    }
}

// === impl InputPart ===

impl InputPart {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Some(text.into()), ..Self::default() }
    }
}

// === impl RunInput ===

impl From<&str> for RunInput {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for RunInput {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<InputMessage>> for RunInput {
    fn from(messages: Vec<InputMessage>) -> Self {
        Self::Messages(messages)
    }
}

impl From<Json> for RunInput {
    fn from(value: Json) -> Self {
        Self::Value(value)
    }
}

impl Serialize for RunInput {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => to.serialize_str(text),
            Self::Messages(messages) => messages.serialize(to),
            Self::Value(value) => value.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for RunInput {
    /// Chooses the form by the first character, so that an error describes the problem in that form.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(from)?;
        match json.as_str().as_bytes().first() {
            Some(b'"') => json.read().map(Self::Text).map_err(de::Error::custom),
            Some(b'[') => json.read().map(Self::Messages).map_err(de::Error::custom),
            _ => Ok(Self::Value(json)),
        }
    }
}

schema!(RunInput = "RunInput", |generator| {
    let messages = generator.subschema_for::<Vec<InputMessage>>();
    json_schema!({
        "description": "A string is one message of the user, an array is messages, anything else is one JSON value.",
        "oneOf": [
            { "type": "string" },
            messages,
            { "type": ["object", "number", "boolean", "null"] }
        ]
    })
});
