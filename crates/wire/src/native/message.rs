use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Json, PartMetadata};
use crate::json::record::record;

record! {
    /// An ordered, multi-modal message.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Message {
        /// Its id.
        id: String,
        /// Who sent it: `user`, `agent` or `agent/NAME`.
        role: String,
        /// Its parts, in the order in which they are shown.
        parts: Vec<Part>,
        /// The run it belongs to.
        run_id?: String,
        /// When it began; absent where its sender said that nobody knows.
        created_at?: String,
        /// When it was complete; absent while it grows, or when its run ended before it was.
        completed_at?: String,
    }

    /// One part of a message. A part with a name is an artifact.
    /// At most one of `content`, `content_url` and `blob` is there; none when the part carries only metadata.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Part {
        /// The MIME type, as the sender wrote it.
        content_type: String,
        /// The content, in the form that `content_encoding` says.
        content?: String,
        /// How `content` is written; `plain` when absent.
        content_encoding?: ContentEncoding,
        /// A reference to the content elsewhere.
        content_url?: String,
        /// Large content, to be fetched from this server.
        blob?: BlobLink,
        /// The artifact's name.
        name?: String,
        /// What the part means beyond its content.
        metadata?: PartMetadata,
        /// Members that our vocabulary has no word for, as one object.
        extra?: Json,
    }
}

/// How content is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContentEncoding {
    /// As text.
    Plain,
    /// As base64 (RFC 4648 §4) of the bytes.
    Base64,
}

/// Where large content is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BlobLink {
    /// The path on this server that answers with the bytes.
    pub url: String,
    /// SHA-256 of the bytes in hexadecimal.
    pub sha256: String,
    /// Length in bytes.
    pub length: u64,
    /// Whether the content is text; otherwise it is bytes.
    pub is_text: bool,
}

// === impl Part ===

impl Part {
    /// The text of an inline `text/*` part that is no artifact.
    pub fn as_text(&self) -> Option<&str> {
        let plain = self.content_encoding != Some(ContentEncoding::Base64);
        (plain && self.name.is_none() && self.content_type.starts_with("text/"))
            .then_some(self.content.as_deref())
            .flatten()
    }
}

// === impl Message ===

impl Message {
    /// The text of all inline `text/*` parts that are no artifacts, joined.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}
