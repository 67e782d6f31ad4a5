use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{ContentEncoding, Json, PartMetadata};
use crate::json::record::record;
use crate::json::schema::schema;

/// A run's input: a string is one message of the user, an array is messages, anything else is one JSON value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunInput {
    /// One message of the user, in plain text.
    Text(String),
    /// Messages, oldest first.
    Messages(Vec<InputMessage>),
    /// One JSON value: an object, a number, a boolean or `null`.
    Value(Json),
}

record! {
    /// A message that a client sends.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct InputMessage {
        /// Its id, unique in the tenant; made by the server when absent.
        id?: String,
        /// Who sent it: `user`, `agent` or `agent/NAME`; `user` when absent.
        role?: String,
        /// Its parts, in the order in which they are shown.
        parts: Vec<InputPart>,
    }

    /// A part that a client sends. A part with a name is an artifact.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct InputPart {
        /// The MIME type; `text/plain` when absent.
        content_type?: String,
        /// The content, in the form that `content_encoding` says. Not together with `content_url`.
        content?: String,
        /// How `content` is written; `plain` when absent.
        content_encoding?: ContentEncoding,
        /// A reference to the content. It is passed on and not fetched.
        content_url?: String,
        /// The artifact's name.
        name?: String,
        /// What the part means beyond its content.
        metadata?: PartMetadata,
        /// Members that our vocabulary has no word for, as one object.
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
    /// Chooses by the first character, so that an error names what is wrong in the form that was chosen.
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
