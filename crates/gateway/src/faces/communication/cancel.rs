//! Cancels runs.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, Event, RunEvent};
use trilogue_domain::{Code, Error, Right};
use trilogue_store::rows::RunRow;

use super::log::{self, Until};
use super::{BASE, CommunicationCall, CommunicationRoute};
use crate::http::reply::Reply;
use crate::route::Access;

pub(crate) const ROUTES: &[CommunicationRoute] = &[BASE
    .post("/runs/{run_id}/cancel", |call| Box::pin(cancel(call)))
    .access(Access::Right(Right::Run))
    .describe("communication_cancel_run", "Ask a run to stop")
    .errors(&[Code::InvalidId, Code::RunNotFound, Code::RunEnded])];

async fn cancel(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_run().await?;
    call.reach(&row.agent)?;
    if row.status.is_terminal() {
        return Err(run_ended_error(&row));
    }
    let cancelled = call.state.runtime.cancel(call.principal(), &row.id).await;
    let row = cancelled.map_err(|error| match error.code() {
        Code::RunEnded => run_ended_error(&row),
        _ => error,
    })?;
    let mut projection = log::fold(&call, &row, Until::End).await?;
    // A run without active work ends in the same step and never logs this event; show the run as cancelling all the same, because the client requested that.
    let asked = Event {
        number: 0,
        run: Some(row.key),
        run_number: row.last_run_number,
        at: call.state.clock.now(),
        body: Body::Run(RunEvent::Cancelling { reason: None }),
        original: None,
    };
    projection.push(&asked, &row.thread_id);
    log::answer(&call, StatusCode::ACCEPTED, &row.id, &projection)
}

fn run_ended_error(row: &RunRow) -> Error {
    let status = if row.status.is_terminal() { row.status.as_str() } else { "terminal" };
    Error::new(Code::RunEnded, format!("the run '{}' is {status} and cannot be cancelled", row.id))
        .hint("look at the run for its outcome")
}
