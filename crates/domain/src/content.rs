//! Messages and their parts: who said what, in which form.

use std::sync::Arc;

use bytes::Bytes;

use crate::id::MessageId;
use crate::json::Json;
use crate::time::Timestamp;

/// An ordered, multi-modal message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its id; assigned by us where the sender gave none.
    pub id: MessageId,
    /// Who sent it.
    pub role: Role,
    /// Its parts, in the order in which they are shown.
    pub parts: Vec<Part>,
    /// When it began; `None` where its sender said that nobody knows.
    pub created_at: Option<Timestamp>,
    /// When it was complete; `None` while it grows, when its run ended before it was, or where its sender said so.
    pub completed_at: Option<Timestamp>,
}

/// When a message was made, where its sender states it: the log's own times do not count then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// When it began; `None` is a statement too.
    pub created_at: Option<Timestamp>,
    /// When it was complete; `None` is a statement too.
    pub completed_at: Option<Timestamp>,
}

/// Who sent a message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// A user.
    User,
    /// An agent without a name of its own.
    Agent,
    /// This agent.
    NamedAgent(Arc<str>),
}

/// One part of a message. A part with a name is an artifact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The MIME type, as the sender wrote it.
    pub content_type: Arc<str>,
    /// What it holds.
    pub content: Content,
    /// The artifact's name.
    pub name: Option<Arc<str>>,
    /// What the part means beyond its content.
    pub metadata: Option<PartMetadata>,
    /// Members that our vocabulary has no word for, as one JSON object.
    pub extra: Option<Json>,
}

/// What a part holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Nothing: the part carries only metadata.
    Empty,
    /// Text.
    Text(Arc<str>),
    /// Bytes (base64 on the wire).
    Bytes(Bytes),
    /// A reference that the receiver fetches, or does not.
    Url(Arc<str>),
    /// Large content that is stored once beside the log.
    Blob(BlobRef),
}

/// Names a stored blob: SHA-256 and length of its bytes, and how they are shown.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlobRef {
    /// SHA-256 of the bytes.
    pub hash: [u8; 32],
    /// Length in bytes.
    pub length: u64,
    /// Whether the content is text; otherwise it is bytes.
    pub is_text: bool,
}

/// What a part means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartMetadata {
    /// Where a statement comes from.
    Citation(Citation),
    /// How the agent got there.
    Trajectory(Trajectory),
    /// Anything else, as it came.
    Other(Json),
}

/// Attributes a range of the message's text to a source. Indexes count characters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Citation {
    /// First character of the range, from 0. A peer may send a negative one, which points nowhere.
    pub start_index: Option<i64>,
    /// First character after the range.
    pub end_index: Option<i64>,
    /// The source's address.
    pub url: Option<String>,
    /// The source's title.
    pub title: Option<String>,
    /// A description or snippet.
    pub description: Option<String>,
}

/// One step of the agent: a thought, or a tool with its input and output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trajectory {
    /// Reasoning in words.
    pub message: Option<String>,
    /// The tool's name.
    pub tool_name: Option<String>,
    /// What the tool was given.
    pub tool_input: Option<Json>,
    /// What the tool gave back.
    pub tool_output: Option<Json>,
}

/// Types outside of `text/` whose content is text.
const TEXTS: [&str; 9] = [
    "application/json",
    "application/jsonl",
    "application/rtf",
    "application/toml",
    "application/xml",
    "application/yaml",
    "application/javascript",
    "application/x-sh",
    "image/svg+xml",
];

/// Whether content of this MIME type is text: its characters are what counts. SVG is text: what takes images mostly does not take it.
#[must_use]
pub fn is_text_type(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.starts_with("text/")
        || TEXTS.contains(&kind)
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
}

// === impl Role ===

impl Role {
    /// The role as the Agent Communication Protocol spells it.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::User => "user".to_owned(),
            Self::Agent => "agent".to_owned(),
            Self::NamedAgent(name) => format!("agent/{name}"),
        }
    }

    /// Reads `user`, `agent` or `agent/{name}`; the name has 1 or more letters, digits, `_` or `-`.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        match text {
            "user" => return Some(Self::User),
            "agent" => return Some(Self::Agent),
            _ => {}
        }
        let name = text.strip_prefix("agent/")?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        (!name.is_empty() && name.bytes().all(fits)).then(|| Self::NamedAgent(Arc::from(name)))
    }

    /// Whether a user sent it.
    #[must_use]
    pub fn is_user(&self) -> bool {
        matches!(self, Self::User)
    }
}

// === impl Part ===

impl Part {
    /// A part of plain text.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::new("text/plain", Content::Text(text.into()))
    }

    /// A part of JSON.
    #[must_use]
    pub fn json(json: &Json) -> Self {
        Self::new("application/json", Content::Text(Arc::from(json.as_str())))
    }

    /// A part of bytes.
    #[must_use]
    pub fn bytes(content_type: impl Into<Arc<str>>, bytes: impl Into<Bytes>) -> Self {
        Self::new(content_type, Content::Bytes(bytes.into()))
    }

    /// A part that refers to its content.
    #[must_use]
    pub fn url(content_type: impl Into<Arc<str>>, url: impl Into<Arc<str>>) -> Self {
        Self::new(content_type, Content::Url(url.into()))
    }

    /// A part without name and metadata.
    #[must_use]
    pub fn new(content_type: impl Into<Arc<str>>, content: Content) -> Self {
        Self { content_type: content_type.into(), content, name: None, metadata: None, extra: None }
    }

    /// A part that carries only metadata.
    #[must_use]
    pub fn annotation(metadata: PartMetadata) -> Self {
        Self { metadata: Some(metadata), ..Self::new("text/plain", Content::Empty) }
    }

    /// The same part as an artifact of this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same part with metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: PartMetadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// The text, when the part holds text inline and is no artifact.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) if self.content_type.starts_with("text/") => Some(text),
            _ => None,
        }
    }
}

// === impl Message ===

impl Message {
    /// A message with an id of its own, begun and complete at this time; without one its times are left to whoever logs it.
    #[must_use]
    pub fn new(role: Role, parts: Vec<Part>, at: Option<Timestamp>) -> Self {
        Self { id: MessageId::generate(), role, parts, created_at: at, completed_at: at }
    }

    /// The text of all `text/*` parts that are no artifacts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().filter(|part| part.name.is_none()).filter_map(Part::as_text).collect()
    }
}
