//! Input of a hosted agent that is not a message, or that had to be changed to be read, in logged form.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use serde_json::json;
use trilogue_domain::event::{Original, StateEvent};
use trilogue_domain::{Body, Json};

use super::original::{LINE, VERSION};
use super::oversize::{LINE_TOO_LONG, UPDATE_TOO_LARGE};

/// The most bytes of an ignored line that its event shows.
pub const MAX_IGNORED_BYTES: usize = 4 * 1024;
/// The kind of the event for input that is not a message.
const IGNORED_LINE: &str = "ignored_line";
/// The kind of the event for a line with bytes that are not UTF-8. Its original has the line.
const REPLACED_BYTES: &str = "replaced_bytes";

static LINE_DIALECT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(LINE));

/// Returns the event for input that is not a message. `shown` is its beginning, and `length` the bytes that it has.
pub fn ignored_line(reason: &str, shown: &[u8], length: usize) -> Body {
    let text = String::from_utf8_lossy(shown);
    let mut data = json!({ "reason": reason, "bytes": length });
    if !text.is_empty() {
        data["text"] = text.into();
    }
    custom(IGNORED_LINE, &data)
}

/// Returns the event for a line with bytes that are not UTF-8: the message of the line follows with U+FFFD in their places.
pub fn replaced_bytes(line: Bytes) -> (Body, Original) {
    let body = body_of_line(&line);
    (body, Original { dialect: Arc::clone(&LINE_DIALECT), version: VERSION, bytes: line })
}

/// Whether an event is about a line of an agent, although it has no original: about one that was not a message, or was too large.
pub fn is_about_line(body: &Body) -> bool {
    let Body::State(StateEvent::Custom { kind, .. }) = body else { return false };
    [IGNORED_LINE, LINE_TOO_LONG, UPDATE_TOO_LARGE].contains(&&**kind)
}

/// Returns the event of an original of the dialect [`LINE`].
pub(super) fn body_of_line(line: &[u8]) -> Body {
    custom(REPLACED_BYTES, &json!({ "bytes": line.len() }))
}

fn custom(kind: &str, data: &serde_json::Value) -> Body {
    Body::State(StateEvent::Custom { kind: kind.to_owned(), data: Json::from_value(data) })
}
