//! Streams existing runs.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Json, Right};
use trilogue_mapping::connect::{self as mapping, Modes};
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_connect as wire;

use super::stream::{OpenedBy, Since, open};
use super::{BASE, ConnectCall, ConnectRoute, look_up, run_show};
use crate::http::reply::Reply;
use crate::route::{Access, Parameter, ResponseContent, RouteResponse};

pub(super) const LAST_EVENT: Parameter = Parameter {
    name: "Last-Event-ID",
    about: "Begin behind the event with this id; `0` or `-1` is the beginning.",
};

pub(super) const STREAM: RouteResponse = RouteResponse {
    status: 200,
    about: "The events as they come, as server-sent events: `data` is a `StreamEventPayload`.",
    content: ResponseContent::Other("text/event-stream"),
};

const JOIN: ConnectRoute = BASE
    .at("/runs/{run_id}/stream", |call| Box::pin(join(call)))
    .access(Access::Agent(Right::Read))
    .describe("connect_stream_run", "The output of a run as it comes from now on")
    .headers(&[LAST_EVENT])
    .answers(&[STREAM])
    .errors(&[Code::RunNotFound, Code::InvalidCursor, Code::StreamModeNotSupported]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    JOIN,
    JOIN.path("/threads/{thread_id}/runs/{run_id}/stream")
        .operation("connect_stream_thread_run")
        .errors(&[
            Code::ThreadNotFound,
            Code::RunNotFound,
            Code::InvalidCursor,
            Code::StreamModeNotSupported,
        ]),
];

/// The stream modes in the request that created the run.
#[derive(serde::Deserialize)]
struct KeptModes {
    #[serde(default)]
    stream_mode: Option<wire::StreamModes>,
}

async fn join(call: ConnectCall) -> Result<Reply> {
    let row = look_up::run(&call).await?;
    let modes = match call.state.runtime.agent(&row.agent) {
        Ok(card) => mapping::modes(card, modes_of(row.request.as_ref()).as_ref())?.0,
        // An agent that is not served any more still has its output in the log.
        Err(_) => Modes { values: true, updates: false },
    };
    stream(&call, &row, modes, Since::Now, OpenedBy::Join).await
}

/// Streams a run. The response head names the run.
pub(super) async fn stream(
    call: &ConnectCall,
    row: &RunRow,
    modes: Modes,
    otherwise: Since,
    by: OpenedBy,
) -> Result<Reply> {
    let since = Since::of(call, otherwise)?;
    let reply = open(call, row, modes, since, by).await?;
    Ok(run_show::with_run_headers(call, reply, row))
}

fn modes_of(request: Option<&Json>) -> Option<wire::StreamModes> {
    serde_json::from_slice::<KeptModes>(request?.as_bytes()).ok()?.stream_mode
}
