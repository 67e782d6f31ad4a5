//! Messages and their parts.

use std::sync::Arc;

use bytes::Bytes;

use crate::id::MessageId;
use crate::json::Json;
use crate::time::Timestamp;

/// An ordered, multi-modal message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The id; the server assigns one if the sender gave none.
    pub id: MessageId,
    /// The author.
    pub role: Role,
    /// The parts, in the order in which they are shown.
    pub parts: Vec<Part>,
    /// When the message began; `None` if its sender stated that the time is unknown.
    pub created_at: Option<Timestamp>,
    /// When the message was complete; `None` while it grows, if its run ended before, or if its sender stated so.
    pub completed_at: Option<Timestamp>,
}

/// The times of a message as its sender states them. They replace the times of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// When the message began; `None` is a statement too.
    pub created_at: Option<Timestamp>,
    /// When the message was complete; `None` is a statement too.
    pub completed_at: Option<Timestamp>,
}

/// The author of a message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// A user.
    User,
    /// An agent without a name.
    Agent,
    /// The agent with this name.
    NamedAgent(Arc<str>),
}

/// One part of a message. A part with a name is an artifact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The MIME type, as the sender wrote it.
    pub content_type: Arc<str>,
    /// The content.
    pub content: Content,
    /// The artifact's name.
    pub name: Option<Arc<str>>,
    /// The meaning of the part beyond its content.
    pub metadata: Option<PartMetadata>,
    /// Members that Trilogue does not know, as one JSON object.
    pub extra: Option<Json>,
}

/// The content of a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// No content: the part carries only metadata.
    Empty,
    /// Text.
    Text(Arc<str>),
    /// Bytes (base64 on the wire).
    Bytes(Bytes),
    /// A reference. The receiver decides whether to fetch it.
    Url(Arc<str>),
    /// Large content that is stored once, outside the log.
    Blob(BlobRef),
}

/// A reference to a stored blob: the SHA-256 and the length of its bytes, and their form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlobRef {
    /// SHA-256 of the bytes.
    pub hash: [u8; 32],
    /// Length in bytes.
    pub length: u64,
    /// Whether the content is text; otherwise it is bytes.
    pub is_text: bool,
}

/// The meaning of a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartMetadata {
    /// The source of a statement.
    Citation(Citation),
    /// A step of the agent on the way to its answer.
    Trajectory(Trajectory),
    /// Other metadata, unchanged.
    Other(Json),
}

/// Attributes a range of the message's text to a source. Indexes count characters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Citation {
    /// The first character of the range, from 0. A peer may send a negative index, which points to no text.
    pub start_index: Option<i64>,
    /// The first character after the range.
    pub end_index: Option<i64>,
    /// The source's URL.
    pub url: Option<String>,
    /// The source's title.
    pub title: Option<String>,
    /// A description or snippet of the source.
    pub description: Option<String>,
}

/// One step of the agent: a thought, or a tool with its input and output.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trajectory {
    /// Reasoning as text.
    pub message: Option<String>,
    /// The tool's name.
    pub tool_name: Option<String>,
    /// The tool's input.
    pub tool_input: Option<Json>,
    /// The tool's output.
    pub tool_output: Option<Json>,
}

/// The types outside of `text/` whose content is text.
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

/// Returns `true` if content of this MIME type is text: only its characters matter. SVG counts as text, because most image readers do not accept it.
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
    /// Returns the role as the Agent Communication Protocol spells it.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::User => "user".to_owned(),
            Self::Agent => "agent".to_owned(),
            Self::NamedAgent(name) => format!("agent/{name}"),
        }
    }

    /// Parses `user`, `agent` or `agent/{name}`; the name has 1 or more letters, digits, `_` or `-`.
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

    /// Returns `true` for a user.
    #[must_use]
    pub fn is_user(&self) -> bool {
        matches!(self, Self::User)
    }
}

// === impl Part ===

impl Part {
    /// Returns a part of plain text.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::new("text/plain", Content::Text(text.into()))
    }

    /// Returns a part of JSON.
    #[must_use]
    pub fn json(json: &Json) -> Self {
        Self::new("application/json", Content::Text(Arc::from(json.as_str())))
    }

    /// Returns a part of bytes.
    #[must_use]
    pub fn bytes(content_type: impl Into<Arc<str>>, bytes: impl Into<Bytes>) -> Self {
        Self::new(content_type, Content::Bytes(bytes.into()))
    }

    /// Returns a part that refers to its content.
    #[must_use]
    pub fn url(content_type: impl Into<Arc<str>>, url: impl Into<Arc<str>>) -> Self {
        Self::new(content_type, Content::Url(url.into()))
    }

    /// Returns a part without name and metadata.
    #[must_use]
    pub fn new(content_type: impl Into<Arc<str>>, content: Content) -> Self {
        Self { content_type: content_type.into(), content, name: None, metadata: None, extra: None }
    }

    /// Returns a part that carries only metadata.
    #[must_use]
    pub fn annotation(metadata: PartMetadata) -> Self {
        Self { metadata: Some(metadata), ..Self::new("text/plain", Content::Empty) }
    }

    /// Makes the part an artifact with this name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: PartMetadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Returns the inline text of a `text/*` part; `None` for other parts.
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
    /// Returns a message with a new id that began and was complete at this time. With `None`, the log sets its times.
    #[must_use]
    pub fn new(role: Role, parts: Vec<Part>, at: Option<Timestamp>) -> Self {
        Self { id: MessageId::generate(), role, parts, created_at: at, completed_at: at }
    }

    /// Returns the joined text of all `text/*` parts that are not artifacts.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().filter(|part| part.name.is_none()).filter_map(Part::as_text).collect()
    }
}
