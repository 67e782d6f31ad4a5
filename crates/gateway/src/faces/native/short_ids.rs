//! The filter by abbreviated id: the lists that programs read also resolve the short ids that people type.

use trilogue_domain::error::Result;
use trilogue_domain::{IdKind, ShortId};

use super::NativeCall;
use crate::route::Parameter;

pub(super) const SHORT_ID: Parameter = Parameter {
    name: "short_id",
    about: "Only those whose id this abbreviates, ephemeral threads too: at least 4 characters with which the id begins, or with which the last group of an id begins that is a UUID. An id that equals it is the only match. Beside it only `limit` counts, and the list has no further page.",
};

/// Returns the ids that match the request's `short_id`, at most one page; `None` if the request has none.
pub(super) async fn matching_ids(call: &NativeCall, kind: IdKind) -> Result<Option<Vec<String>>> {
    let Some(text) = call.query(SHORT_ID.name) else { return Ok(None) };
    // A text that is too short to abbreviate an id can still be a whole id.
    let Some(short) = ShortId::parse(text) else { return Ok(Some(vec![text.to_owned()])) };
    let limit = call.limit()?;
    call.state.read.resolve_short_id(&call.scope(), kind, &short, limit).await.map(Some)
}
