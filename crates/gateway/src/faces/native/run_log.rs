//! What a run's log holds.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};

use super::{
    Call, EVENT_STREAM, EVENTS, EVENTS_AFTER, LAST_EVENT, LIMIT, Route, events_after, run,
};
use crate::core::log_ref::LogRef;
use crate::faces::common::cursors::after;
use crate::http::reply::Reply;
use crate::route::{Access, Verb};

pub(crate) const ROUTES: &[Route] = &[Route {
    verb: Verb::Get,
    path: "/api/v1/runs/{run_id}/events",
    access: Access::Right(Right::Read),
    operation: "list_run_events",
    summary: "The events of a run, as a page or as a stream that ends with the run",
    query: &[LIMIT, EVENTS_AFTER],
    headers: &[LAST_EVENT],
    request: None,
    answers: &[EVENTS, EVENT_STREAM],
    errors: &[Code::RunNotFound, Code::InvalidCursor, Code::ThreadQuarantined],
    handler: |call| Box::pin(list_events(call)),
}];

async fn list_events(call: Call) -> Result<Reply> {
    let row = run(&call).await?;
    events_after(&call, &LogRef::from(&row), Some(&row), after(&call)?).await
}
