//! Rules for the values of fields, beyond their shape.

use std::cell::Cell;
use std::io;

use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use mime::Mime;
use url::{SyntaxViolation, Url};

use crate::encoded_bytes::decode_base64;
use crate::json::{Path, Violation, quoted};

/// The content type of a part without one.
pub(super) const DEFAULT_CONTENT_TYPE: &str = "text/plain";

pub(super) fn content_type(text: &str, at: &Path<'_>) -> Result<(), Violation> {
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

/// Checks base64: under the strict rules in the standard form only, otherwise also in the variants that other decoders accept.
pub(super) fn base64(content: &str, at: &Path<'_>) -> Result<(), Violation> {
    if !at.is_strict() {
        return match decode_base64(content) {
            Some(_) => Ok(()),
            None => Err(at.violation("must be base64, because content_encoding is \"base64\"")),
        };
    }
    let mut bytes = DecoderReader::new(content.as_bytes(), &STANDARD);
    io::copy(&mut bytes, &mut io::sink()).map(drop).map_err(|error| {
        at.violation(format!(
            "must be base64 with the standard alphabet and padding, because content_encoding is \"base64\": {error}"
        ))
    })
}

/// Returns an absolute URL in the standard form. A peer's invalid URL is kept unchanged.
pub(super) fn any_url(text: String, at: &Path<'_>) -> Result<String, Violation> {
    match parse_url(&text, at) {
        Some(url) => Ok(url.into()),
        None if at.is_lenient() => Ok(text),
        None => Err(at.violation(format!("must be a valid absolute URL, not {}", quoted(&text)))),
    }
}

/// Returns an absolute http or https URL in the standard form.
pub(super) fn http_url(text: &str, at: &Path<'_>) -> Result<String, Violation> {
    match parse_url(text, at) {
        Some(url) if matches!(url.scheme(), "http" | "https") => Ok(url.into()),
        _ => Err(at.violation(format!(
            "must be a valid absolute http or https URL, not {}",
            quoted(text)
        ))),
    }
}

/// Parses a URL. The strict rules refuse a URL that the parser had to correct.
fn parse_url(text: &str, at: &Path<'_>) -> Option<Url> {
    let wrong = Cell::new(false);
    let note = |violation| {
        wrong.set(wrong.get() || !matches!(violation, SyntaxViolation::EmbeddedCredentials));
    };
    let url = Url::options().syntax_violation_callback(Some(&note)).parse(text).ok()?;
    (!(at.is_strict() && wrong.get())).then_some(url)
}
