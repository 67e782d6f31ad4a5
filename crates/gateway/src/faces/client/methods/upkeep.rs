//! Methods about whole sessions, from outside of their turns. They are answered from the log, for every agent.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::thread::{TITLE_MEMBER, title};
use trilogue_domain::{Error, Json, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::rows::{Page, ThreadFilter, ThreadRow};
use trilogue_wire::agent_client::{
    ArchiveSessionRequest, SessionOptionsRequest, SessionStatus, SessionStatusRequest,
    SessionStatusResponse, SetSessionTitleRequest, SetSessionTitleResponse,
    UnarchiveSessionRequest, is_absolute, splice,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::super::connection::queue::SessionQueue;
use super::super::connection::{ClientConnection, Handshake};
use super::super::session::agent_session::{self, AgentSession};
use super::super::thread_metadata::{ARCHIVED, config_of};
use super::super::wire::lines::MethodResult;
use super::request::{backend_of, invalid_params, read, session_error};
use super::{cancel, close, extension, network_params};

/// How many of the agent's newest sessions are searched for its modes and options.
const MAX_SEARCHED_SESSIONS: usize = 16;

/// `session/status`: whether a client has the session open or a turn is at work.
pub(super) async fn status(
    connection: &ClientConnection,
    session: &ThreadId,
    params: &str,
) -> MethodResult {
    read::<SessionStatusRequest>(connection, params)?;
    let refused = |error: Error| session_error(&error, session);
    let thread = connection.thread(session.as_str()).await.map_err(refused)?;
    let is_open = connection.state.open_sessions.count(thread.key) > 0
        || !cancel::open_runs(connection, &thread).await.map_err(refused)?.is_empty();
    let status = if is_open { SessionStatus::Open } else { SessionStatus::Saved };
    Ok(serde_json::to_vec(&SessionStatusResponse::new(status)).unwrap_or_default())
}

/// `session/set_title`: sets the title that replaces the agent's.
pub(super) async fn set_title(
    connection: &ClientConnection,
    session: &ThreadId,
    params: &str,
) -> MethodResult {
    let request: SetSessionTitleRequest = read(connection, params)?;
    let Some(title) = title(&request.title) else {
        return Err(invalid_params("/title", "has no visible character"));
    };
    patch(connection, session, json!({ TITLE_MEMBER: title })).await?;
    Ok(serde_json::to_vec(&SetSessionTitleResponse::new(title)).unwrap_or_default())
}

/// `session/archive`: cancels all work of the session, closes it for this client, and hides it from lists.
pub(super) async fn archive(
    connection: &Arc<ClientConnection>,
    queue: &Arc<SessionQueue>,
    params: &str,
) -> MethodResult {
    read::<ArchiveSessionRequest>(connection, params)?;
    let thread = connection.thread(queue.id.as_str()).await;
    let thread = thread.map_err(|error| session_error(&error, &queue.id))?;
    let cancelled = cancel::cancel_runs(connection, &thread, |_| true).await;
    cancelled.map_err(|error| mapping::error_object(&error))?;
    close::close(connection, queue, params).await?;
    patch(connection, &queue.id, json!({ ARCHIVED: true })).await?;
    Ok(b"{}".to_vec())
}

/// `session/unarchive`: shows the session in lists again.
pub(super) async fn unarchive(
    connection: &ClientConnection,
    session: &ThreadId,
    params: &str,
) -> MethodResult {
    read::<UnarchiveSessionRequest>(connection, params)?;
    patch(connection, session, json!({ ARCHIVED: null })).await?;
    Ok(b"{}".to_vec())
}

/// `session/options`: the modes and options with which a session would start.
///
/// They come from the agent if it has this method, otherwise from the log: those of the named session, or of the agent's newest session that has some.
pub(super) async fn options(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    params: &str,
) -> MethodResult {
    const METHOD: &str = "session/options";
    let params = &*network_params::checkable(connection, params);
    let request: SessionOptionsRequest = read(connection, params)?;
    if !is_absolute(&request.cwd) {
        return Err(invalid_params("/cwd", "must be an absolute path"));
    }
    let further = &request.additional_directories;
    network_params::check_folders(connection, METHOD, &request.cwd, further).await?;
    network_params::check_servers(connection, METHOD, params)?;
    let backend = backend_of(connection)?;
    if backend.sessions().is_none() {
        let config = match &request.session_id {
            Some(id) => config_of(&find_thread(connection, id).await?),
            None => None,
        };
        let options = agent_session::options_of(connection, backend.card(), config.as_ref());
        return Ok(agent_session::native_result(&options));
    }
    if let Some(id) = &request.session_id {
        let thread = find_thread(connection, id).await?;
        let session = logged(connection, &thread).await;
        return Ok(session.map_err(|error| mapping::error_object(&error))?.result(connection));
    }
    if handshake.has_options {
        let result = extension::forward(connection, handshake, None, METHOD, params).await?;
        let text = std::str::from_utf8(&result).unwrap_or("{}");
        return Ok(agent_session::for_client(connection, text));
    }
    newest_options(connection).await.map_err(|error| mapping::error_object(&error))
}

/// Returns the modes and options of the agent's newest session that has some, and names that session.
async fn newest_options(connection: &ClientConnection) -> Result<Vec<u8>, Error> {
    let filter = ThreadFilter { agent: Some(connection.agent.clone()), ..ThreadFilter::default() };
    let page = Page { limit: MAX_SEARCHED_SESSIONS, ..Page::default() };
    let listing = connection.read().threads(&connection.principal.scope(), &filter, &page).await?;
    for thread in listing.rows.iter().filter(|row| !row.ephemeral) {
        let session = logged(connection, thread).await?;
        if !session.is_known() {
            continue;
        }
        let result = session.result(connection);
        let source = json!({ mapping::EXTENSION: { "from_session": thread.id.as_str() } });
        let text = std::str::from_utf8(&result).unwrap_or("{}");
        let marked = splice::set(text, &["_meta"], &source.to_string());
        return Ok(marked.map_or(result, String::into_bytes));
    }
    Ok(b"{}".to_vec())
}

async fn logged(connection: &ClientConnection, thread: &ThreadRow) -> Result<AgentSession, Error> {
    let until = connection.last_event(thread).await?;
    AgentSession::read(connection.read().as_ref(), thread.key, until).await
}

async fn find_thread(connection: &ClientConnection, id: &str) -> Result<ThreadRow, ErrorObject> {
    let found = connection.thread(id).await;
    found.map_err(|error| mapping::session_error(&error, id))
}

async fn patch(
    connection: &ClientConnection,
    session: &ThreadId,
    metadata: Value,
) -> Result<(), ErrorObject> {
    let refused = |error: Error| session_error(&error, session);
    // Only sessions that the client can see.
    let thread = connection.thread(session.as_str()).await.map_err(refused)?;
    connection.patch_metadata(&thread.id, Json::from_value(&metadata)).await.map_err(refused)
}
