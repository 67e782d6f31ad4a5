use serde::Deserialize;
use serde_json::error::Category;

use serde_path_to_error::Segment;

use super::violation::{MAX_QUOTED_BYTES, joined, quoted};
use super::{At, Violation};

/// Says where in a text an error lies, by reading it again: the first reading does not keep track of places.
pub(super) fn locate<T: for<'de> Deserialize<'de>>(
    bytes: &[u8],
    error: &serde_json::Error,
    at: &At<'_>,
) -> Violation {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return at.violation("must be a JSON object, but it is empty");
    }
    if error.classify() != Category::Data {
        return at.violation(format!("is not valid JSON: {error}"));
    }
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut text) else {
        return at.violation(sentence(error));
    };
    let path = error.path().iter().fold(at.path(), |path, step| match step {
        Segment::Seq { index } => format!("{path}[{index}]"),
        Segment::Map { key } if is_word(key) => joined(&path, key),
        Segment::Map { key } => format!("{path}[{}]", quoted(key)),
        Segment::Enum { .. } | Segment::Unknown => path,
    });
    Violation { path, message: sentence(error.inner()) }
}

/// Whether a member's name can stand in a path as it is. What a sender made up may be of any length and hold anything.
fn is_word(key: &str) -> bool {
    (1..=MAX_QUOTED_BYTES).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The message without the position, which counts from the start of whatever was read.
fn sentence(error: &serde_json::Error) -> String {
    let mut message = error.to_string();
    if let Some(end) = message.rfind(" at line ") {
        message.truncate(end);
    }
    match message.strip_prefix("duplicate field ") {
        Some(field) => format!("has the member {} twice", field.replace('`', "\"")),
        None => message,
    }
}
