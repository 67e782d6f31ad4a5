//! Messages in lines that are not exactly one message: broken UTF-8, text around JSON, several messages.

use std::ops::Range;

use bytes::Bytes;
use memchr::memchr_iter;
use serde_json::value::RawValue;

use super::envelope::Envelope;

/// The most messages that are taken from one line. The rest of the line counts as noise.
pub const MAX_LINE_MESSAGES: usize = 1_024;
/// How many braces in the noise of one line are tried as the beginning of a message. Each try may read the rest of the line.
const MAX_TRIES: usize = 32;

/// What a line contains that is not one message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveredLine {
    /// The messages and the text around them, in order.
    pub pieces: Vec<LinePiece>,
    /// Whether bytes that are not UTF-8 were replaced.
    pub is_repaired: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinePiece {
    Message(Bytes),
    /// Text that is not a message, and not blank.
    Noise(Bytes),
}

/// Finds the messages of a line that [`super::parse`] refuses, or that does not begin like a message. Bytes that are not UTF-8 become
/// U+FFFD. `None` if the line contains no message.
pub fn recover(line: &Bytes) -> Option<RecoveredLine> {
    let repaired;
    let (line, is_repaired) = match std::str::from_utf8(line) {
        Ok(_) => (line, false),
        Err(_) => {
            repaired = Bytes::from(String::from_utf8_lossy(line).into_owned());
            (&repaired, true)
        }
    };
    let pieces = pieces(line);
    let has_message = pieces.iter().any(|piece| matches!(piece, LinePiece::Message(_)));
    has_message.then_some(RecoveredLine { pieces, is_repaired })
}

fn pieces(line: &Bytes) -> Vec<LinePiece> {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let (mut pieces, mut messages, mut tries) = (Vec::new(), 0, 0);
    // Where the noise began that was not added yet, and where the next message may begin.
    let (mut from, mut next) = (0, 0);
    for at in memchr_iter(b'{', line) {
        if at < next {
            continue;
        }
        if tries >= MAX_TRIES || messages >= MAX_LINE_MESSAGES {
            break;
        }
        match object_at(text, at) {
            Some(end) if is_message(text.get(at..end).unwrap_or_default()) => {
                push_noise(line, from..at, &mut pieces);
                pieces.push(LinePiece::Message(line.slice(at..end)));
                (from, next, messages) = (end, end, messages + 1);
            }
            // A message inside of another object was not sent as one.
            Some(end) => (next, tries) = (end, tries + 1),
            None => tries += 1,
        }
    }
    push_noise(line, from..line.len(), &mut pieces);
    pieces
}

fn push_noise(line: &Bytes, range: Range<usize>, pieces: &mut Vec<LinePiece>) {
    let noise = line.slice(range);
    if !noise.trim_ascii().is_empty() {
        pieces.push(LinePiece::Noise(noise));
    }
}

/// Returns the end of the JSON object that begins here.
fn object_at(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    // Most braces in other text are followed by something else.
    if !rest.get(1..)?.trim_ascii_start().starts_with('"') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
    let object = values.next()?.ok()?;
    Some(at + object.get().len())
}

/// Whether an object has the form of a message. Other programs log objects too.
fn is_message(object: &str) -> bool {
    let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(object) else { return false };
    let is_response = envelope.result.is_some() || envelope.error.is_some();
    match envelope.jsonrpc {
        Some(version) => {
            version.get() == r#""2.0""# && (envelope.method.is_some() || envelope.id.is_some())
        }
        None => envelope.id.is_some() && is_response && envelope.method.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = r#"{"jsonrpc":"2.0","method":"a"}"#;
    const B: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"text":"{\"x\":1}"}}"#;

    fn of(line: impl AsRef<[u8]>) -> Option<(Vec<String>, bool)> {
        let recovered = recover(&Bytes::copy_from_slice(line.as_ref()))?;
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let pieces = recovered.pieces.iter().map(|piece| match piece {
            LinePiece::Message(message) => format!("m {}", text(message)),
            LinePiece::Noise(noise) => format!("n {}", text(noise)),
        });
        Some((pieces.collect(), recovered.is_repaired))
    }

    #[test]
    fn messages_are_found_between_other_text() {
        let (a, b) = (format!("m {A}"), format!("m {B}"));
        let noise = |text: &str| format!("n {text}");
        for (line, pieces) in [
            (format!("{A}{B}"), vec![a.clone(), b.clone()]),
            (format!("{A} \t{B}\r"), vec![a.clone(), b.clone()]),
            (format!("\x1b[0m{A}"), vec![noise("\x1b[0m"), a.clone()]),
            (
                format!("\x1b]0;title\x07{A}\x1b[K"),
                vec![noise("\x1b]0;title\x07"), a.clone(), noise("\x1b[K")],
            ),
            (
                format!("{{not json}} {{\"x\":1}}{B}"),
                vec![noise("{not json} {\"x\":1}"), b.clone()],
            ),
            (format!("{A}, {B}]"), vec![a.clone(), noise(", "), b, noise("]")]),
            (format!("{A}{{\"cut"), vec![a, noise("{\"cut")]),
        ] {
            assert_eq!(of(&line), Some((pieces, false)), "{line}");
        }
        for line in [
            "",
            "text",
            "{}",
            &format!("{{\"log\":{A}}}"),
            r#"{"id":1,"level":"info"}"#,
            r#"{"x":1}{"y":2}"#,
            "{{{{",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn broken_text_is_replaced_in_its_message_only() {
        let line = b"{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{\"x\":\"cut \xe4\xbd\"}}";
        let expected =
            "m {\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{\"x\":\"cut \u{fffd}\"}}";
        assert_eq!(of(line), Some((vec![expected.to_owned()], true)));
        assert_eq!(of(b"\xff\xfe"), None);
    }

    #[test]
    fn the_tries_on_one_line_are_bounded() {
        let line = format!("{}{A}", "{\"a\":".repeat(MAX_TRIES));
        assert_eq!(of(&line), None);
        let line = A.repeat(MAX_LINE_MESSAGES + 1);
        assert_eq!(of(line).unwrap().0.len(), MAX_LINE_MESSAGES + 1);
    }
}
