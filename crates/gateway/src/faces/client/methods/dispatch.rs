//! Dispatches a client's requests and notifications by method.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;
use trilogue_domain::ThreadId;
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{
    self as wire, CancelRequestNotification, Id as WireId, Read, Rules, method, splice,
};
use trilogue_wire::jsonrpc::{Code, ErrorObject};
use trilogue_wire::native::local::ATTACH_METHOD;

use super::super::asking::agent_calls::on_behalf_of;
use super::super::connection::queue::SessionQueue;
use super::super::connection::requests::{Admission, CancelTarget};
use super::super::connection::{ClientConnection, Handshake};
use super::super::wire::lines::MethodResult;
use super::request::{
    IncomingRequest, invalid_params, is_attach, read, respond_when_done, session_in,
};
use super::{
    cancel, close, extension, fork, initialize, list, open, option, prompt, rights, upkeep,
};
use crate::core::not_found::no_thread;

/// Begins to process a request. Returns it if too many are being processed.
pub(crate) async fn dispatch(
    connection: &Arc<ClientConnection>,
    mut request: IncomingRequest,
) -> Option<IncomingRequest> {
    if request.method == "initialize" {
        connection.has_sent_initialize.store(true, Ordering::Relaxed);
        // The client's next line is read only after the response.
        let work = initialize::initialize(connection, &request.params);
        let result = on_behalf_of(request.id.clone(), work).await;
        connection.respond_unadmitted(&request.id, result).await;
        return None;
    }
    let Some(handshake) = connection.handshake() else {
        let message = format!("Invalid request: {} came before initialize", request.method);
        let error = ErrorObject::new(Code::INVALID_REQUEST, message);
        connection.respond_unadmitted(&request.id, Err(error)).await;
        return None;
    };
    let token = CancellationToken::new();
    let target = CancelTarget::Other(token.clone());
    let held = &mut request.held;
    match connection.requests.admit(&request.id, request.bytes, held, target) {
        Admission::Admitted => process(connection, handshake, request, token),
        Admission::Full => return Some(request),
        Admission::DuplicateId => {
            connection.state.repeated_ids.increment(1);
            let message = "Invalid request: another request of this id is not answered yet";
            let error = ErrorObject::new(Code::INVALID_REQUEST, message);
            connection.respond_unadmitted(&request.id, Err(error)).await;
        }
    }
    None
}

fn process(
    connection: &Arc<ClientConnection>,
    handshake: Arc<Handshake>,
    request: IncomingRequest,
    token: CancellationToken,
) {
    let name = request.method.as_str();
    if let Err(error) = rights::check(connection, name) {
        return refuse(connection, request, error);
    }
    match session_in(&request.params) {
        Some(session) if changes_session(name) && is_child(connection, &session) => {
            let error = refuse_child(name);
            refuse(connection, request, error);
        }
        Some(session) if name == "session/prompt" => {
            prompt::enqueue(connection, handshake, request, &session, token);
        }
        Some(session) if method(name).is_none() && !is_attach(connection, name) => {
            extension::enqueue(connection, handshake, request, &session, token);
        }
        Some(session) if is_session_method(connection, name) => {
            let worker = Arc::clone(connection);
            connection.queues.enqueue(&session, |queue| {
                let queue = Arc::clone(queue);
                async move {
                    let id = request.id.clone();
                    let work = in_session(&worker, &handshake, &queue, request);
                    respond_when_done(&worker, id, token, work).await;
                }
            });
        }
        _ => {
            let connection = Arc::clone(connection);
            connection.tasks.clone().spawn(async move {
                let (id, closed) = (request.id.clone(), connection.closed.clone());
                let work = outside_sessions(&connection, &handshake, request);
                tokio::select! {
                    () = respond_when_done(&connection, id, token, work) => {}
                    () = closed.cancelled() => {}
                }
            });
        }
    }
}

fn refuse(connection: &Arc<ClientConnection>, request: IncomingRequest, error: ErrorObject) {
    let connection = Arc::clone(connection);
    connection.tasks.clone().spawn(async move {
        connection.respond(&request.id, Err(error)).await;
    });
}

/// Whether requests of this method change a session. A client cannot change the session of a sub-agent with them.
fn changes_session(name: &str) -> bool {
    matches!(
        name,
        "session/prompt"
            | "session/close"
            | "session/delete"
            | "session/set_mode"
            | "session/set_config_option"
            | "session/set_title"
            | "session/archive"
            | "session/unarchive"
    )
}

/// Whether the client knows a session only as a sub-agent's.
fn is_child(connection: &ClientConnection, session: &ThreadId) -> bool {
    connection.children.can_cancel(session).is_some()
        && connection.queues.get(session).is_none_or(|queue| queue.session().is_none())
}

fn refuse_child(method: &str) -> ErrorObject {
    let message = format!(
        "is the session of a sub-agent, which takes no {method}; only its parent sends it prompts"
    );
    invalid_params("/sessionId", message)
}

