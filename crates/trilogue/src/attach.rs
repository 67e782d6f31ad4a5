//! Turns files and addresses into parts of a message.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trilogue_domain::limits;
use trilogue_wire::native::{ContentEncoding, InputPart};
use url::Url;

use crate::exit::{Result, Stop};

/// Content types by file name extension; what is not named here is `text/plain` or `application/octet-stream`.
const CONTENT_TYPES: &[(&str, &str)] = &[
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("markdown", "text/markdown"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("rtf", "application/rtf"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("tsv", "text/tab-separated-values"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

/// The part for `--attach`: an address is passed on, a file is read and becomes an artifact of its name; text goes as it is, anything else as base64.
///
/// # Errors
/// When the file cannot be read or is too large.
pub(crate) fn part(source: &str) -> Result<InputPart> {
    if let Some(address) = address(source) {
        let content_type = content_type(address.path());
        return Ok(InputPart {
            content_type: Some(content_type.unwrap_or("application/octet-stream").to_owned()),
            content_url: Some(source.to_owned()),
            ..InputPart::default()
        });
    }
    let content_type = content_type(source);
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

/// What is an address on the web; anything else names a file.
fn address(source: &str) -> Option<Url> {
    let address = Url::parse(source).ok()?;
    matches!(address.scheme(), "http" | "https").then_some(address)
}

fn content_type(path: &str) -> Option<&'static str> {
    let extension = Path::new(path).extension()?.to_str()?.to_ascii_lowercase();
    CONTENT_TYPES.iter().find(|(name, _)| *name == extension).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part for a file of this name and content.
    fn file(name: &str, bytes: &[u8]) -> InputPart {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        part(path.to_str().unwrap()).unwrap()
    }

    #[test]
    fn text_is_inline_and_an_artifact_of_its_name() {
        let text = file("note.md", "grüße".as_bytes());
        assert_eq!(text.content.as_deref(), Some("grüße"));
        assert_eq!((text.content_encoding, text.content_url), (None, None));
        assert_eq!(text.content_type.as_deref(), Some("text/markdown"));
        assert_eq!(text.name.as_deref(), Some("note.md"));
        let empty = file("empty", b"");
        assert_eq!(empty.content.as_deref(), Some(""));
    }

    #[test]
    fn what_is_no_text_is_base64_of_its_bytes() {
        let bytes = file("x.PNG", &[0xff, 0xd8]);
        assert_eq!(bytes.content.as_deref(), Some("/9g="));
        assert_eq!(bytes.content_encoding, Some(ContentEncoding::Base64));
        assert_eq!(bytes.content_type.as_deref(), Some("image/png"));
        assert_eq!((bytes.name.as_deref(), bytes.content_url), (Some("x.PNG"), None));
    }

    #[test]
    fn an_address_is_passed_on_as_it_was_given() {
        for (source, kind) in [
            ("https://example.com/a.pdf?x=1.png", "application/pdf"),
            ("http://example.com/#a.md", "application/octet-stream"),
            ("HTTPS://EXAMPLE.com/b/C.JPG", "image/jpeg"),
            ("https://example.com", "application/octet-stream"),
            ("https://example.com/a.unheard-of", "application/octet-stream"),
        ] {
            let address = part(source).unwrap();
            assert_eq!(address.content_url.as_deref(), Some(source));
            assert_eq!(address.content_type.as_deref(), Some(kind), "{source}");
            assert_eq!((address.content, address.name), (None, None));
        }
    }

    #[test]
    fn content_types_are_guessed_from_the_name_and_else_from_the_content() {
        for (name, bytes, kind) in [
            ("a.csv", b"a,b".as_slice(), "text/csv"),
            ("a.b.json", b"{}", "application/json"),
            ("script.js", b"1", "text/javascript"),
            ("README", b"words", "text/plain"),
            ("notes?.txt", b"words", "text/plain"),
            ("core", b"\xff\x00", "application/octet-stream"),
            (".md", b"words", "text/plain"),
        ] {
            assert_eq!(file(name, bytes).content_type.as_deref(), Some(kind), "{name}");
        }
        let mut sorted = CONTENT_TYPES.to_vec();
        sorted.sort_unstable();
        sorted.dedup_by_key(|(extension, _)| *extension);
        assert_eq!(sorted, CONTENT_TYPES);
    }

    #[test]
    fn what_cannot_be_read_is_a_wrong_command_line() {
        for source in ["/nonexistent/file", "ftp://example.com/a", "file:///etc/hosts", "/"] {
            assert_eq!(part(source).unwrap_err().exit, crate::exit::Exit::Usage, "{source}");
        }
    }
}
