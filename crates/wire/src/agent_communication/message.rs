use serde::Serialize;

use super::{MessagePart, Role, When};

/// An ordered, multi-modal message.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Message {
    /// Who sent it.
    pub role: Role,
    /// Its parts, in the order in which they are shown; there may be none.
    pub parts: Vec<MessagePart>,
    /// When it began.
    #[serde(skip_serializing_if = "When::is_absent")]
    pub created_at: When,
    /// When it was complete; `null` while it grows.
    #[serde(skip_serializing_if = "When::is_absent")]
    pub completed_at: When,
}

// === impl Message ===

impl Message {
    /// A user's message. Its times are left to the server that receives it.
    #[must_use]
    pub fn user(parts: Vec<MessagePart>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// A user's message with one text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::user(vec![MessagePart::text(text)])
    }

    /// The content of its `text/plain` parts, joined.
    #[must_use]
    pub fn plain_text(&self) -> String {
        self.parts.iter().filter_map(MessagePart::plain_text).collect()
    }

    /// Writes the message as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::splice::json(out, self);
    }
}

impl From<MessagePart> for Message {
    fn from(part: MessagePart) -> Self {
        Self::user(vec![part])
    }
}
