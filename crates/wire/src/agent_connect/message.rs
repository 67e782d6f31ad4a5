use std::borrow::Cow;
use std::fmt;

use schemars::json_schema;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::json::object_only;
use crate::json::record::record;
use crate::json::schema::schema;

record! {
    /// A message.
    pub written struct Message {
        /// The author, such as `user` or `assistant`.
        role: String,
        /// The content.
        content: MessageContent,
        /// The id of the message.
        id?: String,
        /// Metadata of any kind.
        metadata?: Map<String, Value>,
        /// Members that the protocol has no word for.
        #[serde(flatten)]
        extra: Map<String, Value>,
    }
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum MessageContent {
    /// One text.
    Text(String),
    /// Blocks, in the order in which they are shown.
    Blocks(Vec<Block>),
}

record! {
    /// A block of a message.
    pub struct Block: Default {
        /// The type of the block. A block of type `text` has `text`.
        kind as "type": String,
        /// The text.
        text?: String,
        /// Metadata of any kind.
        metadata?: Map<String, Value>,
        /// Members that the protocol does not define.
        #[serde(flatten)]
        extra: Map<String, Value>,
    }
}

// === impl Message ===

impl Message {
    pub fn text(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: MessageContent::Text(text.into()),
            id: None,
            metadata: None,
            extra: Map::new(),
        }
    }
}

#[derive(Deserialize)]
struct Members {
    role: String,
    content: MessageContent,
    id: Option<String>,
    metadata: Option<Map<String, Value>>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Members { role, content, id, metadata, extra } = object_only(from)?;
        Ok(Self { role, content, id, metadata, extra })
    }
}

// === impl MessageContent ===

impl MessageContent {
    /// Returns the text, or the joined text of the blocks.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Blocks(blocks) => {
                blocks.iter().filter_map(|block| block.text.as_deref()).collect()
            }
        }
    }
}

impl<'de> Deserialize<'de> for MessageContent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = MessageContent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an array of blocks")
    }

    fn visit_str<E>(self, text: &str) -> Result<MessageContent, E> {
        Ok(MessageContent::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<MessageContent, E> {
        Ok(MessageContent::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<MessageContent, A::Error> {
        let mut blocks = Vec::new();
        while let Some(block) = items.next_element()? {
            blocks.push(block);
        }
        Ok(MessageContent::Blocks(blocks))
    }
}

schema!(inline MessageContent = "MessageContent", |generator| {
    let block = generator.subschema_for::<Block>();
    json_schema!({ "oneOf": [{ "type": "string" }, { "type": "array", "items": block }] })
});

// === impl Block ===

impl Block {
    pub fn text(text: impl Into<String>) -> Self {
        Self { kind: "text".to_owned(), text: Some(text.into()), ..Self::default() }
    }
}
