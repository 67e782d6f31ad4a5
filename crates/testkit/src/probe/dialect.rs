//! The dialect: small JSON notifications, and their reader.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::event::{Body, MessageEvent, Original, StateEvent, ToolEvent, ToolStatus};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Content, Json, MessageId, Part};

/// The name of the dialect in the log.
pub const DIALECT: &str = "probe";
pub const VERSION: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notification {
    Say {
        message: String,
        text: String,
    },
    Show {
        message: String,
        content_type: String,
        text: String,
    },
    Think(String),
    Call {
        id: String,
        tool: String,
    },
    Return {
        id: String,
        output: Value,
    },
    Custom(Value),
    /// A variant that no reader knows: its name, and its content.
    Unknown(String, Value),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeReader;

// === impl Notification ===

impl Notification {
    /// The bytes on the wire, with a member that no reader knows.
    pub fn to_bytes(&self) -> Bytes {
        let value = match self {
            Self::Say { message, text } => {
                json!({"probe": "say", "message": message, "text": text, "x_unknown": [1, null]})
            }
            Self::Show { message, content_type, text } => {
                json!({"probe": "show", "message": message, "content_type": content_type, "text": text})
            }
            Self::Think(text) => json!({"probe": "think", "text": text}),
            Self::Call { id, tool } => json!({"probe": "call", "id": id, "tool": tool}),
            Self::Return { id, output } => json!({"probe": "return", "id": id, "output": output}),
            Self::Custom(data) => json!({"probe": "custom", "data": data}),
            Self::Unknown(name, data) => json!({"probe": name, "data": data}),
        };
        Bytes::from(value.to_string())
    }

    pub fn original(&self) -> Original {
        Original { dialect: Arc::from(DIALECT), version: VERSION, bytes: self.to_bytes() }
    }

    /// The body and the original, as a backend of this dialect emits them.
    pub fn event(&self) -> Result<(Body, Original), Error> {
        let original = self.original();
        Ok((ProbeReader.read(&original)?, original))
    }
}

// === impl ProbeReader ===

impl ReadOriginal for ProbeReader {
    fn read(&self, original: &Original) -> Result<Body, Error> {
        if &*original.dialect != DIALECT {
            return Err(foreign(format!("the dialect {} is not {DIALECT}", original.dialect)));
        }
        let value: Value = serde_json::from_slice(&original.bytes)
            .map_err(|error| foreign(format!("the original is not JSON: {error}")))?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        let message = || MessageId::parse(text("message"));
        Ok(match text("probe") {
            "say" => Body::Message(MessageEvent::Delta {
                message: message()?,
                text: Arc::from(text("text")),
            }),
            "show" => Body::Message(MessageEvent::Part {
                message: message()?,
                part: Part {
                    content_type: Arc::from(text("content_type")),
                    content: Content::Text(Arc::from(text("text"))),
                    name: None,
                    metadata: None,
                    extra: None,
                },
            }),
            "think" => Body::Message(MessageEvent::Thought {
                message: None,
                text: Arc::from(text("text")),
            }),
            "call" => Body::Tool(ToolEvent::Started {
                call: text("id").to_owned(),
                tool: text("tool").to_owned(),
                title: text("tool").to_owned(),
                input: None,
                message: None,
            }),
            "return" => Body::Tool(ToolEvent::Ended {
                call: text("id").to_owned(),
                status: ToolStatus::Completed,
                output: value.get("output").map(Json::from_value),
            }),
            "custom" => Body::State(StateEvent::Custom {
                kind: DIALECT.to_owned(),
                data: value.get("data").map_or_else(Json::null, Json::from_value),
            }),
            _ => Body::Opaque,
        })
    }
}

fn foreign(message: String) -> Error {
    Error::new(Code::InvalidJson, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_original_reads_back_and_an_unknown_variant_is_opaque() {
        let say = Notification::Say { message: "m1".to_owned(), text: "hi".to_owned() };
        let (body, original) = say.event().unwrap();
        assert_eq!(body.name(), "message.delta");
        assert!(std::str::from_utf8(&original.bytes).unwrap().contains("x_unknown"));

        let odd = Notification::Unknown("wobble".to_owned(), json!({"a": [1, 2]}));
        let (body, original) = odd.event().unwrap();
        assert_eq!(body, Body::Opaque);
        assert_eq!(original.bytes, odd.to_bytes());
    }

    #[test]
    fn another_dialect_and_broken_bytes_are_errors() {
        let mut original = Notification::Think("so".to_owned()).original();
        original.bytes = Bytes::from_static(b"{");
        assert!(ProbeReader.read(&original).is_err());
        original.dialect = Arc::from("other");
        assert!(ProbeReader.read(&original).is_err());
    }
}
