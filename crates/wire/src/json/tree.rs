//! Estimates the memory of parsed JSON before it is parsed.

use memchr::memchr2;

/// An object with members: the first node of a map, which has room for eleven members.
const OBJECT_BYTES: usize = 640;
/// An array with items: room for four.
const ARRAY_BYTES: usize = 128;
/// A member of an object. Nodes of a map are half full.
const MEMBER_BYTES: usize = 48;
/// A further item or member.
const ITEM_BYTES: usize = 32;
/// A string without its characters: the smallest allocation.
const STRING_BYTES: usize = 32;

/// The allowed memory of a tree, in multiples of the text.
pub const MAX_TREE_FACTOR: usize = 6;
/// The memory that the tree of any text may use, in bytes.
pub const DEFAULT_MAX_TREE_BYTES: usize = 16 * 1024 * 1024;

/// Estimates how many bytes JSON needs as a tree of values, in addition to its text. 28 MB of small objects become gigabytes.
/// For text that is not JSON, the result is an arbitrary number.
pub fn tree_bytes(json: &[u8]) -> usize {
    let mut bytes = 0;
    let mut rest = json.iter();
    while let Some(byte) = rest.next() {
        bytes += match byte {
            b',' => ITEM_BYTES,
            b':' => MEMBER_BYTES,
            b'{' if !begins_with(rest.as_slice(), b'}') => OBJECT_BYTES,
            b'[' if !begins_with(rest.as_slice(), b']') => ARRAY_BYTES,
            b'"' => {
                rest = behind_string(rest.as_slice()).iter();
                STRING_BYTES
            }
            _ => 0,
        };
    }
    bytes
}

/// Returns `true` if the tree of a text would need more than `max_tree_bytes` and more than a small multiple of the text.
pub fn is_too_complex(json: &[u8], max_tree_bytes: usize) -> bool {
    // No byte of the text needs more memory than an object.
    json.len() > max_tree_bytes / OBJECT_BYTES
        && tree_bytes(json) > max_tree_bytes.max(json.len().saturating_mul(MAX_TREE_FACTOR))
}

fn begins_with(json: &[u8], byte: u8) -> bool {
    json.iter().find(|it| !it.is_ascii_whitespace()) == Some(&byte)
}

/// Returns the text after a string. `json` begins after the string's first quote.
fn behind_string(mut json: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', json) {
        let is_end = json.get(at) == Some(&b'"');
        json = json.get(at + if is_end { 1 } else { 2 }..).unwrap_or_default();
        if is_end {
            return json;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_far_more_room_than_its_text_is_too_complex() {
        let most = 1024 * 1024;
        for piece in ["{}", "[]", "0", "\"\"", "{\"a\":1}", "[[[0]]]", "\"\\u0061\"", "true"] {
            let json = format!("[{}]", vec![piece; most].join(","));
            assert!(is_too_complex(json.as_bytes(), most), "{piece}");
            let json = format!("[{}]", vec![piece; 1_000].join(","));
            assert!(!is_too_complex(json.as_bytes(), most), "a few of {piece}");
        }
        let members: Vec<_> = (0..most).map(|number| format!("\"{number}\":0")).collect();
        assert!(is_too_complex(format!("{{{}}}", members.join(",")).as_bytes(), most));
    }

    #[test]
    fn long_strings_and_numbers_are_not() {
        let most = 1024 * 1024;
        let text = "[{,\\\"".repeat(most);
        for json in [
            format!("{{\"text\":\"{text}\"}}"),
            format!("[{}]", vec!["0.1234567890"; most].join(",")),
            format!(
                "[{}]",
                vec![format!("{{\"name\":\"{}\"}}", "x".repeat(200)); 10_000].join(",")
            ),
        ] {
            assert!(!is_too_complex(json.as_bytes(), most), "{:.30}", json);
        }
    }
}
