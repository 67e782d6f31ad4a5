use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, Error, Visitor};

/// Returns the text of a JSON string; `None` for any other JSON. Borrows the text if it has no escapes.
/// An unpaired surrogate becomes U+FFFD, because text cannot contain it.
pub fn decode(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    let is_plain = match inner.len() {
        // For a short name, a search that is made for long strings costs more than checking each byte.
        0..=16 => !inner.bytes().any(|byte| byte == b'\\'),
        _ => memchr::memchr(b'\\', inner.as_bytes()).is_none(),
    };
    if is_plain {
        return Some(Cow::Borrowed(inner));
    }
    let mut from = serde_json::Deserializer::from_str(json);
    (&mut from).deserialize_bytes(Bytes).ok().map(Cow::Owned)
}

/// Reads a string's bytes. Unpaired surrogates are encoded like any other code point.
struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<String, E> {
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => without_halves(bytes),
        })
    }
}

/// Replaces unpaired surrogates. Each is encoded in three bytes: the first is 0xED and the second at least 0xA0.
fn without_halves(bytes: &[u8]) -> String {
    let mut whole = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        rest = match rest {
            [0xed, 0xa0..=0xbf, _, tail @ ..] => {
                whole.extend_from_slice("\u{fffd}".as_bytes());
                tail
            }
            _ => {
                whole.push(*first);
                tail
            }
        };
    }
    String::from_utf8_lossy(&whole).into_owned()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn strings_are_decoded_and_halves_of_pairs_replaced() {
        let text = |json| decode(json).unwrap();
        assert_eq!(text(r#""""#), "");
        assert_eq!(text(r#""ä""#), "ä");
        assert_eq!(text(r#""a\"\\\nb\u00e4""#), "a\"\\\nbä");
        assert_eq!(text(r#""\ud83d\ude00""#), "😀");
        assert_eq!(text(r#""a\ud800""#), "a\u{fffd}");
        assert_eq!(text(r#""\ude00é\ud800x""#), "\u{fffd}é\u{fffd}x");
        for other in ["", "\"", "1", "null", "{}", "[1]", r#""\""#, r#""\x""#] {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}
