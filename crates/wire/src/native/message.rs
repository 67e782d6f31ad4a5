use super::{Json, PartMetadata};
use crate::json::record::record;

record! {
    /// An ordered, multi-modal message.
    pub struct Message {
        /// The id of the message.
        id: String,
        /// The author: `user`, `agent` or `agent/NAME`.
        role: String,
        /// The parts of the message, in the order in which they are shown.
        parts: Vec<Part>,
        /// The run that the message belongs to.
        run_id?: String,
        /// When the message began. Absent if its sender stated that the time is unknown.
        created_at?: String,
        /// When the message was complete. Absent while it grows, or if its run ended before.
        completed_at?: String,
    }

    /// One part of a message. A part with a name is an artifact.
    /// Contains at most one of `content`, `content_url` and `blob`; a part without them carries only metadata.
    pub struct Part: Default {
        /// The MIME type, as the sender wrote it.
        content_type: String,
        /// The content, in the form of `content_encoding`.
        content?: String,
        /// The encoding of `content`. The default is `plain`.
        content_encoding?: ContentEncoding,
        /// A reference to content elsewhere.
        content_url?: String,
        /// Large content to fetch from this server.
        blob?: BlobLink,
        /// The artifact's name.
        name?: String,
        /// The meaning of the part beyond its content.
        metadata?: PartMetadata,
        /// Members that this API does not define, as one object.
        extra?: Json,
    }

    /// The encoding of content.
    pub enum ContentEncoding {
        /// Text.
        Plain,
        /// The bytes in base64 (RFC 4648 §4).
        Base64,
    }

    /// The location of large content.
    pub struct BlobLink {
        /// The path on this server that returns the bytes.
        url: String,
        /// The SHA-256 of the bytes in hexadecimal.
        sha256: String,
        /// The length in bytes.
        length: u64,
        /// Whether the content is text; otherwise it is bytes.
        is_text: bool,
    }
}

// === impl Part ===

impl Part {
    /// Returns the text of an inline `text/*` part that is not an artifact.
    pub fn as_text(&self) -> Option<&str> {
        let plain = self.content_encoding != Some(ContentEncoding::Base64);
        (plain && self.name.is_none() && self.content_type.starts_with("text/"))
            .then_some(self.content.as_deref())
            .flatten()
    }
}

// === impl Message ===

impl Message {
    /// Returns the joined text of all inline `text/*` parts that are not artifacts.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}
