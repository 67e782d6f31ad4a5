//! Lists runs, newest first.

use http::StatusCode;
use trilogue_domain::Code;
use trilogue_domain::error::Result;
use trilogue_mapping::connect as mapping;
use trilogue_store::rows::{Listing, RunFilter, RunRow};
use trilogue_wire::agent_connect as wire;

use super::{ANYTHING, BASE, ConnectCall, ConnectRoute, look_up, request, run_show};
use crate::http::reply::Reply;
use crate::route::{Parameter, json_response, of};

pub(crate) const ROUTES: &[ConnectRoute] = &[
    BASE.post("/runs/search", |call| Box::pin(search(call)))
        .search()
        .describe(
            "connect_search_runs",
            "Runs that match, newest first; input that is too large to be kept beside a run \
             is left out",
        )
        .request(of::<wire::RunSearchRequest>)
        .answers(&[json_response(200, "The runs.", of::<Vec<wire::Run>>)])
        .errors(&[Code::FilterTooBroad]),
    BASE.at("/threads/{thread_id}/runs", |call| Box::pin(list(call)))
        .describe(
            "connect_list_thread_runs",
            "The runs of a thread, newest first; input that is too large to be kept beside a \
             run is left out",
        )
        .query(&[
            Parameter { name: "limit", about: "The most runs: 1 to 1000, by default 10." },
            Parameter { name: "offset", about: "How many runs are passed over." },
            ANYTHING,
        ])
        .answers(&[json_response(200, "The runs.", of::<Vec<wire::Run>>)])
        .errors(&[Code::ThreadNotFound, Code::InvalidRequest]),
];

async fn search(call: ConnectCall) -> Result<Reply> {
    let body: wire::RunSearchRequest = request::body_or_empty(&call)?;
    let agent = match body.agent_id.as_deref().map(|id| look_up::known_agent(&call, id)) {
        None => None,
        Some(Some(card)) => Some(card.name.clone()),
        // An unknown agent has no runs.
        Some(None) => return Ok(Reply::json_bytes(StatusCode::OK, &b"[]"[..])),
    };
    let filter = RunFilter {
        thread: None,
        agent,
        statuses: body.status.map(mapping::statuses).unwrap_or_default().to_vec(),
        metadata: request::members(body.metadata)?,
    };
    let page = request::page(body.limit, body.offset);
    let found = call.state.read.runs(&call.scope(), &filter, &page).await?;
    page_reply(&call, page.skip, &found).await
}

async fn list(call: ConnectCall) -> Result<Reply> {
    let page = request::queried_page(&call)?;
    let thread = look_up::thread(&call).await?;
    let filter = RunFilter { thread: Some(thread.id), ..RunFilter::default() };
    let found = call.state.read.runs(&call.scope(), &filter, &page).await?;
    page_reply(&call, page.skip, &found).await
}

async fn page_reply(call: &ConnectCall, skip: usize, found: &Listing<RunRow>) -> Result<Reply> {
    let reply = Reply::json_bytes(StatusCode::OK, run_show::runs(call, &found.rows).await?);
    Ok(request::with_next_offset(reply, skip, found))
}
