//! What an agent says, as it is logged: bodies with their originals.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use trilogue_domain::event::{Original, StateEvent};
use trilogue_domain::{Body, Json};
use trilogue_mapping::agent_client::{NOTIFICATION, RESULT, UPDATE, VERSION};
use trilogue_wire::agent_client::splice;

/// The dialect that these agents speak.
pub(super) const DIALECT: &str = UPDATE;

/// The name of the dialect, which every update shares.
static OF_UPDATES: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(UPDATE));

/// An update as its original. `params` has no session id any more.
pub(super) fn of_update(params: String) -> Original {
    original(Arc::clone(&OF_UPDATES), params)
}

/// Any other notification: nobody has a word for it.
pub(super) fn of_notification(method: &str, params: &str) -> (Body, Original) {
    let params = match splice::cut_session(params) {
        Some((cut, _)) => Cow::Owned(cut),
        None => Cow::Borrowed(params),
    };
    let method = serde_json::Value::from(method);
    let object = format!("{{\"method\":{method},\"params\":{params}}}");
    (Body::Opaque, original(Arc::from(NOTIFICATION), object))
}

/// The result of a prompt. `None` where it is no JSON that we keep.
pub(super) fn of_result(result: &Bytes) -> Option<(Body, Original)> {
    let data = Json::parse(result.clone()).ok()?;
    let body = Body::State(StateEvent::Custom { kind: "turn_result".to_owned(), data });
    let dialect = Arc::from(RESULT);
    Some((body, Original { dialect, version: VERSION, bytes: result.clone() }))
}

fn original(dialect: Arc<str>, text: String) -> Original {
    Original { dialect, version: VERSION, bytes: Bytes::from(text) }
}
