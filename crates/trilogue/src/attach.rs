//! Turns files and addresses into parts of a message.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trilogue_domain::limits;
use trilogue_wire::native::{ContentEncoding, InputPart};

use crate::exit::{Result, Stop};

/// Content types by file name extension; what is not named here is `text/plain` or `application/octet-stream`.
const CONTENT_TYPES: &[(&str, &str)] = &[
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("zip", "application/zip"),
];

/// The part for `--attach`: an address is passed on, a file is read; text goes as it is, anything else as base64.
///
/// # Errors
/// When the file cannot be read or is too large.
pub(crate) fn part(source: &str) -> Result<InputPart> {
    let content_type = content_type(source);
    if source.starts_with("https://") || source.starts_with("http://") {
        return Ok(InputPart {
            content_type: Some(content_type.unwrap_or("application/octet-stream").to_owned()),
            content_url: Some(source.to_owned()),
            ..InputPart::default()
        });
    }
    let path = Path::new(source);
    let unreadable =
        |error: std::io::Error| Stop::usage(format!("{source} cannot be read: {error}"));
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > limits::MAX_BLOB_BYTES as u64 {
        return Err(Stop::usage(format!(
            "{source} has {length} bytes; an attachment has at most {}",
            limits::MAX_BLOB_BYTES
        ))
        .hint("give its address instead, if it has one"));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(match String::from_utf8(bytes) {
        Ok(text) => InputPart {
            content_type: Some(content_type.unwrap_or("text/plain").to_owned()),
            content: Some(text),
            name,
            ..InputPart::default()
        },
        Err(error) => InputPart {
            content_type: Some(content_type.unwrap_or("application/octet-stream").to_owned()),
            content: Some(STANDARD.encode(error.as_bytes())),
            content_encoding: Some(ContentEncoding::Base64),
            name,
            ..InputPart::default()
        },
    })
}

fn content_type(source: &str) -> Option<&'static str> {
    let path = source.split(['?', '#']).next().unwrap_or_default();
    let extension = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
    CONTENT_TYPES.iter().find(|(name, _)| *name == extension).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_inline_bytes_are_base64_and_addresses_are_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            part(path.to_str().unwrap()).unwrap()
        };
        let text = file("note.md", "grüße".as_bytes());
        assert_eq!(text.content.as_deref(), Some("grüße"));
        assert_eq!(text.content_type.as_deref(), Some("text/markdown"));
        assert_eq!(text.name.as_deref(), Some("note.md"));
        let bytes = file("x.PNG", &[0xff, 0xd8]);
        assert_eq!(bytes.content.as_deref(), Some("/9g="));
        assert_eq!(bytes.content_encoding, Some(ContentEncoding::Base64));
        assert_eq!(bytes.content_type.as_deref(), Some("image/png"));
        let address = part("https://example.com/a.pdf?x=1").unwrap();
        assert_eq!(address.content_url.as_deref(), Some("https://example.com/a.pdf?x=1"));
        assert_eq!(address.content_type.as_deref(), Some("application/pdf"));
        assert_eq!(part("/nonexistent/file").unwrap_err().exit, crate::exit::Exit::Usage);
    }
}
