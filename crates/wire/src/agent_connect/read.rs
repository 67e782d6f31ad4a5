use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

use super::wording::plain;

/// Why text is not what was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{message}", Place(.path))]
pub struct Violation {
    /// Where: a JSON Pointer; empty for the whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// Whether the text is no JSON at all.
    pub is_malformed: bool,
}

struct Place<'a>(&'a str);

// === impl Violation ===

impl Violation {
    /// A violation at a JSON Pointer.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), is_malformed: false }
    }

    fn of(error: &serde_json::Error, path: String, bytes: &[u8]) -> Self {
        // A number where a word is expected counts as malformed for the reader, and is not.
        let is_malformed = error.classify() != Category::Data
            && serde_json::from_slice::<IgnoredAny>(bytes).is_err();
        let text = error.to_string();
        // A place in the text helps only where the text cannot be read.
        let message = match text.rsplit_once(" at line ") {
            Some((message, _)) if !is_malformed => plain(message),
            None if !is_malformed => plain(&text),
            _ => text,
        };
        Self { path: if is_malformed { String::new() } else { path }, message, is_malformed }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

/// Reads one object from JSON text.
///
/// # Errors
/// The first thing that does not fit.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Violation> {
    // The reader of a structure takes an array of its members too.
    if bytes.trim_ascii_start().starts_with(b"[") {
        read_any::<IgnoredAny>(bytes)?;
        return Err(Violation::new("", "must be an object, not an array"));
    }
    read_any(bytes)
}

/// Reads a list from JSON text.
///
/// # Errors
/// As [`read`].
pub fn read_list<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<T>, Violation> {
    read_any(bytes)
}

fn read_any<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Violation> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut from)
        .map_err(|error| Violation::of(error.inner(), pointer(error.path()), bytes))?;
    from.end().map_err(|error| Violation::of(&error, String::new(), bytes))?;
    match half_character(bytes) {
        None => Ok(value),
        Some(at) => Err(Violation {
            path: String::new(),
            message: format!("half of a surrogate pair stands alone at byte {at}"),
            is_malformed: true,
        }),
    }
}

/// Where JSON text escapes half of a character without its other half: such text is no text, and members that are carried as they were written would take it to where nobody can read it.
fn half_character(bytes: &[u8]) -> Option<usize> {
    let escaped = |at: usize| {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    while let Some(more) = bytes.get(at..)?.iter().position(|byte| *byte == b'\\') {
        at += more;
        at += match escaped(at) {
            Some(0xd800..=0xdbff) => match escaped(at + 6) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return Some(at),
            },
            Some(0xdc00..=0xdfff) => return Some(at),
            _ => 2,
        };
    }
    None
}

/// Reads one object from JSON text; no text at all is `{}`.
///
/// # Errors
/// As [`read`].
pub fn read_or_empty<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Violation> {
    read(if bytes.trim_ascii().is_empty() { b"{}" } else { bytes })
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        pointer.push('/');
        match segment {
            Segment::Seq { index } => pointer.push_str(&index.to_string()),
            Segment::Map { key } => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => pointer.push_str(variant),
            Segment::Unknown => {
                pointer.pop();
            }
        }
    }
    pointer
}
