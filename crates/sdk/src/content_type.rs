//! Detects the content type of a file, from its name and its first bytes.

use std::path::Path;

pub use trilogue_domain::content::is_text_type as is_text;

/// The content type of text that has no known type.
pub const PLAIN_TEXT: &str = "text/plain";
/// The content type of bytes that have no known type.
pub const BYTES: &str = "application/octet-stream";

const BY_EXTENSION: &[(&str, &str)] = &[
    ("aac", "audio/aac"),
    ("aiff", "audio/aiff"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("heic", "image/heic"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/vnd.microsoft.icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("m4a", "audio/mp4"),
    ("markdown", "text/markdown"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
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
/// Returns the content type for this file name, or `None` if its extension is unknown.
#[must_use]
pub fn of_name(name: impl AsRef<Path>) -> Option<&'static str> {
    let extension = name.as_ref().extension()?.to_str()?.to_ascii_lowercase();
    BY_EXTENSION.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind)
}

/// Returns the content type of a file, from its name and its content.
///
/// The extension decides. If the extension names an image or audio type, and the first bytes show another type of the same kind, the first bytes decide. Without a known extension, content that reads as text is [`PLAIN_TEXT`]; otherwise the first bytes decide.
#[must_use]
pub fn of_file(name: impl AsRef<Path>, content: &[u8]) -> &'static str {
    match of_name(name) {
        Some(kind) => match sniff_media_type(content) {
            Some(shown) if media(kind).is_some() && media(kind) == media(shown) => shown,
            _ => kind,
        },
        None if reads_as_text(content) => PLAIN_TEXT,
        None => sniff_media_type(content).unwrap_or(BYTES),
    }
}

/// Returns `image` or `audio` for such a content type, and `None` for every other type and for text (such as SVG).
#[must_use]
pub fn media(content_type: &str) -> Option<&'static str> {
    let medium = ["image", "audio"]
        .into_iter()
        .find(|medium| content_type.strip_prefix(medium).is_some_and(|rest| rest.starts_with('/')));
    medium.filter(|_| !is_text(content_type))
}

fn sniff_media_type(content: &[u8]) -> Option<&'static str> {
    Some(match infer::get(content)?.mime_type() {
        "audio/x-wav" => "audio/wav",
        "audio/x-flac" => "audio/flac",
        "audio/x-aiff" => "audio/aiff",
        "audio/m4a" => "audio/mp4",
        kind => kind,
    })
}

/// Returns `true` if the content is UTF-8 without control characters other than white space, backspace and escape.
fn reads_as_text(content: &[u8]) -> bool {
    // Terminal sequences, such as colours, also occur in text for people.
    let is_white = |c: char| matches!(c, '\t' | '\n' | '\r' | '\x08' | '\x0c' | '\x1b');
    let text = std::str::from_utf8(content);
    text.is_ok_and(|text| !text.chars().any(|c| c.is_control() && !is_white(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sound and an image whose bytes are all valid UTF-8.
    const WAV: &[u8] = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0";
    const GIF: &[u8] = b"GIF89a\x01\0\x01\0\0\0\0;";

    #[test]
    fn what_a_file_is_does_not_depend_on_which_bytes_it_happens_to_have() {
        for (name, content, kind) in [
            ("a.wav", WAV, "audio/wav"),
            ("a.GIF", GIF, "image/gif"),
            ("a.png", GIF, "image/gif"),
            ("a.png", b"not even", "image/png"),
            ("a", WAV, "audio/wav"),
            ("a.unheard-of", GIF, "image/gif"),
            ("note.txt", b"GIF89a is a format", "text/plain"),
            ("BMW", b"BM and W", "text/plain"),
            ("a.svg", b"<svg/>", "image/svg+xml"),
            ("a.jpg", b"\xff\xd8\xff\xe0", "image/jpeg"),
            ("a.mp3", b"ID3\x03", "audio/mpeg"),
            ("a.flac", b"fLaC\0", "audio/flac"),
            ("core", b"\xff\0", BYTES),
            ("run.log", b"\x1b[1mdone\x1b[0m\n", PLAIN_TEXT),
            ("empty", b"", PLAIN_TEXT),
        ] {
            assert_eq!(of_file(name, content), kind, "{name}");
        }
    }

    #[test]
    fn text_is_told_from_media() {
        for kind in ["text/x-rust", "application/json", "image/svg+xml", "application/a+json"] {
            assert!(is_text(kind) && media(kind).is_none(), "{kind}");
        }
        for (kind, medium) in [("image/png", "image"), ("audio/wav", "audio")] {
            assert!(!is_text(kind));
            assert_eq!(media(kind), Some(medium));
        }
        assert!(!is_text("application/pdf") && media("video/mp4").is_none());
        let mut sorted = BY_EXTENSION.to_vec();
        sorted.sort_unstable();
        sorted.dedup_by_key(|(extension, _)| *extension);
        assert_eq!(sorted, BY_EXTENSION);
    }
}
