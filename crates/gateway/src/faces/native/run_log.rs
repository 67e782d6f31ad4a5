//! The events of a run's log.

use trilogue_domain::Code;
use trilogue_domain::error::Result;

use super::{
    EVENT_STREAM, EVENTS, EVENTS_AFTER, LAST_EVENT, LIMIT, NativeCall, NativeRoute, events_after,
    run,
};
use crate::core::log_ref::LogRef;
use crate::faces::common::cursors::after;
use crate::http::reply::Reply;

pub(crate) const ROUTES: &[NativeRoute] = &[NativeRoute::base(|call| Box::pin(list_events(call)))
    .path("/api/v1/runs/{run_id}/events")
    .describe(
        "list_run_events",
        "The events of a run, as a page or as a stream that ends with the run",
    )
    .query(&[LIMIT, EVENTS_AFTER])
    .headers(&[LAST_EVENT])
    .answers(&[EVENTS, EVENT_STREAM])
    .errors(&[Code::RunNotFound, Code::InvalidCursor, Code::ThreadQuarantined])];

async fn list_events(call: NativeCall) -> Result<Reply> {
    let row = run(&call).await?;
    events_after(&call, &LogRef::from(&row), Some(&row), after(&call)?).await
}
