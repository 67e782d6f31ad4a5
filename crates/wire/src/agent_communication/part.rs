use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::object::object;
use super::{CitationMetadata, Extra, Json, Metadata, TrajectoryMetadata, check};
use crate::json::member::optional;
use crate::json::words::words;
use crate::json::{Path, Rules, Style, Violation, scan};

object! {
    /// One part of a message. A part with a name is an artifact.
    /// It has exactly one of `content` and `content_url`. A part with only metadata has neither.
    pub open struct MessagePart {
        name: Option<String> = optional;
        /// The MIME type of the content; `text/plain` if a peer stored none.
        content_type: String = mime_type;
        content: Option<String> = optional;
        content_encoding: ContentEncoding = optional;
        /// An absolute URL of the content.
        content_url: Option<String> = optional;
        metadata: Option<Metadata> = optional;
    } flags {
        /// Whether a peer sent no MIME type.
        is_type_missing;
    }
    finish hold;
}

words! {
    pub enum ContentEncoding: Default {
        #[default]
        Plain = "plain";
        /// Base64 (RFC 4648 §4) of the bytes.
        Base64 = "base64";
    }
}

// === impl MessagePart ===

impl Default for MessagePart {
    fn default() -> Self {
        Self {
            name: None,
            content_type: check::DEFAULT_CONTENT_TYPE.to_owned(),
            content: None,
            content_encoding: ContentEncoding::Plain,
            content_url: None,
            metadata: None,
            is_type_missing: false,
            extra: Extra::new(),
        }
    }
}

impl MessagePart {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Some(text.into()), ..Self::default() }
    }

    pub fn json(value: &Json) -> Self {
        Self {
            content_type: "application/json".to_owned(),
            content: Some(value.as_str().to_owned()),
            ..Self::default()
        }
    }

    pub fn base64(content_type: impl Into<String>, bytes: &[u8]) -> Self {
        Self {
            content_type: content_type.into(),
            content: Some(STANDARD.encode(bytes)),
            content_encoding: ContentEncoding::Base64,
            ..Self::default()
        }
    }

    pub fn url(content_type: impl Into<String>, url: impl Into<String>) -> Self {
        Self { content_type: content_type.into(), content_url: Some(url.into()), ..Self::default() }
    }

    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    #[must_use]
    pub fn citation(mut self, citation: CitationMetadata) -> Self {
        self.metadata = Some(Metadata::Citation(citation));
        self
    }

    #[must_use]
    pub fn trajectory(mut self, trajectory: TrajectoryMetadata) -> Self {
        self.metadata = Some(Metadata::Trajectory(trajectory));
        self
    }

    /// Returns the content of a `text/plain` part that is not base64.
    pub fn plain_text(&self) -> Option<&str> {
        let essence = self.content_type.split(';').next().unwrap_or_default().trim();
        (self.content_encoding == ContentEncoding::Plain
            && essence.eq_ignore_ascii_case("text/plain"))
        .then_some(self.content.as_deref())
        .flatten()
    }

    /// Returns the [plain text](Self::plain_text) of a part that is not an artifact.
    pub fn as_text(&self) -> Option<&str> {
        self.plain_text().filter(|_| self.name.is_none())
    }

    pub fn check(&self, rules: Rules) -> Result<(), Violation> {
        check(self, &Path::root(rules, Style::Exact))
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

fn mime_type(json: Option<&str>, at: &Path<'_>) -> Result<String, Violation> {
    let stated: Option<String> = optional(json, at)?;
    Ok(stated.unwrap_or_else(|| check::DEFAULT_CONTENT_TYPE.to_owned()))
}

/// Checks a part from a peer, and writes its URL in the standard form.
fn hold(mut part: MessagePart, json: &str, at: &Path<'_>) -> Result<MessagePart, Violation> {
    part.is_type_missing =
        scan::member(json, "content_type").is_none_or(|member| member.value == "null");
    if !at.is_lenient() && part.is_type_missing {
        let message = "is missing; every part has a MIME type";
        return Err(at.key("content_type").violation(message));
    }
    check_shape(&part, at)?;
    if let Some(url) = part.content_url.take() {
        part.content_url = Some(check::any_url(url, &at.key("content_url"))?);
    }
    Ok(part)
}

pub(super) fn check(part: &MessagePart, at: &Path<'_>) -> Result<(), Violation> {
    check_shape(part, at)?;
    if let Some(url) = &part.content_url {
        check::any_url(url.clone(), &at.key("content_url"))?;
    }
    if !at.is_lenient() && matches!(part.metadata, Some(Metadata::Other(_))) {
        let kind = at.key("metadata");
        return Err(kind.key("kind").violation("must be \"citation\" or \"trajectory\""));
    }
    Ok(())
}

fn check_shape(part: &MessagePart, at: &Path<'_>) -> Result<(), Violation> {
    if part.content.is_some() && part.content_url.is_some() {
        return Err(at.violation("must have only one of content and content_url, not both"));
    }
    if at.is_lenient() {
        return Ok(());
    }
    // The official clients make parts that contain only metadata.
    let is_annotation = !at.is_strict() && part.name.is_none() && part.metadata.is_some();
    if part.content.is_none() && part.content_url.is_none() && !is_annotation {
        let what = if part.name.is_some() { "; an artifact is a part too" } else { "" };
        return Err(at.violation(format!("must have one of content and content_url{what}")));
    }
    check::content_type(&part.content_type, &at.key("content_type"))?;
    match &part.content {
        Some(content) if part.content_encoding == ContentEncoding::Base64 => {
            check::base64(content, &at.key("content"))
        }
        _ => Ok(()),
    }
}
