//! Halves of characters at the ends of a chunk's text, as agents send them that cut their text by UTF-16 units or by bytes.

use super::splice;

/// The length of an escaped UTF-16 unit, such as `\ud83d`, in bytes.
pub const ESCAPE_BYTES: usize = 6;
const TEXT: [&str; 4] = ["params", "update", "content", "text"];

/// The bytes at the ends of a chunk's text that are not UTF-8. If there is nothing else, both have all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokenEdges {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
}

/// Returns the text in a chunk of a `session/update`, as JSON without its quotes. `None` if the update has no text.
pub fn chunk_text(params: &str) -> Option<&str> {
    let content = splice::get(params, &["update", "content"])?;
    if splice::get_text(content, &["type"])? != "text" {
        return None;
    }
    splice::get(content, &["text"])?.strip_prefix('"')?.strip_suffix('"')
}

/// Sets the text in a chunk of a `session/update`. `text` is JSON without its quotes.
pub fn set_chunk_text(params: &str, text: &str) -> Option<String> {
    splice::set(params, &["update", "content", "text"], &format!("\"{text}\""))
}

/// Splits off an escaped high surrogate at the end of a text without its quotes.
pub fn split_high(text: &str) -> Option<(&str, &str)> {
    let (rest, escape) = text.split_at_checked(text.len().checked_sub(ESCAPE_BYTES)?)?;
    (matches!(unit(escape)?, 0xd800..=0xdbff) && !ends_in_escape(rest)).then_some((rest, escape))
}

/// Splits off an escaped low surrogate at the beginning of a text without its quotes.
pub fn split_low(text: &str) -> Option<(&str, &str)> {
    let (escape, rest) = text.split_at_checked(ESCAPE_BYTES)?;
    matches!(unit(escape)?, 0xdc00..=0xdfff).then_some((escape, rest))
}

/// Returns the broken bytes at the ends of the text of a chunk, in a line that is not UTF-8.
pub fn broken_edges(line: &[u8]) -> BrokenEdges {
    // Each broken byte becomes the escape of a low surrogate that contains it, so that the line can be read as JSON.
    let mut json = String::with_capacity(line.len() + 16);
    for chunk in line.utf8_chunks() {
        json.push_str(chunk.valid());
        for byte in chunk.invalid() {
            json.push_str(&format!("\\udc{byte:02x}"));
        }
    }
    let text = splice::get(&json, &TEXT).and_then(|it| it.strip_prefix('"')?.strip_suffix('"'));
    let Some(mut text) = text else { return BrokenEdges::default() };
    let mut edges = BrokenEdges::default();
    while let Some((byte, rest)) = text.split_at_checked(ESCAPE_BYTES).and_then(broken_byte) {
        edges.head.push(byte);
        text = rest;
    }
    if text.is_empty() {
        edges.tail.clone_from(&edges.head);
    }
    let last = |text: &str| text.len().checked_sub(ESCAPE_BYTES);
    while let Some((rest, escape)) = last(text).and_then(|at| text.split_at_checked(at))
        && let Some((byte, _)) = broken_byte((escape, ""))
        && !ends_in_escape(rest)
    {
        edges.tail.insert(0, byte);
        text = rest;
    }
    edges
}

/// Returns the broken byte that an escape contains, with what follows.
fn broken_byte<'a>((escape, rest): (&str, &'a str)) -> Option<(u8, &'a str)> {
    let byte = unit(escape)?.checked_sub(0xdc00)?;
    u8::try_from(byte).ok().filter(|byte| *byte >= 0x80).map(|byte| (byte, rest))
}

fn unit(escape: &str) -> Option<u16> {
    u16::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
}

/// Whether a text ends in a backslash that escapes what follows.
fn ends_in_escape(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_at_the_ends_are_split_off() {
        assert_eq!(split_high(r"a\ud83d"), Some(("a", r"\ud83d")));
        assert_eq!(split_high(r"\\\uDBFF"), Some((r"\\", r"\uDBFF")));
        assert_eq!(split_low(r"\ude00b"), Some((r"\ude00", "b")));
        for none in ["", "a", r"\\ud83d", r"\ude00", r"\ud83d\ude00", "ääää", r"\u+83d"] {
            assert_eq!(split_high(none), None, "{none}");
        }
        for none in ["", r"\ud83d", "dc00", "€€€€", r"x\ude00"] {
            assert_eq!(split_low(none), None, "{none}");
        }
    }

    #[test]
    fn broken_bytes_at_the_ends_are_found() {
        let line = |text: &[u8]| {
            [br#"{"params":{"update":{"content":{"type":"text","text":""#, text, br#""}}}}"#]
                .concat()
        };
        let edges = |text: &[u8]| {
            let BrokenEdges { head, tail } = broken_edges(&line(text));
            (head, tail)
        };
        assert_eq!(edges(b"ok \xf0\x9f"), (vec![], vec![0xf0, 0x9f]));
        assert_eq!(edges(b"\x98\x80 ok"), (vec![0x98, 0x80], vec![]));
        assert_eq!(edges(b"\x98 \xe4"), (vec![0x98], vec![0xe4]));
        assert_eq!(edges(b"\x98"), (vec![0x98], vec![0x98]));
        assert_eq!(edges(br"\\udc80"), (vec![], vec![]));
        assert_eq!(broken_edges(b"\xff{\"params\":1}"), BrokenEdges::default());
    }
}
