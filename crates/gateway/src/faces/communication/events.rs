//! What a run's stream has had, as a list; or the stream itself, from any position on.

use http::StatusCode;
use trilogue_domain::Code;
use trilogue_domain::error::Result;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_communication::splice;

use super::{BASE, CommunicationCall, CommunicationRoute, log, view};
use crate::core::log_ref::LogRef;
use crate::faces::common::cursors::after;
use crate::faces::common::negotiation::wants_stream;
use crate::http::reply::Reply;
use crate::route::Parameter;
use crate::stream::cursor::Cursor;
use crate::stream::reader;

pub(crate) const ROUTES: &[CommunicationRoute] = &[BASE
    .at("/runs/{run_id}/events", |call| Box::pin(list(call)))
    .named(
        "communication_list_run_events",
        "The events of a run: those there are, or as a stream where `Accept` asks for one",
    )
    .headers(&[Parameter {
        name: "Last-Event-ID",
        about: "Begin the stream behind the event with this id.",
    }])
    .errors(&[Code::InvalidId, Code::RunNotFound, Code::InvalidCursor])];

async fn list(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_run().await?;
    if wants_stream(&call) {
        return stream(&call, &row, after(&call)?).await;
    }
    let (projection, events) = log::events(&call, &row).await?;
    let mut bytes =
        Vec::with_capacity(16 + events.iter().map(|event| event.len() + 1).sum::<usize>());
    splice::events(&mut bytes, &events);
    log::note_shown(&call, &row.id, &projection);
    Ok(Reply::json_bytes(StatusCode::OK, bytes))
}

/// A run's events behind a position.
pub(super) async fn stream(
    call: &CommunicationCall,
    row: &RunRow,
    cursor: Cursor,
) -> Result<Reply> {
    let view = view::of(call);
    let (streams, log) = (&call.state.streams, LogRef::from(row));
    reader::open(streams, &call.caller, log, Some(row), view, cursor).await
}
