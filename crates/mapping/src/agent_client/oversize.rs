use std::sync::Arc;

use trilogue_domain::event::{MessageEvent, Original, StateEvent, ToolEvent};
use trilogue_domain::{Body, Code, Error, Json, limits};

/// The longest text or value in one of the smaller events, in bytes. The rest of the event is far shorter.
const MAX_PIECE_BYTES: usize = limits::MAX_EVENT_BYTES / 2;

/// The kind of the event that replaces an update that is too large for the log.
pub(super) const UPDATE_TOO_LARGE: &str = "update_too_large";
/// The kind of the event that replaces a line that was too long.
pub(super) const LINE_TOO_LONG: &str = "line_too_long";

/// Whether the log refused an event only because of its size.
pub fn is_about_size(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::EventTooLarge | Code::BlobTooLarge | Code::TooManyParts | Code::JsonTooDeep
    )
}

/// Returns the update without its original, in several events if necessary. The content of a part may be stored as a blob. Of a
/// tool call, its beginning and its end are kept.
pub fn split_oversize(body: Body, original: Option<&Original>) -> Vec<Body> {
    match body {
        Body::Message(MessageEvent::Delta { message, text }) => pieces(&text)
            .map(|text| Body::Message(MessageEvent::Delta { message: message.clone(), text }))
            .collect(),
        Body::Message(MessageEvent::Thought { message, text }) => {
            let piece = |text| MessageEvent::Thought { message: message.clone(), text };
            pieces(&text).map(|text| Body::Message(piece(text))).collect()
        }
        Body::Message(MessageEvent::Part { .. }) if original.is_some() => vec![body],
        Body::Tool(ToolEvent::Started { call, tool, mut title, input, message }) => {
            title.truncate(title.floor_char_boundary(MAX_PIECE_BYTES));
            let input = input.filter(fits);
            vec![Body::Tool(ToolEvent::Started { call, tool, title, input, message })]
        }
        Body::Tool(ToolEvent::Ended { call, status, output }) => {
            let output = output.filter(fits);
            vec![Body::Tool(ToolEvent::Ended { call, status, output })]
        }
        _ => vec![oversize_notice(original)],
    }
}

/// Returns the event that replaces an update without a smaller form.
pub fn oversize_notice(original: Option<&Original>) -> Body {
    let bytes = original.map_or(0, |original| original.bytes.len());
    let data = Json::from_value(&serde_json::json!({ "bytes": bytes }));
    Body::State(StateEvent::Custom { kind: UPDATE_TOO_LARGE.to_owned(), data })
}

/// Returns the event that replaces a line that was longer than `limit` bytes.
pub fn line_too_long(limit: usize, method: Option<&str>) -> Body {
    let mut data = serde_json::json!({ "limit": limit });
    if let Some(method) = method {
        data["method"] = method.into();
    }
    let data = Json::from_value(&data);
    Body::State(StateEvent::Custom { kind: LINE_TOO_LONG.to_owned(), data })
}

fn fits(value: &Json) -> bool {
    value.as_bytes().len() <= MAX_PIECE_BYTES
}

fn pieces(text: &str) -> impl Iterator<Item = Arc<str>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, more) = rest.split_at(rest.floor_char_boundary(MAX_PIECE_BYTES));
        rest = more;
        Some(Arc::from(piece))
    })
}

#[cfg(test)]
mod tests;
