//! Decodes JSON into derived types as a stream.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_path_to_error::Segment;

use super::Violation;
use super::wording::plain;

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Violation> {
    // A derived reader of a structure would also accept an array of its members.
    if bytes.trim_ascii_start().starts_with(b"[") {
        decode_any::<IgnoredAny>(bytes)?;
        return Err(Violation::new("", "must be an object, not an array"));
    }
    decode_any(bytes)
}

pub fn decode_list<T: DeserializeOwned>(bytes: &[u8]) -> Result<Vec<T>, Violation> {
    decode_any(bytes)
}

/// Decodes like [`decode`]. An empty text counts as `{}`.
pub fn decode_or_empty<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Violation> {
    decode(if bytes.trim_ascii().is_empty() { b"{}" } else { bytes })
}

fn decode_any<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Violation> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut from)
        .map_err(|error| violation(error.inner(), pointer(error.path()), bytes))?;
    from.end().map_err(|error| violation(&error, String::new(), bytes))?;
    match lone_surrogate(bytes) {
        None => Ok(value),
        Some(at) => Err(Violation::malformed(format_args!(
            "half of a surrogate pair stands alone at byte {at}"
        ))),
    }
}

fn violation(error: &serde_json::Error, path: String, bytes: &[u8]) -> Violation {
    // Serde reports a number in the place of a word as malformed JSON, but the JSON is well formed.
    let is_malformed =
        error.classify() != Category::Data && serde_json::from_slice::<IgnoredAny>(bytes).is_err();
    if is_malformed {
        return Violation::malformed(error);
    }
    let text = error.to_string();
    // The line and column help only if the text is malformed.
    let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
    Violation::new(path, plain(message))
}

fn pointer(path: &serde_path_to_error::Path) -> String {
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

/// Returns the offset of an unpaired escaped surrogate. Such text is not valid Unicode, and readers of a carried member would fail on it.
pub(super) fn lone_surrogate(bytes: &[u8]) -> Option<usize> {
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

/// Reads a member that has a default. `null` counts as absent.
pub(crate) fn or_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// Reads an object. A derived reader of a structure would also accept an array of its members.
pub(crate) fn object_only<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_any(ObjectVisitor(PhantomData))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}
