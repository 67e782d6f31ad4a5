//! Originals of events with large content, without that content.

use trilogue_domain::event::{Body, MessageEvent, ToolEvent};
use trilogue_domain::{Content, Part, limits};

/// Whether content of an event is stored as blobs.
pub(super) fn has_blobs(body: &Body) -> bool {
    let is_blob = |part: &Part| matches!(part.content, Content::Blob(_));
    match body {
        Body::Message(MessageEvent::Part { part, .. }) => is_blob(part),
        Body::Tool(ToolEvent::Updated { content, .. }) => content.iter().any(is_blob),
        _ => false,
    }
}

/// Returns JSON with empty strings in the place of those that are long enough to be blobs.
pub(super) fn without_long_strings(json: &str) -> String {
    let (mut short, mut rest) = (String::new(), json);
    while let Some((before, string)) = rest.split_once('"') {
        short.push_str(before);
        short.push('"');
        let end = string_end(string.as_bytes());
        let (text, after) = string.split_at_checked(end).unwrap_or((string, ""));
        if text.len() <= limits::INLINE_CONTENT_BYTES {
            short.push_str(text);
        }
        rest = after.strip_prefix('"').unwrap_or(after);
        if !after.is_empty() {
            short.push('"');
        }
    }
    short.push_str(rest);
    short
}

/// Returns the length of the string whose inside begins here.
fn string_end(inside: &[u8]) -> usize {
    let mut at = 0;
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
    while let Some(step) = inside.get(at..).and_then(|rest| rest.iter().position(is_end)) {
        at += step;
        if inside.get(at) == Some(&b'"') {
            return at;
        }
        at += 2;
    }
    inside.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_strings_are_emptied() {
        let long = "x".repeat(limits::INLINE_CONTENT_BYTES + 1);
        let json = |data: &str| format!(r#"{{"a":"\"\\","data":"{data}","b":[ 1, "" ]}}"#);
        assert_eq!(without_long_strings(&json(&long)), json(""));
        assert_eq!(without_long_strings(&json("\\\"x")), json("\\\"x"));
        for text in ["", "1", "\"", "\"\\", "{}"] {
            assert_eq!(without_long_strings(text), text);
        }
    }
}
