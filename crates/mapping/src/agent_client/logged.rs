//! An agent's messages in logged form: bodies with their originals.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use trilogue_domain::event::{Original, StateEvent, TURN_RESULT};
use trilogue_domain::{Body, Json};
use trilogue_wire::agent_client::splice;

use super::original::{NOTIFICATION, RESULT, UPDATE, VERSION};

static UPDATE_DIALECT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(UPDATE));

/// Returns the original of an update whose session id was cut out.
pub fn update_original(params: String) -> Original {
    original(Arc::clone(&UPDATE_DIALECT), params)
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
