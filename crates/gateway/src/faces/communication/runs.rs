//! The present state of a run.

use http::StatusCode;
use trilogue_domain::Code;
use trilogue_domain::error::Result;

use super::log::{self, Until};
use super::{BASE, CommunicationCall, CommunicationRoute};
use crate::http::reply::Reply;

pub(crate) const ROUTES: &[CommunicationRoute] = &[BASE
    .at("/runs/{run_id}", |call| Box::pin(get(call)))
    .describe("communication_get_run", "One run, with its output and what it waits for")
    .errors(&[Code::InvalidId, Code::RunNotFound])];

async fn get(call: CommunicationCall) -> Result<Reply> {
    let row = call.named_run().await?;
    let projection = log::fold(&call, &row, Until::Now).await?;
    log::answer(&call, StatusCode::OK, &row.id, &projection)
}
