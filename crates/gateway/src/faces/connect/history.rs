//! The history of a thread's state.

use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, Code, Error, Right};
use trilogue_mapping::native::{escape_for_message, read_sha256};
use trilogue_store::rows::{CheckpointRow, ThreadRow};
use trilogue_wire::agent_connect as wire;

use super::{ANYTHING, BASE, ConnectCall, ConnectRoute, look_up, request, thread_show, threads};
use crate::faces::common;
use crate::faces::common::path::{self, PathPage};
use crate::http::reply::Reply;
use crate::route::{Access, Parameter, ResponseContent, RouteResponse, json_response, of};

/// Access by agent is enough: a thread's id cannot be guessed.
const THREAD: ConnectRoute = BASE.access(Access::Agent(Right::Read));

pub(crate) const ROUTES: &[ConnectRoute] = &[
    THREAD
        .at("/threads/{thread_id}/history", |call| Box::pin(history(call)))
        .describe("connect_get_thread_history", "The states that a thread had, newest first")
        .query(&[
            Parameter {
                name: "limit",
                about: "The most states: 1 to 1000, by default 10. A page ends earlier when its \
                        states are large; `Trilogue-Next` then has the `before` of the next one.",
            },
            Parameter { name: "before", about: "Only states before this checkpoint." },
            ANYTHING,
        ])
        .answers(&[json_response(200, "The states.", of::<Vec<wire::ThreadState>>)])
        .errors(&[Code::ThreadNotFound, Code::CheckpointNotFound, Code::InvalidRequest]),
    THREAD
        .at("/threads/{thread_id}/state", |call| Box::pin(state(call)))
        .describe(
            "connect_get_thread_state",
            "The state of a thread, bare, as earlier versions of the protocol had it",
        )
        .answers(&[json_response(200, "The state.", of::<wire::Json>)])
        .errors(&[Code::ThreadNotFound, Code::CheckpointNotFound]),
    THREAD
        .at("/threads/{thread_id}/blobs/{sha256}", |call| Box::pin(blob(call)))
        .describe("connect_get_blob", "Large content that a message of this thread links to")
        .answers(&[RouteResponse {
            status: 200,
            about: "The content.",
            content: ResponseContent::Other("application/octet-stream"),
        }])
        .errors(&[Code::ThreadNotFound, Code::NotFound]),
    THREAD
        .at("/threads/{thread_id}/runs/{run_id}/threadstate", |call| Box::pin(run_state(call)))
        .describe(
            "connect_get_run_thread_state",
            "The state that a run left, bare, as earlier versions of the protocol had it",
        )
        .answers(&[json_response(200, "The state.", of::<wire::Json>)])
        .errors(&[Code::ThreadNotFound, Code::RunNotFound, Code::CheckpointNotFound]),
];

async fn history(call: ConnectCall) -> Result<Reply> {
    let limit = request::queried_page(&call)?.limit;
    let row = look_up::thread(&call).await?;
    let before = match call.query("before") {
        Some(id) => Some(threads::checkpoint(&call, &row, id).await?),
        None => None,
    };
    let from = match before {
        None => None,
        Some(CheckpointRow { parent: None, .. }) => {
            return thread_show::states(&call, &row, &PathPage::default()).await;
        }
        Some(before) => before.parent,
    };
    let page = path::page(call.state.read.as_ref(), &call.scope(), &row, from, limit).await?;
    thread_show::states(&call, &row, &page).await
}

async fn state(call: ConnectCall) -> Result<Reply> {
    let row = look_up::thread(&call).await?;
    let head = row.head.ok_or_else(no_state)?;
    bare(&call, &row, head).await
}

async fn run_state(call: ConnectCall) -> Result<Reply> {
    let run = look_up::run(&call).await?;
    let row = look_up::thread(&call).await?;
    let is_left = |checkpoint: &CheckpointRow| checkpoint.run == Some(run.key);
    let left = thread_show::on_path(&call, &row, is_left).await?;
    bare(&call, &row, left.ok_or_else(no_state)?.key).await
}

async fn bare(call: &ConnectCall, row: &ThreadRow, at: CheckpointKey) -> Result<Reply> {
    if thread_show::is_hidden(call, row).await? {
        return Err(no_state());
    }
    thread_show::bare(call, row, at).await
}

/// Returns content of any thread that the caller can see, including threads of single runs.
async fn blob(call: ConnectCall) -> Result<Reply> {
    let id = call.param("thread_id");
    let row = common::look_up::thread(call.state.read.as_ref(), &call, id).await?;
    let text = call.param("sha256");
    let missing = || {
        Error::new(
            Code::NotFound,
            format!("content '{}' not found in the thread", escape_for_message(text)),
        )
    };
    let hash = read_sha256(text).ok_or_else(missing)?;
    let (blob, bytes) = call.state.read.blob_by_hash(row.key, &hash).await?.ok_or_else(missing)?;
    Ok(Reply::stored(blob.is_text, bytes))
}

fn no_state() -> Error {
    Error::new(Code::CheckpointNotFound, "thread state not found")
        .hint("a thread has a state when a run on it has completed, or a client has set it")
}
