//! What every request goes through, in order: host and origin, route, caller and right, body, handler.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use tracing::Instrument;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use crate::access::cors;
use crate::access::schemes::Challenge;
use crate::faces::connect;
use crate::http::body::ReplyBody;
use crate::http::call::Call;
use crate::http::receive;
use crate::http::reply::{DURABILITY, REQUEST_ID, Reply};
use crate::mount::{self, Mount};
use crate::routes::{Access, Match, Route};
use crate::shared::Shared;
use crate::trace::{self, TRACEPARENT, Trace};

/// Answers a request. Never fails: an error is an answer too.
pub(crate) async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Response<ReplyBody> {
    let begun = Instant::now();
    let (head, body) = request.into_parts();
    let trace = Trace::of(&head.headers);
    let chosen = trace::chosen_request_id(&head.headers);
    let is_chosen = chosen.is_some();
    let request_id = chosen.map_or_else(|| shared.next_request_id(), ToOwned::to_owned);
    let origin = shared.guard.allowed_origin(&head.headers);
    let is_head = head.method == Method::HEAD;
    let (route, mut reply) = match find(&shared, &head) {
        Ok((number, found)) => {
            let mount = found.mount.clone();
            let span = trace.span(found.route.operation, &request_id, is_chosen);
            let challenge = Arc::default();
            let answering = answer(&shared, found, head, body, &challenge).instrument(span);
            let reply = match AssertUnwindSafe(answering).catch_unwind().await {
                Ok(reply) => reply,
                Err(_) => {
                    shared.meters.panics.increment(1);
                    Err(Error::new(Code::Internal, "the handler panicked"))
                }
            };
            let reply = reply.unwrap_or_else(|error| {
                let reply = mount::respond(mount.as_deref(), &error, Some(&request_id));
                match challenge.get() {
                    Some(challenge) => mount::challenge(reply, mount.as_deref(), challenge),
                    None => reply,
                }
            });
            (Some(number), reply)
        }
        Err(refusal) => {
            let asked = origin.is_some() && cors::is_preflight(&head);
            let mount = shared.router.mount(head.uri.path());
            (None, refuse(&shared, mount, &refusal, asked, &request_id))
        }
    };
    if let Some(route) = route {
        shared.meters.answered(route, reply.status(), begun.elapsed());
    }
    reply = reply.header_text(REQUEST_ID, &request_id);
    if let Some(parent) = trace.parent {
        reply = reply.header(TRACEPARENT, parent);
    }
    if let Some(durability) = &shared.weak_durability {
        reply = reply.header(DURABILITY, HeaderValue::clone(durability));
    }
    if let Some(origin) = origin {
        reply = origin.mark(reply);
    }
    let response = reply.into_response();
    if is_head { response.map(|_| ReplyBody::Whole(None)) } else { response }
}

/// A refusal before a handler was found.
struct Refusal {
    error: Error,
    /// The methods that the path has, where it has not this one.
    allow: Option<String>,
}

fn find<'a>(shared: &'a Shared, head: &Parts) -> Result<(usize, Match<'a>), Refusal> {
    let plain = |error| Refusal { error, allow: None };
    shared.guard.check(head).map_err(plain)?;
    shared
        .router
        .find(&head.method, head.uri.path())
        .map_err(|miss| Refusal { error: miss.error, allow: miss.allow })
}

/// Answers what has no handler; where a browser `asked` for the methods of a path, that is no refusal.
fn refuse(
    shared: &Shared,
    mount: Option<&Arc<Mount>>,
    refusal: &Refusal,
    asked: bool,
    request_id: &str,
) -> Reply {
    if let (true, Some(methods)) = (asked, &refusal.allow) {
        return cors::preflight(methods);
    }
    shared.meters.refused(refusal.error.code());
    let reply = mount::respond(mount.map(Arc::as_ref), &refusal.error, Some(request_id));
    match &refusal.allow {
        Some(allow) => reply.header_text(header::ALLOW, allow),
        None => reply,
    }
}

async fn answer(
    shared: &Arc<Shared>,
    found: Match<'_>,
    head: Parts,
    body: Incoming,
    challenge: &Arc<OnceLock<Challenge>>,
) -> Result<Reply> {
    let route: &Route = found.route;
    let gatekeeper = &shared.gatekeeper;
    let caller = match route.access {
        Access::Public if found.mount.is_none() => None,
        Access::Public => Some(gatekeeper.admit_to_public(&head.headers).await),
        Access::Right(right) => {
            let caller = gatekeeper.admit(&head.headers).await?;
            caller.principal.require(right)?;
            Some(caller)
        }
        Access::Agent(right) => {
            let caller = match gatekeeper.admit_to_agents(&head.headers).await {
                Ok(caller) => caller,
                Err(error) => return Err(unknown(shared, &found, body, error, challenge).await),
            };
            caller.principal.require(right)?;
            Some(caller)
        }
    };
    let query = read_query(route, head.uri.query().unwrap_or_default())?;
    let Some(caller) = caller else {
        return crate::faces::native::meta::public_answer(shared, route.operation);
    };
    let body = receive::body(body, &shared.options).await?;
    let call = Call {
        shared: Arc::clone(shared),
        caller,
        mount: found.mount,
        authority: head.uri.authority().cloned(),
        headers: head.headers,
        params: found.params,
        query,
        body,
        challenge: Arc::clone(challenge),
    };
    (route.handler)(call).await
}

/// Tells a caller whom nobody knows what the agent takes that the request is for, where it names one. Anybody may know that: see the agent's authentication.
async fn unknown(
    shared: &Shared,
    found: &Match<'_>,
    body: Incoming,
    error: Error,
    challenge: &OnceLock<Challenge>,
) -> Error {
    if error.code() != Code::Unauthenticated {
        return error;
    }
    let Some(agent) = connect::asked_agent(shared, found, body).await else { return error };
    let (named, hint) = shared.gatekeeper.challenge_of(&agent);
    // An agent that takes everybody asks for nothing.
    if named.ways.is_empty() {
        return error;
    }
    drop(challenge.set(named));
    error.hint(hint)
}

/// The query's parameters, each of which the route must know.
fn read_query(route: &Route, query: &str) -> Result<Vec<(String, String)>> {
    let read: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    let known = |name: &str| {
        route.query.iter().any(|parameter| match parameter.name.strip_suffix('*') {
            Some("") => true,
            Some(prefix) => name.starts_with(prefix) && name.len() > prefix.len(),
            None => parameter.name == name,
        })
    };
    match read.iter().find(|(name, _)| !known(name)) {
        None => Ok(read),
        Some((name, _)) => {
            let names: Vec<_> = route.query.iter().map(|parameter| parameter.name).collect();
            let hint = if names.is_empty() {
                "this route takes no query parameters".to_owned()
            } else {
                format!("this route takes: {}", names.join(", "))
            };
            let name = crate::http::call::shown(name);
            Err(Error::new(
                Code::InvalidRequest,
                format!("the query parameter '{name}' is not known"),
            )
            .hint(hint))
        }
    }
}
