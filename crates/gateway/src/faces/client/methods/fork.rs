//! `session/fork`: copies a session into a new one.

use std::sync::Arc;

use serde_json::Value;
use trilogue_domain::{Code, Error, Json, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{NewThread, without_subagent};
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::ForkSessionRequest;
use trilogue_wire::jsonrpc::ErrorObject;

use super::super::connection::{ClientConnection, Handshake};
use super::super::session::cursors::event_of_cursor;
use super::super::thread_metadata::{AGENT, ARCHIVED};
use super::super::wire::lines::DeferredResult;
use super::open::{self, OpenMembers, OpenParams, UncommittedSession};
use super::request::{IncomingRequest, invalid_params, session_error};

/// Copies the session's history into a new session, whole or up to a cursor. The agent opens a session of its own for the copy, and gets the history
/// before its first prompt there.
pub(super) async fn fork(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    source: &ThreadId,
    request: IncomingRequest,
) -> DeferredResult {
    let mut cursor = None;
    let open = OpenParams::read(connection, &request.params, |fork: ForkSessionRequest| {
        cursor = fork.cursor_id;
        OpenMembers {
            cwd: fork.cwd,
            directories: fork.additional_directories,
            servers: fork.mcp_servers,
            system_prompt: fork.system_prompt,
            options: fork.config_options,
        }
    })?;
    let until = cursor.as_deref().map(|id| event_of_cursor(id).ok_or_else(no_cursor));
    let until = until.transpose()?;
    open.check(connection, handshake, &request.method).await?;
    open::check_session_limit(connection)?;
    let id = request.extras.session.as_deref().map(ThreadId::parse).transpose();
    let id = id.map_err(|error| mapping::error_object(&error))?;
    let is_named = id.is_some();
    let (thread, is_new) = copy(connection, source, until, id, &open).await?;
    let mut uncommitted =
        UncommittedSession { connection, thread: is_new.then(|| thread.id.clone()), is_named };
    let result = open::open_new(connection, handshake, &thread, &open).await?;
    uncommitted.thread = None;
    open::respond_with_session(connection, request, thread, result);
    Ok(None)
}

/// Copies the thread. The copy has the source's metadata, except what the request sets. If the client chose an id that exists, returns that thread and `false`.
async fn copy(
    connection: &ClientConnection,
    source: &ThreadId,
    until: Option<u64>,
    id: Option<ThreadId>,
    open: &OpenParams<'_>,
) -> Result<(ThreadRow, bool), ErrorObject> {
    let refused = |error: Error| session_error(&error, source);
    let row = connection.thread(source.as_str()).await.map_err(refused)?;
    // The copy of a sub-agent's session is an ordinary one.
    let Value::Object(mut metadata) = without_subagent(&row.metadata).to_value() else {
        return Err(mapping::error_object(&Error::new(
            Code::Internal,
            "the metadata is no object",
        )));
    };
    metadata.extend(open.metadata());
    metadata.remove(ARCHIVED);
    metadata.insert(AGENT.to_owned(), connection.agent.as_str().into());
    metadata.retain(|_, value| !value.is_null());
    let metadata = Some(Json::from_value(&Value::Object(metadata)));
    let (runtime, by) = (connection.runtime(), &connection.principal);
    let new = NewThread { id: id.clone(), metadata, has_checked_settings: true };
    let copied = match until {
        None => runtime.copy_thread(by, &row.id, new).await,
        Some(number) => runtime.copy_thread_until_event(by, &row.id, number, new).await,
    };
    match (copied, id) {
        (Ok(copy), _) => Ok((copy, true)),
        (Err(error), Some(id)) if error.code() == Code::AlreadyExists => {
            let found = connection.thread(id.as_str()).await;
            found.map(|row| (row, false)).map_err(|error| mapping::error_object(&error))
        }
        (Err(error), _) if error.code() == Code::NotFound => Err(no_cursor()),
        (Err(error), _) => Err(refused(error)),
    }
}

fn no_cursor() -> ErrorObject {
    invalid_params("/cursorId", "is not a cursor of this session's history")
}
