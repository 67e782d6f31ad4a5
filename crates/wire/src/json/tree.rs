//! How much memory JSON takes as a tree, before anything reads it.

use memchr::memchr2;

/// An object with members: the room of a map's first node, for eleven members.
const OBJECT_BYTES: usize = 640;
/// An array with items: room for four.
const ARRAY_BYTES: usize = 128;
/// A member, as nodes of a map are filled by half.
const MEMBER_BYTES: usize = 48;
/// A further item or member.
const ITEM_BYTES: usize = 32;
/// A string beside its characters: the least that an allocator gives.
const STRING_BYTES: usize = 32;

/// What a tree may take beside the text, in multiples of the text.
pub const MAX_TREE_FACTOR: usize = 6;
/// What the tree of any text may take, in bytes.
pub const DEFAULT_MAX_TREE_BYTES: usize = 16 * 1024 * 1024;

/// About how many bytes JSON takes as a tree of values, beside its text: 28 MB of small objects become gigabytes.
/// Text that is not JSON gives some number.
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

/// Whether a tree may be made of a text: it takes at most `max_tree_bytes`, or a small multiple of the text.
pub fn is_too_complex(json: &[u8], max_tree_bytes: usize) -> bool {
    // No byte takes more than an object does.
    json.len() > max_tree_bytes / OBJECT_BYTES
        && tree_bytes(json) > max_tree_bytes.max(json.len().saturating_mul(MAX_TREE_FACTOR))
}

fn begins_with(json: &[u8], byte: u8) -> bool {
    json.iter().find(|it| !it.is_ascii_whitespace()) == Some(&byte)
}

/// What follows a string, from behind its first quote.
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
