//! The present state of a run.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up, run_show};
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

const RUN: ConnectRoute = BASE
    .at("/runs/{run_id}", |call| Box::pin(get(call)))
    .access(Access::Agent(Right::Read))
    .describe("connect_get_run", "One run")
    .answers(&[json_response(200, "The run.", of::<wire::Run>)])
    .errors(&[Code::RunNotFound]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    RUN,
    RUN.path("/threads/{thread_id}/runs/{run_id}")
        .operation("connect_get_thread_run")
        .errors(&[Code::ThreadNotFound, Code::RunNotFound]),
];

async fn get(call: ConnectCall) -> Result<Reply> {
    let row = look_up::run(&call).await?;
    let bytes = run_show::run(&call, &row).await?;
    Ok(Reply::json_bytes(StatusCode::OK, bytes))
}
