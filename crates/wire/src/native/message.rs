//! Messages and parts, as they are shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Json, PartMetadata};

/// An ordered, multi-modal message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// Who sent it: `user`, `agent` or `agent/NAME`.
    pub role: String,
    /// Its parts, in the order in which they are shown.
    pub parts: Vec<Part>,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// When it began; absent where its sender said that nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// When it was complete; absent while it grows, or when its run ended before it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
}

/// One part of a message. A part with a name is an artifact.
/// At most one of `content`, `content_url` and `blob` is there; none when the part carries only metadata.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The MIME type, as the sender wrote it.
    pub content_type: String,
    /// The content, in the form that `content_encoding` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// How `content` is written; `plain` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<ContentEncoding>,
    /// A reference to the content elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_url: Option<String>,
    /// Large content, to be fetched from this server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobLink>,
    /// The artifact's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the part means beyond its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<PartMetadata>,
    /// Members that our vocabulary has no word for, as one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Json>,
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
    #[must_use]
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
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}
