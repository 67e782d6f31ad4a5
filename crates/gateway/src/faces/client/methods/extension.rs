//! Authentication and methods outside of the protocol: forwarded to agents that speak the protocol themselves.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Json, ThreadId};
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::{
    AuthenticateRequest, LogoutRequest, method, splice, without_parameters,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::super::asking::agent_calls::{AgentCalls, error_object};
use super::super::connection::queue::SessionQueue;
use super::super::connection::session::ClientSession;
use super::super::connection::{ClientConnection, Handshake};
use super::super::wire::lines::MethodResult;
use super::open;
use super::request::{
    IncomingRequest, backend_of, invalid_params, read, respond_when_done, session_error,
    session_in, to_json,
};

/// Methods between an agent and its own proxies.
const NOT_FORWARDED: &[&str] = &["proxy/initialize", "proxy/successor"];

/// Forwards a request in the order of its session. The next request waits only until the agent has this one, because the response may depend on the next.
pub(super) fn enqueue(
    connection: &Arc<ClientConnection>,
    handshake: Arc<Handshake>,
    request: IncomingRequest,
    session: &ThreadId,
    token: CancellationToken,
) {
    let worker = Arc::clone(connection);
    connection.queues.enqueue(session, |queue| {
        let queue = Arc::clone(queue);
        async move {
            let (sent, was_sent) = oneshot::channel();
            let connection = Arc::clone(&worker);
            worker.tasks.spawn(async move {
                let closed = connection.closed.clone();
                let IncomingRequest { id, method, params, .. } = request;
                let (queue, sent) = (Some(&queue), Some(sent));
                let work = async {
                    Some(call(&connection, &handshake, queue, &method, &params, sent).await)
                };
                tokio::select! {
                    () = respond_when_done(&connection, id, token, work) => {}
                    () = closed.cancelled() => {}
                }
            });
            // Continue when the agent has the request or it was refused.
            drop(was_sent.await);
        }
    });
}

/// Forwards a request. `sent` is dropped when the agent has it.
pub(super) async fn call(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: Option<&Arc<SessionQueue>>,
    name: &str,
    params: &str,
    sent: Option<oneshot::Sender<()>>,
) -> MethodResult {
    // A protocol method that reaches this point belongs to the other direction.
    if !connection.is_hosted()
        || method(name).is_some()
        || name.starts_with("$/")
        || NOT_FORWARDED.contains(&name)
    {
        return Err(ErrorObject::method_not_found(name));
    }
    let session = match queue {
        None => None,
        Some(queue) => {
            let session = open::open(connection, handshake, queue).await?;
            open::begin_live(connection, &session).await;
            open::open_agent_session_if_needed(connection, handshake, &session).await?;
            Some(session)
        }
    };
    let forwarded = forward(connection, handshake, session.as_deref(), name, params);
    let mut forwarded = std::pin::pin!(forwarded);
    // An agent whose session is open receives a request at the first poll.
    if let Some(result) = forwarded.as_mut().now_or_never() {
        return result;
    }
    drop(sent);
    forwarded.await
}

/// Forwards a request to a hosted agent and returns its response unchanged.
pub(super) async fn forward(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    session: Option<&ClientSession>,
    name: &str,
    params: &str,
) -> MethodResult {
    let backend = backend_of(connection)?;
    let Some(sessions) = backend.sessions() else {
        return Err(ErrorObject::method_not_found(name));
    };
    if let Some(session) = session {
        let brought = connection.take_over_thread(&session.thread).await;
        brought.map_err(|error| session_error(&error, &session.thread.id))?;
        open::open_agent_session_if_needed(connection, handshake, session).await?;
    }
    let params = without_session(params, session)?;
    let context = session
        .map(|session| connection.runtime().thread_context(&session.thread, &connection.agent));
    let caller = AgentCalls::of_request(connection, handshake);
    let result = sessions.call(context.as_ref(), &caller, name, params).await;
    result.map(|result| result.as_bytes().to_vec()).map_err(|error| error_object(&error))
}

/// Returns the parameters without our session id.
fn without_session(params: &str, session: Option<&ClientSession>) -> Result<Json, ErrorObject> {
    let params = without_parameters(params);
    let cut = session.and_then(|_| splice::cut_session(&params)).map(|(cut, _)| cut);
    to_json(cut.as_deref().unwrap_or(&params))
}

/// Processes `authenticate` and `logout`.
pub(super) async fn authentication(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    name: &str,
    params: &str,
) -> MethodResult {
    let is_hosted = connection.is_hosted();
    if name == "authenticate" {
        read::<AuthenticateRequest>(connection, params)?;
        if !is_hosted {
            let message = "is unknown: the agent has no authentication methods";
            return Err(invalid_params("/methodId", message));
        }
    } else {
        read::<LogoutRequest>(connection, params)?;
        if !is_hosted {
            return Err(ErrorObject::method_not_found(name));
        }
    }
    let result = forward(connection, handshake, None, name, params).await?;
    Ok(if result == b"null" { b"{}".to_vec() } else { result })
}

/// Forwards a notification in the order of its session. Drops it if the client does not have the session open.
pub(super) fn notify(connection: &Arc<ClientConnection>, name: &str, params: &str) {
    let Some(handshake) = connection.handshake() else { return };
    if !connection.is_hosted() || NOT_FORWARDED.contains(&name) {
        return;
    }
    let queue = match splice::get(params, &["sessionId"]) {
        None => Arc::clone(&connection.queues.nameless),
        Some(_) => match session_in(params).and_then(|id| connection.queues.get(&id)) {
            Some(queue) => queue,
            None => return tracing::debug!(name, "notification dropped: its session is not open"),
        },
    };
    let Ok(permit) = Arc::clone(&connection.notifications).try_acquire_owned() else {
        return tracing::warn!(name, "notification dropped: too many wait for the agent");
    };
    let (worker, name, params) = (Arc::clone(connection), name.to_owned(), params.to_owned());
    let of_work = Arc::clone(&queue);
    connection.queues.push(&queue, async move {
        deliver(&worker, &handshake, &of_work, &name, &params).await;
        // Held until here: it bounds the notifications that wait for the agent.
        drop(permit);
    });
}

/// Passes the cancellation of a session without an open run on to its hosted agent, which may work all the same.
pub(super) async fn cancel_outside_runs(connection: &Arc<ClientConnection>, thread: &ThreadRow) {
    let Some(handshake) = connection.handshake().filter(|_| connection.is_hosted()) else { return };
    let Ok(backend) = connection.backend() else { return };
    let Some(sessions) = backend.sessions() else { return };
    let context = connection.runtime().thread_context(thread, &connection.agent);
    let caller = AgentCalls::of_request(connection, &handshake);
    sessions.notify(Some(&context), &caller, "session/cancel", Json::empty_object()).await;
}

async fn deliver(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    name: &str,
    params: &str,
) {
    let is_nameless = Arc::ptr_eq(queue, &connection.queues.nameless);
    let session = queue.session();
    if session.is_none() && !is_nameless {
        return;
    }
    let Ok(params) = without_session(params, session.as_deref()) else { return };
    let Ok(backend) = connection.backend() else { return };
    let Some(sessions) = backend.sessions() else { return };
    let context = session
        .map(|session| connection.runtime().thread_context(&session.thread, &connection.agent));
    let caller = AgentCalls::of_request(connection, handshake);
    sessions.notify(context.as_ref(), &caller, name, params).await;
}
