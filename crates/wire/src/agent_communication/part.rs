use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::{CitationMetadata, Extra, Json, Metadata, TrajectoryMetadata};

/// One part of a message. A part with a name is an artifact.
/// At most one of `content` and `content_url` is there; neither where the part carries only metadata.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MessagePart {
    /// The artifact's name.
    pub name: Option<String>,
    /// The MIME type of the content; `text/plain` where the sender gave none.
    pub content_type: String,
    /// The content, in the form that `content_encoding` says.
    pub content: Option<String>,
    /// How `content` is written.
    pub content_encoding: ContentEncoding,
    /// An absolute URL where the content lies.
    pub content_url: Option<String>,
    /// What the part means beyond its content.
    pub metadata: Option<Metadata>,
    /// Members that the protocol has no word for.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How content is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentEncoding {
    /// As text.
    #[default]
    Plain,
    /// As base64 (RFC 4648 §4) of the bytes.
    Base64,
}

// === impl MessagePart ===

impl Default for MessagePart {
    /// A `text/plain` part without content.
    fn default() -> Self {
        Self {
            name: None,
            content_type: super::check::DEFAULT_CONTENT_TYPE.to_owned(),
            content: None,
            content_encoding: ContentEncoding::Plain,
            content_url: None,
            metadata: None,
            extra: Extra::new(),
        }
    }
}

impl MessagePart {
    /// A `text/plain` part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Some(text.into()), ..Self::default() }
    }

    /// An `application/json` part.
    #[must_use]
    pub fn json(value: &Json) -> Self {
        Self {
            content_type: "application/json".to_owned(),
            content: Some(value.as_str().to_owned()),
            ..Self::default()
        }
    }

    /// A part whose bytes are written as base64.
    #[must_use]
    pub fn base64(content_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self {
            content_type: content_type.into(),
            content: Some(STANDARD.encode(bytes)),
            content_encoding: ContentEncoding::Base64,
            ..Self::default()
        }
    }

    /// A part whose content lies at an absolute URL.
    #[must_use]
    pub fn url(content_type: impl Into<String>, url: impl Into<String>) -> Self {
        Self { content_type: content_type.into(), content_url: Some(url.into()), ..Self::default() }
    }

    /// Makes the part an artifact.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Attributes the part, or a range of the message's text, to a source.
    #[must_use]
    pub fn citation(mut self, citation: CitationMetadata) -> Self {
        self.metadata = Some(Metadata::Citation(citation));
        self
    }

    /// Says how the agent got to the part.
    #[must_use]
    pub fn trajectory(mut self, trajectory: TrajectoryMetadata) -> Self {
        self.metadata = Some(Metadata::Trajectory(trajectory));
        self
    }

    /// The content of a `text/plain` part that is not base64.
    #[must_use]
    pub fn plain_text(&self) -> Option<&str> {
        let essence = self.content_type.split(';').next().unwrap_or_default().trim();
        (self.content_encoding == ContentEncoding::Plain
            && essence.eq_ignore_ascii_case("text/plain"))
        .then_some(self.content.as_deref())
        .flatten()
    }

    /// Writes the part as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::splice::json(out, self);
    }
}

impl From<&str> for MessagePart {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for MessagePart {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}
