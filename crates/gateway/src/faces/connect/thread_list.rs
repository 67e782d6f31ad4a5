//! Lists threads, newest first.

use http::{HeaderValue, StatusCode, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_mapping::connect as mapping;
use trilogue_store::rows::{Listing, Page, ThreadFilter, ThreadRow};
use trilogue_wire::agent_connect as wire;

use super::thread_show::{self, ThreadPage};
use super::{BASE, ConnectCall, ConnectRoute, request};
use crate::http::reply::Reply;
use crate::route::{json_response, of};

const LEFT_OUT: HeaderValue = HeaderValue::from_static(
    "199 - \"the states are large: some threads are shown without theirs\"",
);

/// How many threads one read returns if each must be checked for a shown state.
const LOOKED_AT_ONCE: usize = 100;
/// The most threads to check for one response in that case.
const MAX_LOOKED_AT: usize = 1_000;

pub(crate) const ROUTES: &[ConnectRoute] = &[BASE
    .post("/threads/search", |call| Box::pin(search(call)))
    .search()
    .describe("connect_search_threads", "Threads that match, newest first")
    .request(of::<wire::ThreadSearchRequest>)
    .answers(&[json_response(200, "The threads.", of::<Vec<wire::Thread>>)])
    .errors(&[Code::FilterTooBroad])];

async fn search(call: ConnectCall) -> Result<Reply> {
    let body: wire::ThreadSearchRequest = request::body_or_empty(&call)?;
    let filter = ThreadFilter {
        metadata: request::members(body.metadata)?,
        values: request::members(body.values)?,
        activity: body.status.map(mapping::thread_activity),
        ..ThreadFilter::default()
    };
    let page = request::page(body.limit, body.offset);
    let skip = page.skip;
    let found = search_rows(&call, &filter, page).await?;
    let ThreadPage { json, has_left_out } = thread_show::threads(&call, &found.rows).await?;
    let reply = Reply::json_bytes(StatusCode::OK, json);
    let reply = request::with_next_offset(reply, skip, &found);
    Ok(if has_left_out { reply.header(header::WARNING, LEFT_OUT) } else { reply })
}

/// Returns the threads that match. Threads whose state is hidden are neither matched by it nor counted.
/// Errors: `filter_too_broad`.
async fn search_rows(
    call: &ConnectCall,
    filter: &ThreadFilter,
    page: Page,
) -> Result<Listing<ThreadRow>> {
    let read = &call.state.read;
    if filter.values.is_empty() || !thread_show::hides(call) {
        return read.threads(&call.scope(), filter, &page).await;
    }
    let Page { limit, mut skip, .. } = page;
    let (mut rows, mut looked_at) = (Vec::new(), 0);
    let mut next = Page { limit: LOOKED_AT_ONCE, ..Page::default() };
    loop {
        let listing = read.threads(&call.scope(), filter, &next).await?;
        for row in listing.rows {
            looked_at += 1;
            if thread_show::is_hidden(call, &row).await? {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let key = row.key.0;
            rows.push(row);
            if rows.len() == limit {
                return Ok(Listing { rows, next: Some(key) });
            }
        }
        match listing.next {
            None => return Ok(Listing { rows, next: None }),
            Some(_) if looked_at >= MAX_LOOKED_AT => return Err(too_broad()),
            after => next.after = after,
        }
    }
}

fn too_broad() -> Error {
    let message = format!("more than {MAX_LOOKED_AT} threads have such a state");
    Error::new(Code::FilterTooBroad, message).hint("ask for more members of the state")
}
