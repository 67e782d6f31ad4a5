//! An agent's messages in logged form: bodies with their originals.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use trilogue_domain::event::{Original, StateEvent, TURN_RESULT, ToolEvent};
use trilogue_domain::{Body, Json};
use trilogue_wire::agent_client::splice::{self, get};

use super::original::{
    CONTENT_VERSION, END_VERSION, NOTIFICATION, PART, RESULT, ToolCallFields, UPDATE, VERSION,
    body_of_update,
};

static UPDATE_DIALECT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(UPDATE));
static PART_DIALECT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(PART));

/// Returns the original of an update whose session id was cut out.
pub fn update_original(params: String) -> Original {
    original(Arc::clone(&UPDATE_DIALECT), params)
}

/// Returns an update in logged form. It is one event, but for two kinds of tool calls: an update that begins a call which has ended is its beginning and its end, and large media of such an update, or of one that ends a call, are an event of their own, so that the log keeps them as blobs.
pub fn logged_update(params: String) -> Vec<(Body, Original)> {
    let whole = body_of_update(&params);
    let Body::Tool(event) = &whole else { return vec![(whole, update_original(params))] };
    let call = get(&params, &["update"]).map(ToolCallFields::of).unwrap_or_default();
    let begins = matches!(event, ToolEvent::Started { .. });
    let (ends, is_large) = (call.end().is_some(), call.has_large_media());
    if !(begins && ends || is_large && (begins || ends)) {
        return vec![(whole, update_original(params))];
    }
    let beginning = begins.then(|| logged_part(call.beginning()));
    let ending = (ends && is_large).then(|| logged_part(call.ending()));
    let (body, version) = match is_large {
        true => (call.content_event(), CONTENT_VERSION),
        false => (call.end_event(), END_VERSION),
    };
    let original = Original { version, ..update_original(params) };
    let main = (body.unwrap_or(Body::Opaque), original);
    beginning.into_iter().chain([main]).chain(ending).collect()
}

fn logged_part(params: String) -> (Body, Original) {
    (body_of_update(&params), original(Arc::clone(&PART_DIALECT), params))
}

/// Returns any other notification in logged form. No other protocol can show it.
pub fn logged_notification(method: &str, params: &str) -> (Body, Original) {
    let params = match splice::cut_session(params) {
        Some((cut, _)) => Cow::Owned(cut),
        None => Cow::Borrowed(params),
    };
    let method = serde_json::Value::from(method);
    let object = format!("{{\"method\":{method},\"params\":{params}}}");
    (Body::Opaque, original(Arc::from(NOTIFICATION), object))
}

/// Returns the result of a prompt in logged form; `None` if it is JSON that the log cannot keep.
pub fn logged_result(result: &Bytes) -> Option<(Body, Original)> {
    let data = Json::parse_mended(result.clone()).ok()?;
    let body = Body::State(StateEvent::Custom { kind: TURN_RESULT.to_owned(), data });
    let dialect = Arc::from(RESULT);
    Some((body, Original { dialect, version: VERSION, bytes: result.clone() }))
}

fn original(dialect: Arc<str>, text: String) -> Original {
    Original { dialect, version: VERSION, bytes: Bytes::from(text) }
}
