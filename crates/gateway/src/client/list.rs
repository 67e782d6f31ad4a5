//! The sessions that there are.

use serde_json::Value;
use trilogue_domain::limits;
use trilogue_mapping::agent_client as mapping;
use trilogue_store::rows::{Page, ThreadFilter, ThreadRow};
use trilogue_wire::agent_client::{ListSessionsRequest, ListSessionsResponse, SessionInfo};

use super::link::{Answer, Link};
use super::request::{invalid_params, read};
use super::session::{ADDITIONAL_DIRECTORIES, AGENT, CWD, TITLE};

/// The sessions of the agent, newest first.
pub(super) async fn list(link: &Link, params: &str) -> Answer {
    let request: ListSessionsRequest = read(link, params)?;
    let after = match &request.cursor {
        None => None,
        Some(cursor) => Some(cursor.parse().map_err(|_| {
            invalid_params("/cursor", "is not where a page said that the next begins")
        })?),
    };
    let mut metadata = vec![equals(AGENT, link.agent.as_str())];
    metadata.extend(request.cwd.as_deref().map(|cwd| equals(CWD, cwd)));
    let filter = ThreadFilter { metadata, ..ThreadFilter::default() };
    let page = Page { limit: limits::DEFAULT_PAGE_ROWS, after, skip: 0 };
    let listing = link.shared.read().threads(&link.principal.scope(), &filter, &page).await;
    let listing = listing.map_err(|error| mapping::error_object(&error))?;
    let sessions: Vec<_> = listing.rows.iter().map(info).collect();
    let mut response = ListSessionsResponse::new(sessions);
    response.next_cursor = listing.next.map(|next| next.to_string());
    Ok(serde_json::to_vec(&response).unwrap_or_default())
}

fn equals(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), Value::from(value).to_string())
}

fn info(thread: &ThreadRow) -> SessionInfo {
    let metadata = thread.metadata.to_value();
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut info = SessionInfo::new(
        thread.id.as_str().to_owned(),
        text(CWD).unwrap_or_else(|| "/".to_owned()),
    );
    info.title = text(TITLE);
    info.updated_at = Some(thread.updated_at.to_string());
    let directories = metadata.get(ADDITIONAL_DIRECTORIES).and_then(Value::as_array);
    info.additional_directories = directories
        .into_iter()
        .flatten()
        .filter_map(|directory| directory.as_str().map(str::to_owned))
        .collect();
    info
}
