//! Lists runs, newest first. The protocol has no such list; its items are the protocol's runs.

use bytes::Bytes;
use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, RunStatus, limits};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::rows::{Listing, Page, RunFilter, RunRow};
use trilogue_wire::agent_communication::{RunStatus as WireStatus, splice};

use super::agents::{agent, number};
use super::log::{self, Until};
use super::{ANYTHING, BASE, CommunicationCall, CommunicationRoute};
use crate::http::reply::Reply;
use crate::route::Parameter;

/// The default page size, which is also the largest: runs are sent whole.
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

pub(crate) const ROUTES: &[CommunicationRoute] = &[BASE
    .at("/runs", |call| Box::pin(list(call)))
    .describe("communication_list_runs", "Runs, newest first")
    .query(&[
        Parameter { name: "agent_name", about: "Only runs of this agent." },
        Parameter { name: "session_id", about: "Only runs of this session." },
        Parameter { name: "status", about: "Only runs in this status." },
        Parameter { name: "limit", about: "The most runs of the page: 1 to 100, by default 20." },
        Parameter { name: "after", about: "The `next` of the page before." },
        ANYTHING,
    ])
    .errors(&[Code::AgentNotFound, Code::ThreadNotFound, Code::InvalidCursor])];

async fn list(call: CommunicationCall) -> Result<Reply> {
    let limit = number(&call, "limit", 1..=MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT);
    let after = call.query("after").map(read_cursor).transpose()?;
    let statuses = call.query("status").map_or(Ok(&[][..]), read_status)?;
    let agent = match call.query("agent_name") {
        Some(name) => Some(agent(&call, name)?.name.clone()),
        None => None,
    };
    let thread = match call.query("session_id") {
        Some(text) => Some(call.session(text, "the query parameter 'session_id'").await?.id),
        None => None,
    };
    let statuses = statuses.to_vec();
    let filter = RunFilter { thread, agent, statuses, ..RunFilter::default() };
    let page_asked = Page { limit, after, skip: 0 };
    let listing = call.state.read.runs(&call.scope(), &filter, &page_asked).await?;
    page(&call, listing).await
}

/// Returns a page of whole runs. The page ends early if they are too large together.
async fn page(call: &CommunicationCall, listing: Listing<RunRow>) -> Result<Reply> {
    let (mut runs, mut size, mut next) = (Vec::new(), 0, listing.next);
    let mut left = listing.rows.iter().peekable();
    while let Some(row) = left.next() {
        let projection = log::fold(call, row, Until::Now).await?;
        log::note_shown(call, &row.id, &projection);
        let run = call.turn.work(|| Bytes::from(projection.run()));
        size += run.len();
        runs.push(run);
        if size > limits::MAX_PAGE_BYTES && left.peek().is_some() {
            next = Some(row.key.0);
            break;
        }
    }
    let next = next.map(|next| next.to_string());
    let mut bytes = Vec::with_capacity(size + 64);
    splice::runs(&mut bytes, &runs, next.as_deref());
    Ok(Reply::json_bytes(StatusCode::OK, bytes))
}

fn read_cursor(text: &str) -> Result<i64> {
    text.parse().map_err(|_| {
        Error::new(Code::InvalidCursor, format!("unknown cursor '{}'", escape_for_message(text)))
            .hint("give the 'next' of the page before")
    })
}

fn read_status(text: &str) -> Result<&'static [RunStatus]> {
    let status = WireStatus::parse(text).ok_or_else(|| {
        let names = WireStatus::ALL.map(WireStatus::as_str).join(", ");
        Error::new(
            Code::InvalidRequest,
            format!("unknown run status '{}'", escape_for_message(text)),
        )
        .hint(format!("a status is one of: {names}"))
    })?;
    Ok(match status {
        WireStatus::Created => &[RunStatus::Queued],
        WireStatus::InProgress => &[RunStatus::Running],
        WireStatus::Awaiting => &[RunStatus::Interrupted],
        WireStatus::Cancelling => &[RunStatus::Cancelling],
        WireStatus::Cancelled => &[RunStatus::Cancelled],
        WireStatus::Completed => &[RunStatus::Completed],
        WireStatus::Failed => &[RunStatus::Failed, RunStatus::TimedOut],
    })
}
