//! What the protocol has no word for, and what only the agent knows: put through to agents that speak the protocol themselves.

use std::sync::Arc;

use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{AuthenticateRequest, LogoutRequest, method, splice};
use trilogue_wire::jsonrpc::ErrorObject;

use super::calls::error_object;
use super::connection::session_in;
use super::lane::Lane;
use super::link::{Answer, Link, Met};
use super::request::{invalid_params, read, to_json};
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

/// A request that the protocol has no word for.
pub(super) async fn call(
    link: &Arc<Link>,
    met: &Met,
    lane: Option<&Arc<Lane>>,
    name: &str,
    params: &str,
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
            let session = open::open(link, met, lane, None).await?;
            option::start(link, &session).await;
            Some(session)
        }
    };
    forward(link, met, session.as_deref(), name, params).await
}

/// Puts a request through to a hosted agent, and gives its answer as it came.
pub(super) async fn forward(
    link: &Link,
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
        open::open_when_needed(link, session).await?;
    }
    let params = cut(params, session)?;
    let context =
        session.map(|session| link.runtime().thread_context(&session.thread, &link.agent));
    let result = sessions.call(context.as_ref(), &met.profile, name, params).await;
    result.map(|result| result.as_bytes().to_vec()).map_err(|error| error_object(&error))
}

/// What is carried, without the session's id.
fn cut(params: &str, session: Option<&Session>) -> Result<trilogue_domain::Json, ErrorObject> {
    let cut = session.and_then(|_| splice::cut_session(params)).map(|(cut, _)| cut);
    to_json(cut.as_deref().unwrap_or(params))
}

/// `authenticate` and `logout`.
pub(super) async fn authentication(link: &Link, met: &Met, name: &str, params: &str) -> Answer {
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

/// A notification that the protocol has no word for.
pub(super) fn tell(link: &Arc<Link>, name: &str, params: &str) {
    let Some(met) = link.met() else { return };
    let is_hosted = link.backend().is_ok_and(|backend| backend.sessions().is_some());
    if !is_hosted || NOT_PUT_THROUGH.contains(&name) {
        return;
    }
    let session = session_in(params).and_then(|id| link.known_lane(&id)?.session());
    let Ok(params) = cut(params, session.as_deref()) else { return };
    let (link, name) = (Arc::clone(link), name.to_owned());
    link.tasks.clone().spawn(async move {
        let Ok(backend) = link.backend() else { return };
        let Some(sessions) = backend.sessions() else { return };
        let context =
            session.map(|session| link.runtime().thread_context(&session.thread, &link.agent));
        sessions.notify(context.as_ref(), &met.profile, &name, params).await;
    });
}
