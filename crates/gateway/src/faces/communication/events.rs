//! The events of a run's stream: as a list, or as the stream itself from any position.

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use trilogue_domain::Code;
use trilogue_domain::error::Result;
use trilogue_store::rows::RunRow;

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
    .describe(
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
    log::note_shown(&call, &row.id, &projection);
    // Only the events are needed from here, and a response can be sent slowly.
    drop(projection);
    // Render one event at a time: a single body would hold all events twice.
    let events = events.into_iter().enumerate().flat_map(|(place, event)| {
        let comma = if place > 0 { &b","[..] } else { b"" };
        [Bytes::from_static(comma), event]
    });
    let begin = [Bytes::from_static(br#"{"events":["#)];
    let pieces = begin.into_iter().chain(events).chain([Bytes::from_static(b"]}")]);
    Reply::json_pieces(StatusCode::OK, stream::iter(pieces.map(Ok))).await
}

/// Returns the stream of a run's events after a position.
pub(super) async fn stream(
    call: &CommunicationCall,
    row: &RunRow,
    cursor: Cursor,
) -> Result<Reply> {
    let view = view::of(call);
    let (streams, log) = (&call.state.streams, LogRef::from(row));
    reader::open(streams, &call.caller, log, Some(row), view, cursor).await
}
