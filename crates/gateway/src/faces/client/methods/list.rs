//! `session/list`.

use serde_json::Value;
use trilogue_domain::limits;
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::PARENT_THREAD_MEMBER;
use trilogue_store::rows::{Page, ThreadFilter, ThreadRow};
use trilogue_wire::agent_client::{
    ArchiveFilter, ListSessionsRequest, ListSessionsResponse, SessionInfo, splice,
};

use super::super::connection::ClientConnection;
use super::super::thread_metadata::{
    ADDITIONAL_DIRECTORIES, ARCHIVED, CWD, without_trailing_slash,
};
use super::super::wire::lines::MethodResult;
use super::request::{invalid_params, read};
use crate::faces::common::thread_title::thread_title;

/// Returns the agent's sessions, newest first: those that clients opened, and all other threads in which it ran.
pub(super) async fn list(connection: &ClientConnection, params: &str) -> MethodResult {
    let request: ListSessionsRequest = read(connection, params)?;
    let after = match &request.cursor {
        None => None,
        Some(cursor) => Some(
            cursor
                .parse()
                .map_err(|_| invalid_params("/cursor", "is not a cursor from a previous page"))?,
        ),
    };
    let default_cwd = default_cwd();
    // Threads without a directory use the default one, and no index contains them.
    let wanted = request.cwd.as_deref().map(without_trailing_slash);
    let indexed = wanted.filter(|cwd| *cwd != default_cwd);
    let archived = request.archived.clone().unwrap_or(ArchiveFilter::Exclude);
    let only = match &archived {
        ArchiveFilter::Exclude | ArchiveFilter::Include => None,
        ArchiveFilter::Only => Some((ARCHIVED.to_owned(), "true".to_owned())),
        ArchiveFilter::Other(_) => {
            return Err(invalid_params("/archived", "must be exclude, include or only"));
        }
    };
    let filter = ThreadFilter {
        metadata: indexed.map(|cwd| equals(CWD, cwd)).into_iter().chain(only).collect(),
        agent: Some(connection.agent.clone()),
        ..ThreadFilter::default()
    };
    let mut page = Page { limit: limits::DEFAULT_PAGE_ROWS, after, skip: 0 };
    let mut sessions = Vec::new();
    loop {
        let scope = connection.principal.scope();
        let listing = connection.read().threads(&scope, &filter, &page).await;
        let listing = listing.map_err(|error| mapping::error_object(&error))?;
        for row in listing.rows.iter().filter(|row| !row.ephemeral && !is_of_subagent(row)) {
            let mut info = info(row, &default_cwd);
            let is_hidden = archived == ArchiveFilter::Exclude && info.archived == Some(true);
            if !is_hidden && wanted.is_none_or(|cwd| *cwd == info.cwd) {
                info.title = thread_title(connection.read().as_ref(), row).await;
                sessions.push(info);
            }
        }
        page.after = listing.next;
        // A page of hidden sessions is not the client's concern.
        if !sessions.is_empty() || page.after.is_none() {
            break;
        }
    }
    let mut response = ListSessionsResponse::new(sessions);
    response.next_cursor = page.after.map(|next| next.to_string());
    Ok(serde_json::to_vec(&response).unwrap_or_default())
}

/// Whether the thread belongs to a run of another thread: clients find it there.
fn is_of_subagent(thread: &ThreadRow) -> bool {
    splice::get(thread.metadata.as_str(), &[PARENT_THREAD_MEMBER]).is_some()
}

/// Returns the working directory of threads without one: this server's.
fn default_cwd() -> String {
    let cwd = std::env::current_dir().ok().and_then(|cwd| cwd.into_os_string().into_string().ok());
    cwd.unwrap_or_else(|| "/".to_owned())
}

fn equals(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), Value::from(value).to_string())
}

fn info(thread: &ThreadRow, default_cwd: &str) -> SessionInfo {
    let metadata = thread.metadata.to_value();
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut info = SessionInfo::new(
        thread.id.as_str().to_owned(),
        text(CWD).unwrap_or_else(|| default_cwd.to_owned()),
    );
    info.updated_at = Some(thread.updated_at.to_string());
    info.archived = Some(metadata.get(ARCHIVED) == Some(&Value::Bool(true)));
    let directories = metadata.get(ADDITIONAL_DIRECTORIES).and_then(Value::as_array);
    info.additional_directories = directories
        .into_iter()
        .flatten()
        .filter_map(|directory| directory.as_str().map(str::to_owned))
        .collect();
    info
}