/// Whether requests of this method belong to one session.
fn is_session_method(connection: &ClientConnection, name: &str) -> bool {
    match name {
        "session/load"
        | "session/resume"
        | "session/close"
        | "session/delete"
        | "session/set_mode"
        | "session/set_config_option"
        | "session/fork"
        | "session/status"
        | "session/set_title"
        | "session/archive"
        | "session/unarchive" => true,
        name => is_attach(connection, name),
    }
}

async fn in_session(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    request: IncomingRequest,
) -> Option<MethodResult> {
    let params = &request.params;
    match request.method.as_str() {
        "session/load" => open::load(connection, handshake, queue, &request).await.transpose(),
        "session/resume" => open::resume(connection, handshake, queue, &request).await.transpose(),
        "session/close" => Some(close::close(connection, queue, params).await),
        "session/delete" => Some(close::delete(connection, queue, params).await),
        "session/set_mode" => Some(option::set_mode(connection, handshake, queue, params).await),
        "session/set_config_option" => {
            Some(option::set_config_option(connection, handshake, queue, params).await)
        }
        "session/fork" => {
            let source = queue.id.clone();
            fork::fork(connection, handshake, &source, request).await.transpose()
        }
        "session/status" => Some(upkeep::status(connection, &queue.id, params).await),
        "session/set_title" => Some(upkeep::set_title(connection, &queue.id, params).await),
        "session/archive" => Some(upkeep::archive(connection, queue, params).await),
        "session/unarchive" => Some(upkeep::unarchive(connection, &queue.id, params).await),
        _ => open::attach(connection, handshake, queue, &request).await.transpose(),
    }
}

async fn outside_sessions(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    request: IncomingRequest,
) -> Option<MethodResult> {
    let params = &request.params;
    Some(match request.method.as_str() {
        "session/new" => return open::new(connection, handshake, request).await.transpose(),
        "session/list" => list::list(connection, params).await,
        "session/options" => upkeep::options(connection, handshake, params).await,
        name @ ("authenticate" | "logout") => {
            extension::authentication(connection, handshake, name, params).await
        }
        // The session id of these requests is missing or invalid.
        "session/prompt" => no_session::<wire::PromptRequest>(connection, params),
        "session/load" => no_session::<wire::LoadSessionRequest>(connection, params),
        "session/resume" => no_session::<wire::ResumeSessionRequest>(connection, params),
        "session/close" => no_session::<wire::CloseSessionRequest>(connection, params),
        "session/fork" => no_session::<wire::ForkSessionRequest>(connection, params),
        "session/status" => no_session::<wire::SessionStatusRequest>(connection, params),
        "session/set_title" => no_session::<wire::SetSessionTitleRequest>(connection, params),
        "session/archive" => no_session::<wire::ArchiveSessionRequest>(connection, params),
        "session/unarchive" => no_session::<wire::UnarchiveSessionRequest>(connection, params),
        // Deleting a session that cannot exist succeeds.
        "session/delete" => {
            read::<wire::DeleteSessionRequest>(connection, params).map(|_| b"{}".to_vec())
        }
        "session/set_mode" => no_session::<wire::SetSessionModeRequest>(connection, params),
        "session/set_config_option" => {
            no_session::<wire::SetSessionConfigOptionRequest>(connection, params)
        }
        ATTACH_METHOD => {
            let message = "Invalid request: it must be the first message of a WebSocket";
            Err(ErrorObject::new(Code::INVALID_REQUEST, message))
        }
        name => extension::call(connection, handshake, None, name, params, None).await,
    })
}

/// The error of a request whose session id is missing or invalid.
fn no_session<T: Read>(connection: &ClientConnection, params: &str) -> MethodResult {
    read::<T>(connection, params)?;
    let session = splice::get_text(params, &["sessionId"]).unwrap_or_default();
    Err(mapping::session_error(&no_thread(&session), &session))
}

pub(crate) fn on_notification(connection: &Arc<ClientConnection>, name: &str, params: &str) {
    if !name.starts_with("$/") && rights::check(connection, name).is_err() {
        return tracing::debug!(name, "notification dropped: its client lacks the right");
    }
    match name {
        "session/cancel" => {
            if let Some(session) = session_in(params) {
                if is_child(connection, &session)
                    && connection.children.can_cancel(&session) == Some(false)
                {
                    return tracing::debug!(thread = %session, "sub-agent cannot be cancelled");
                }
                cancel::cancel_session(connection, &session);
            }
        }
        "$/cancel_request" => {
            let read = wire::read::<CancelRequestNotification>(params.as_bytes(), Rules::Lenient);
            if let Ok(CancelRequestNotification { request_id, .. }) = read {
                cancel_request(connection, &request_id);
            }
        }
        name if name.starts_with("$/") || method(name).is_some() => {}
        name => extension::notify(connection, name, params),
    }
}

fn cancel_request(connection: &Arc<ClientConnection>, id: &WireId<'_>) {
    match connection.requests.cancel_target(id) {
        Some(CancelTarget::Prompt { queue, token }) => {
            cancel::cancel_prompt(connection, &queue, &token, id);
        }
        Some(CancelTarget::Other(token)) => token.cancel(),
        None => {}
    }
}
