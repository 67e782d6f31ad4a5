//! What the protocol has no word for, and what only the agent knows: put through to agents that speak the protocol themselves.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::ThreadId;
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{
    AuthenticateRequest, LogoutRequest, method, splice, without_parameters,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::calls::{SessionClient, error_object};
use super::connection::{answering, session_in};
use super::lane::Lane;
use super::link::{Answer, Link, Met};
use super::request::{Asked, invalid_params, read, to_json};
use super::session::Session;
use super::{open, option};

/// Methods that give sessions of the agent's own to the client, which is to know ours only.
const NOT_PUT_THROUGH: &[&str] = &[
    "session/fork",
    "session/archive",
    "session/unarchive",
    "session/status",
    "session/set_title",
    "proxy/initialize",
    "proxy/successor",
];

/// A request for a session that the protocol has no word for. It begins behind what was asked of its session before, and what comes behind it waits only until the agent has it: what it answers may hang on what it is told next.
pub(super) fn enqueue(
    link: &Arc<Link>,
    met: Arc<Met>,
    asked: Asked,
    params: String,
    session: &ThreadId,
    token: CancellationToken,
) {
    let worker = Arc::clone(link);
    link.in_order(session, |lane| {
        let lane = Arc::clone(lane);
        async move {
            let (begun, has_begun) = oneshot::channel();
            let link = Arc::clone(&worker);
            worker.tasks.spawn(async move {
                let closed = link.closed.clone();
                let work = async {
                    Some(call(&link, &met, Some(&lane), &asked.method, &params, Some(begun)).await)
                };
                tokio::select! {
                    () = answering(&link, asked.id.clone(), token, work) => {}
                    () = closed.cancelled() => {}
                }
            });
            // Whether it has begun or was refused.
            drop(has_begun.await);
        }
    });
}

/// A request that the protocol has no word for. `begun` is told when the agent has it.
pub(super) async fn call(
    link: &Arc<Link>,
    met: &Met,
    lane: Option<&Arc<Lane>>,
    name: &str,
    params: &str,
    begun: Option<oneshot::Sender<()>>,
) -> Answer {
    let is_hosted = link.backend().is_ok_and(|backend| backend.sessions().is_some());
    // A method of the protocol is asked of the other side, or told.
    if !is_hosted
        || method(name).is_some()
        || name.starts_with("$/")
        || NOT_PUT_THROUGH.contains(&name)
    {
        return Err(ErrorObject::method_not_found(name));
    }
    let session = match lane {
        None => None,
        Some(lane) => {
            let session = open::open(link, met, lane).await?;
            option::start(link, &session).await;
            Some(session)
        }
    };
    if let Some(session) = &session {
        open::open_when_needed(link, met, session).await?;
    }
    let mut forwarded = std::pin::pin!(forward(link, met, session.as_deref(), name, params));
    // An agent whose session is open takes a request at once.
    if let Some(answer) = forwarded.as_mut().now_or_never() {
        return answer;
    }
    drop(begun);
    forwarded.await
}

/// Puts a request through to a hosted agent, and gives its answer as it came.
pub(super) async fn forward(
    link: &Arc<Link>,
    met: &Met,
    session: Option<&Session>,
    name: &str,
    params: &str,
) -> Answer {
    let backend = link.backend().map_err(|error| mapping::error_object(&error))?;
    let Some(sessions) = backend.sessions() else {
        return Err(ErrorObject::method_not_found(name));
    };
    if let Some(session) = session {
        open::open_when_needed(link, met, session).await?;
    }
    let params = cut(params, session)?;
    let context =
        session.map(|session| link.runtime().thread_context(&session.thread, &link.agent));
    let caller = SessionClient::caller(link, met);
    let result = sessions.call(context.as_ref(), &caller, name, params).await;
    result.map(|result| result.as_bytes().to_vec()).map_err(|error| error_object(&error))
}

/// What is carried, without the session's id.
fn cut(params: &str, session: Option<&Session>) -> Result<trilogue_domain::Json, ErrorObject> {
    let params = without_parameters(params);
    let cut = session.and_then(|_| splice::cut_session(&params)).map(|(cut, _)| cut);
    to_json(cut.as_deref().unwrap_or(&params))
}

/// `authenticate` and `logout`.
pub(super) async fn authentication(
    link: &Arc<Link>,
    met: &Met,
    name: &str,
    params: &str,
) -> Answer {
    let is_hosted = link.backend().is_ok_and(|backend| backend.sessions().is_some());
    if name == "authenticate" {
        read::<AuthenticateRequest>(link, params)?;
        if !is_hosted {
            return Err(invalid_params(
                "/methodId",
                "is none of the ways to authenticate, of which there are none",
            ));
        }
    } else {
        read::<LogoutRequest>(link, params)?;
        if !is_hosted {
            return Err(ErrorObject::method_not_found(name));
        }
    }
    let result = forward(link, met, None, name, params).await?;
    Ok(if result == b"null" { b"{}".to_vec() } else { result })
}

/// A notification that the protocol has no word for. It keeps its place among what was asked of its session; one of a session that the client has not open is nobody's.
pub(super) fn tell(link: &Arc<Link>, name: &str, params: &str) {
    let Some(met) = link.met() else { return };
    let is_hosted = link.backend().is_ok_and(|backend| backend.sessions().is_some());
    if !is_hosted || NOT_PUT_THROUGH.contains(&name) {
        return;
    }
    let lane = match splice::get(params, &["sessionId"]) {
        None => Arc::clone(&link.nameless),
        Some(_) => match session_in(params).and_then(|id| link.known_lane(&id)) {
            Some(lane) => lane,
            None => return tracing::debug!(name, "what was told of no session is let go by"),
        },
    };
    let Ok(told) = Arc::clone(&link.told).try_acquire_owned() else {
        return tracing::warn!(name, "a client tells more than its agent hears: let go by");
    };
    let (worker, name, params) = (Arc::clone(link), name.to_owned(), params.to_owned());
    let of_lane = Arc::clone(&lane);
    let work = async move {
        deliver(&worker, &met, &of_lane, &name, &params).await;
        drop(told);
    };
    lane.push(link, Box::pin(work));
}

async fn deliver(link: &Arc<Link>, met: &Met, lane: &Arc<Lane>, name: &str, params: &str) {
    let is_nameless = Arc::ptr_eq(lane, &link.nameless);
    let session = lane.session();
    if session.is_none() && !is_nameless {
        return;
    }
    let Ok(params) = cut(params, session.as_deref()) else { return };
    let Ok(backend) = link.backend() else { return };
    let Some(sessions) = backend.sessions() else { return };
    let context =
        session.map(|session| link.runtime().thread_context(&session.thread, &link.agent));
    let caller = SessionClient::caller(link, met);
    sessions.notify(context.as_ref(), &caller, name, params).await;
}
