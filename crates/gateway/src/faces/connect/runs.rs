//! A run as it stands.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up, run_show};
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

const RUN: ConnectRoute = ConnectRoute {
    path: "/runs/{run_id}",
    access: Access::Agent(Right::Read),
    operation: "connect_get_run",
    summary: "One run",
    answers: &[json_response(200, "The run.", of::<wire::Run>)],
    errors: &[Code::RunNotFound],
    handler: |call| Box::pin(get(call)),
    ..BASE
};

pub(crate) const ROUTES: &[ConnectRoute] = &[
    RUN,
    ConnectRoute {
        path: "/threads/{thread_id}/runs/{run_id}",
        operation: "connect_get_thread_run",
        errors: &[Code::ThreadNotFound, Code::RunNotFound],
        ..RUN
    },
];

async fn get(call: ConnectCall) -> Result<Reply> {
    let row = look_up::run(&call).await?;
    let bytes = run_show::run(&call, &row).await?;
    Ok(Reply::json_bytes(StatusCode::OK, bytes))
}
