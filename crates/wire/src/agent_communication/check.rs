//! The rules for what a field may hold, beyond its shape.

use std::cell::Cell;
use std::io;

use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use mime::Mime;
use url::{SyntaxViolation, Url};

use super::{ContentEncoding, Message, MessagePart, Metadata, Role};
use crate::json::{Path, Rules, Style, Violation, quoted, scan};

/// What a part without content type is.
pub(super) const DEFAULT_CONTENT_TYPE: &str = "text/plain";

// === impl MessagePart ===

impl MessagePart {
    /// Holds a part that was made here to the rules.
    ///
    /// # Errors
    /// The first field that breaks them.
    pub fn check(&self, rules: Rules) -> Result<(), Violation> {
        check(self, &Path::root(rules, Style::Exact))
    }
}

// === impl Message ===

impl Message {
    /// Holds a message that was made here to the rules.
    ///
    /// # Errors
    /// The first field that breaks them.
    pub fn check(&self, rules: Rules) -> Result<(), Violation> {
        let at = Path::root(rules, Style::Exact);
        if let Role::Named(name) = &self.role
            && !Role::is_name(name)
        {
            return Role::parse_at(&self.role.to_string(), &at.key("role")).map(drop);
        }
        let parts = at.key("parts");
        self.parts.iter().enumerate().try_for_each(|(place, part)| check(part, &parts.index(place)))
    }
}

/// Holds a part that was sent to the rules, and writes its URL in the standard form.
pub(super) fn part(
    mut part: MessagePart,
    json: &str,
    at: &Path<'_>,
) -> Result<MessagePart, Violation> {
    let is_typed = || scan::member(json, "content_type").is_some_and(|it| it.value != "null");
    if at.is_strict() && !is_typed() {
        let message = "is missing; every part has a MIME type";
        return Err(at.key("content_type").violation(message));
    }
    check_shape(&part, at)?;
    if let Some(url) = part.content_url.take() {
        part.content_url = Some(any_url(url, &at.key("content_url"))?);
    }
    Ok(part)
}

fn check(part: &MessagePart, at: &Path<'_>) -> Result<(), Violation> {
    check_shape(part, at)?;
    if let Some(url) = &part.content_url {
        any_url(url.clone(), &at.key("content_url"))?;
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
    if !at.is_strict() {
        return Ok(());
    }
    if part.content.is_none() && part.content_url.is_none() {
        let what = if part.name.is_some() { "; an artifact is a part too" } else { "" };
        return Err(at.violation(format!("must have one of content and content_url{what}")));
    }
    content_type(&part.content_type, &at.key("content_type"))?;
    match &part.content {
        Some(content) if part.content_encoding == ContentEncoding::Base64 => {
            base64(content, &at.key("content"))
        }
        _ => Ok(()),
    }
}

fn content_type(text: &str, at: &Path<'_>) -> Result<(), Violation> {
    let known = text.parse::<Mime>().is_ok_and(|mime| {
        mime.type_() != mime::STAR
            && mime.subtype() != mime::STAR
            && !mime.subtype().as_str().is_empty()
    });
    if known {
        return Ok(());
    }
    Err(at.violation(format!("must be a MIME type like \"text/plain\", not {}", quoted(text))))
}

/// Decodes without keeping the bytes.
fn base64(content: &str, at: &Path<'_>) -> Result<(), Violation> {
    let mut bytes = DecoderReader::new(content.as_bytes(), &STANDARD);
    io::copy(&mut bytes, &mut io::sink()).map(drop).map_err(|error| {
        at.violation(format!(
            "must be base64 with the standard alphabet and padding, because content_encoding is \"base64\": {error}"
        ))
    })
}

/// An absolute URL, in the standard form; as it came where a peer's is none.
fn any_url(text: String, at: &Path<'_>) -> Result<String, Violation> {
    match parse_url(&text, at) {
        Some(url) => Ok(url.into()),
        None if at.is_lenient() => Ok(text),
        None => Err(at.violation(format!("must be a valid absolute URL, not {}", quoted(&text)))),
    }
}

/// An absolute http or https URL, in the standard form.
pub(super) fn http_url(text: &str, at: &Path<'_>) -> Result<String, Violation> {
    match parse_url(text, at) {
        Some(url) if matches!(url.scheme(), "http" | "https") => Ok(url.into()),
        _ => Err(at.violation(format!(
            "must be a valid absolute http or https URL, not {}",
            quoted(text)
        ))),
    }
}

/// The strict rules take no URL that its parser had to put right.
fn parse_url(text: &str, at: &Path<'_>) -> Option<Url> {
    let wrong = Cell::new(false);
    let note = |violation| {
        wrong.set(wrong.get() || !matches!(violation, SyntaxViolation::EmbeddedCredentials));
    };
    let url = Url::options().syntax_violation_callback(Some(&note)).parse(text).ok()?;
    (!(at.is_strict() && wrong.get())).then_some(url)
}
