//! The steps of every request, in order: host and origin, route, caller and right, body, handler.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use hyper::body::Incoming;
use tracing::Instrument;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Principal, Right};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::Admin;

use crate::access::agent_check::{AgentCheck, CallerConnection, ConnectionEnds, refused_agent};
use crate::access::authenticator::{Authenticator, Caller, no_token, shows_token};
use crate::access::failed_sign_ins::{self, FailedSignIns};
use crate::access::origin_guard::OriginGuard;
use crate::access::page_session;
use crate::access::schemes::Challenge;
use crate::access::tickets::shown_ticket;
use crate::core::audit::{AuditActor, AuditEvent, FailureLimit, RefusalLimits, audit};
use crate::core::meters::Meters;
use crate::core::opened_folders::OpenedFolders;
use crate::core::options::{self, Options};
use crate::core::ports::AgentProcesses;
use crate::core::render_turns::{RenderTurns, RequestTurn};
use crate::face::{UnknownCaller, challenged};
use crate::http::body::ReplyBody;
use crate::http::connection::ServedResponse;
use crate::http::connections::ConnectionUse;
use crate::http::forward::{self, Forwarder, OtherNode, TakeOverWait};
use crate::http::receive::BodyBudget;
use crate::http::reply::{DURABILITY, REQUEST_ID, Reply};
use crate::http::request::Request;
use crate::http::trace::{self, TRACEPARENT, Trace};
use crate::http::{cors, receive, upgrade};
use crate::mounts::{Match, Router};
use crate::route::{Access, Endpoint};
use trilogue_runtime::shares::{HeldShare, Shares};

/// The most searches of one principal that work at a time: fewer than the store's readers.
pub(crate) const MAX_SEARCHES_PER_PRINCIPAL: usize = 3;
/// The operations that take a sign-in code, or the secret of a login.
const SIGN_INS: [&str; 3] = ["sign_in", "look_up_sign_in_link", "collect_login"];

/// The operation that takes tickets.
const TICKET_OPERATION: &str = "client_open";

#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) options: Arc<Options>,
    pub(crate) guard: OriginGuard,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) router: Router,
    pub(crate) meters: Arc<Meters>,
    pub(crate) agent_processes: Arc<dyn AgentProcesses>,
    /// Set if an acknowledged event is less durable than with fsync.
    pub(crate) weak_durability: Option<HeaderValue>,
    pub(crate) failures: FailureLimit,
    pub(crate) failed_sign_ins: FailedSignIns,
    pub(crate) agent_refusals: RefusalLimits,
    pub(crate) request_refusals: RefusalLimits,
    pub(crate) opened_folders: OpenedFolders,
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) response_budget: Arc<BodyBudget>,
    /// RenderTurns to render large responses.
    pub(crate) turns: Arc<RenderTurns>,
    /// The requests in progress of each principal.
    pub(crate) requests: Arc<Shares>,
    /// The searches of each principal at work.
    pub(crate) searches: Arc<Shares>,
    /// Set if several nodes share the store.
    pub(crate) forwarder: Option<Forwarder>,
    pub(crate) admin: Arc<dyn Admin>,
}

/// The sender of a request, and what the pipeline needs to admit it.
#[derive(Clone)]
struct IncomingCaller {
    caller: Caller,
    right: Option<Right>,
    agent_check: AgentCheck,
}

struct Refusal {
    error: Error,
    /// The methods of the path, if it does not have the request's method.
    allow: Option<String>,
}

// === impl Pipeline ===

impl Pipeline {
    /// Answers a request. It never fails: errors become responses too.
    pub(crate) async fn answer(
        &self,
        request: http::Request<Incoming>,
        connection: Option<Arc<CallerConnection>>,
    ) -> ServedResponse {
        let begun = Instant::now();
        let ends = connection.as_ref().map(|connection| connection.ends);
        let (head, body) = request.into_parts();
        let trace = Trace::of(&head.headers);
        let chosen = trace::chosen_request_id(&head.headers);
        let is_chosen = chosen.is_some();
        let request_id = chosen.map_or_else(new_request_id, ToOwned::to_owned);
        let origin = self.guard.allowed_origin(&head.headers);
        let is_head = head.method == Method::HEAD;
        let answered_node = forward::answered_node(&head.headers, &self.options.node_name);
        let mut is_authenticated = false;
        let mut reply = match self.find(&head) {
            Ok(found) => {
                let (face, meters) = (found.face, found.meters);
                let operation = found.endpoint.operation;
                let shows_token =
                    shows_token(&head.headers) || shows_only_ticket(operation, &head.headers);
                let span = trace.span(found.endpoint.operation, &request_id, is_chosen);
                let challenge = Arc::default();
                let handling =
                    self.handle(found, (head, body), connection, &challenge, &mut is_authenticated);
                let handling = handling.instrument(span);
                let reply = match AssertUnwindSafe(handling).catch_unwind().await {
                    Ok(reply) => reply,
                    Err(_) => {
                        self.meters.panics.increment(1);
                        Err(Error::new(Code::Internal, "the handler panicked"))
                    }
                };
                // A valid token can also be refused, by an agent that accepts another scheme. That is not a failed sign-in.
                let is_failure =
                    SIGN_INS.contains(&operation) || (shows_token && !is_authenticated);
                let reply = reply.unwrap_or_else(|error| {
                    if error.code() == Code::Unauthenticated {
                        self.meters.count_refusal(error.code());
                        let wait = self.too_many_failures(is_failure, ends);
                        let status = if wait.is_some() { 429 } else { 401 };
                        self.audit_failure(operation, (&error, status), ends, &request_id);
                        if let Some(wait) = wait {
                            let error = failed_sign_ins::too_many(wait);
                            let seconds = HeaderValue::from(failed_sign_ins::seconds(wait));
                            let reply = face.respond(&error, Some(&request_id));
                            return reply.header(header::RETRY_AFTER, seconds);
                        }
                    }
                    let reply = face.respond(&error, Some(&request_id));
                    match challenge.get() {
                        Some(challenge) => challenged(face.as_ref(), reply, challenge),
                        None => reply,
                    }
                });
                let took = begun.elapsed();
                meters.record_response(reply.status(), took);
                tracing::debug!(
                    operation,
                    request_id,
                    status = reply.status().as_u16(),
                    duration_ms = took.as_millis() as u64,
                    "request answered"
                );
                reply
            }
            Err(refusal) => {
                let is_preflight = origin.is_some() && cors::is_preflight(&head);
                self.refuse(head.uri.path(), &refusal, is_preflight, &request_id)
            }
        };
        reply = reply.header_text(REQUEST_ID, &request_id);
        if let Some(answered_node) = answered_node {
            reply = reply.header(forward::NODE, answered_node);
        }
        if let Some(parent) = trace.parent {
            reply = reply.header(TRACEPARENT, parent);
        }
        if let Some(durability) = &self.weak_durability {
            reply = reply.header(DURABILITY, HeaderValue::clone(durability));
        }
        if let Some(origin) = origin {
            reply = cors::mark(reply, origin);
        }
        let response = reply.into_response();
        let response = if is_head { response.map(|_| ReplyBody::Whole(None)) } else { response };
        ServedResponse { response, is_authenticated }
    }

    /// Counts a failed sign-in of a peer. Returns how long it must wait if it had too many.
    fn too_many_failures(
        &self,
        is_failure: bool,
        ends: Option<ConnectionEnds>,
    ) -> Option<Duration> {
        let (peer, _) = ends.filter(|_| is_failure)?;
        self.failed_sign_ins.add(peer.ip(), self.authenticator.clock.now())
    }

    fn audit_failure(
        &self,
        operation: &str,
        (error, status): (&Error, u16),
        ends: Option<ConnectionEnds>,
        request_id: &str,
    ) {
        if let Some(left_out) = self.failures.count() {
            let why = error.message();
            // The local socket has no addresses.
            let from =
                ends.map_or_else(|| "this machine".to_owned(), |(peer, _)| peer.ip().to_string());
            let detail = format!(
                "{why}; from {from}; response {status}; request {request_id}; {left_out} left out before"
            );
            audit(AuditEvent::AuthenticationFailed, None, operation, &detail);
        }
    }

    fn find(&self, head: &Parts) -> Result<Match<'_>, Refusal> {
        self.guard.check(head).map_err(|error| Refusal { error, allow: None })?;
        let found = self.router.find(&head.method, head.uri.path());
        found.map_err(|miss| Refusal { error: miss.error, allow: miss.allow })
    }

    /// Answers a request without a handler; a CORS preflight for an existing path is not refused.
    fn refuse(&self, path: &str, refusal: &Refusal, is_preflight: bool, request_id: &str) -> Reply {
        if let (true, Some(methods)) = (is_preflight, &refusal.allow) {
            return cors::preflight(methods);
        }
        self.meters.count_refusal(refusal.error.code());
        let reply = self.router.face(path).respond(&refusal.error, Some(request_id));
        match &refusal.allow {
            Some(allow) => reply.header_text(header::ALLOW, allow),
            None => reply,
        }
    }

    async fn handle(
        &self,
        found: Match<'_>,
        (mut head, body): (Parts, Incoming),
        connection: Option<Arc<CallerConnection>>,
        challenge: &Arc<OnceLock<Challenge>>,
        is_authenticated: &mut bool,
    ) -> Result<Reply> {
        // First of all: a server that another node means takes nothing.
        forward::check_meant(&head.headers, &self.options.node_name)?;
        let endpoint = found.endpoint;
        let takes_cookies = found.face.takes_cookies();
        page_session::set_authorization(&mut head, takes_cookies, self.options.is_encrypted());
        let (caller, right) = match endpoint.access {
            Access::Open => (self.authenticator.nobody(), None),
            Access::Public => (self.authenticator.admit_to_public(&head.headers).await, None),
            Access::Right(right) => (self.authenticator.admit(&head.headers).await?, Some(right)),
            Access::Agent(right) if shows_only_ticket(endpoint.operation, &head.headers) => {
                (self.authenticator.admit_by_ticket(&head.headers).await?, Some(right))
            }
            Access::Agent(right) => {
                let caller = match self.authenticator.admit_to_agents(&head.headers).await {
                    Ok(caller) => caller,
                    Err(error) => {
                        return Err(self.refuse_unknown(&found, body, error, challenge).await);
                    }
                };
                (caller, Some(right))
            }
        };
        if caller.is_page && !takes_cookies {
            return Err(no_token());
        }
        let agent_check = AgentCheck::new(connection, &self.agent_processes);
        let from = IncomingCaller { caller, right, agent_check };
        let (known, operation) = (from.clone(), endpoint.operation);
        let handled =
            self.handle_from(from, found, (head, body), challenge, is_authenticated).await;
        if let Err(error) = &handled
            && error.code() == Code::Forbidden
        {
            self.audit_refusal(&known, operation, error.message());
        }
        handled
    }

    async fn handle_from(
        &self,
        IncomingCaller { caller, right, agent_check }: IncomingCaller,
        found: Match<'_>,
        (head, body): (Parts, Incoming),
        challenge: &Arc<OnceLock<Challenge>>,
        is_authenticated: &mut bool,
    ) -> Result<Reply> {
        let endpoint = found.endpoint;
        if let Some(right) = right {
            caller.principal.require(right)?;
        }
        if endpoint.is_for_people() && agent_check.is_of_agent(&head.headers).await {
            return Err(refused_agent(right));
        }
        if endpoint.new_sign_in {
            self.authenticator.require_new_sign_in(&caller).await?;
        }
        let _request = match endpoint.access {
            Access::Open | Access::Public => None,
            Access::Right(_) | Access::Agent(_) => {
                if let Some(connection) = head.extensions.get::<ConnectionUse>() {
                    connection.begin(&caller.principal)?;
                }
                Some(self.take_share(&caller.principal)?)
            }
        };
        let query = read_query(endpoint, head.uri.query().unwrap_or_default())?;
        // If authentication is off, every caller counts as authenticated.
        *is_authenticated =
            caller.is_known() || matches!(self.options.access, options::Access::Open(_));
        // The bytes count until the handler has responded, because it may hold them that long.
        let (body, _held) = match endpoint.access {
            Access::Open => (Bytes::new(), None),
            _ => {
                let principal = &caller.principal;
                receive::body(body, &self.options, &self.body_budget, principal).await?
            }
        };
        let authority = head.uri.authority().cloned();
        let can_upgrade = upgrade::is_possible(&head);
        let (principal, turn) = (caller.principal.clone(), RequestTurn::new(&self.turns));
        let request = Request {
            authenticator: Arc::clone(&self.authenticator),
            caller,
            authority,
            headers: head.headers,
            can_upgrade,
            params: found.params,
            query,
            body,
            challenge: Arc::clone(challenge),
            agent_check,
            opened_folders: self.opened_folders.clone(),
            turn: turn.clone(),
        };
        // Further searches wait: with all connections to the store, they would keep others from reading.
        let search = match endpoint.is_search {
            true => Some(self.searches.wait(&principal).await),
            false => None,
        };
        let reply = match &self.forwarder {
            Some(forwarder) if forward::may_go_on(&request.headers) => {
                let address = (&head.method, &head.uri);
                Box::pin(self.handle_anywhere(forwarder, endpoint, request, address)).await
            }
            _ => (endpoint.handler)(request).await,
        }?;
        drop(search);
        // A stream that the reply carries may hold the request for long.
        turn.end();
        match endpoint.access {
            // The server's own documents, which all responses share.
            Access::Open | Access::Public => Ok(reply),
            Access::Right(_) | Access::Agent(_) => reply.counted(&self.response_budget, &principal),
        }
    }

    /// Handles a request here, or forwards it to the node that owns its thread or has its agent. If that node cannot be reached, its threads are taken over soon.
    async fn handle_anywhere(
        &self,
        forwarder: &Forwarder,
        endpoint: &Endpoint,
        request: Request,
        address: (&Method, &Uri),
    ) -> Result<Reply> {
        let wait = TakeOverWait::begin();
        loop {
            let refused = match (endpoint.handler)(request.clone()).await {
                Err(error) => error,
                reply => return reply,
            };
            let Some(node) = OtherNode::of(&refused, self.admin.as_ref()).await? else {
                return Err(refused);
            };
            let shown = refused.pending_interrupt();
            let sent = forwarder.send(address, &request, &node, shown, &wait).await?;
            if let Some(reply) = sent {
                if reply.status() == StatusCode::FORBIDDEN {
                    let from = IncomingCaller {
                        caller: request.caller.clone(),
                        right: None,
                        agent_check: request.agent_check.clone(),
                    };
                    let why = format!("the node at {} refused it", node.address);
                    self.audit_refusal(&from, endpoint.operation, &why);
                }
                return Ok(reply);
            }
            if !wait.pause().await {
                return Err(node.unreachable());
            }
        }
    }

    /// Counts a request for its principal.
    /// Errors: `overloaded` if the principal has reached its limit.
    fn take_share(&self, principal: &Principal) -> Result<HeldShare> {
        self.requests.take(principal).ok_or_else(|| {
            let most = self.requests.max_each();
            let message =
                format!("{most} of your requests are at work, which is the most for one principal");
            Error::new(Code::Overloaded, message)
                .hint("try again; an operator may raise `server.limits.max_requests_per_principal`")
        })
    }

    /// Writes an audit line of a request without the necessary right, whether this node or another one refused it.
    fn audit_refusal(&self, from: &IncomingCaller, operation: &str, why: &str) {
        let is_agent = from.agent_check.was_of_agent();
        let limit = if is_agent { &self.agent_refusals } else { &self.request_refusals };
        let caller = &from.caller;
        let Some(left_out) = limit.count(&caller.principal) else { return };
        let actor = AuditActor::new(&caller.principal, caller.token.as_ref());
        let peer = from.agent_check.peer();
        let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
        let detail = format!("peer {peer}; {why}; {left_out} left out before");
        let event = if is_agent { AuditEvent::AgentRefused } else { AuditEvent::RequestRefused };
        audit(event, Some(actor), operation, &detail);
    }

    /// Adds the agent's authentication schemes to a 401, if the request names an agent. The schemes are public.
    async fn refuse_unknown(
        &self,
        found: &Match<'_>,
        body: Incoming,
        error: Error,
        challenge: &OnceLock<Challenge>,
    ) -> Error {
        if error.code() != Code::Unauthenticated {
            return error;
        }
        let caller = UnknownCaller {
            operation: found.endpoint.operation,
            params: &found.params,
            body,
            options: &self.options,
            budget: &self.body_budget,
        };
        let Some(agent) = found.face.requested_agent(caller).await else { return error };
        if self.authenticator.hides(&self.authenticator.nobody(), Some(&agent)) {
            return error;
        }
        let (ways, hint) = self.authenticator.challenge_of(&agent);
        // An agent that accepts every caller has no schemes to name.
        if ways.ways.is_empty() {
            return error;
        }
        drop(challenge.set(ways));
        error.hint(hint)
    }
}

/// Creates an id that says nothing of the server. A counter would tell strangers how many requests there were.
fn new_request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Whether a request for a WebSocket shows a ticket in the place of a token.
fn shows_only_ticket(operation: &str, headers: &http::HeaderMap) -> bool {
    // The same route opens streams of events.
    let asks_for_socket =
        operation == TICKET_OPERATION && headers.contains_key(header::SEC_WEBSOCKET_KEY);
    asks_for_socket && !shows_token(headers) && shown_ticket(headers).is_some()
}

/// Reads the query's parameters. Every parameter must be one of the route's.
fn read_query(route: &Endpoint, query: &str) -> Result<Vec<(String, String)>> {
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
            let name = escape_for_message(name);
            Err(Error::new(
                Code::InvalidRequest,
                format!("the query parameter '{name}' is not known"),
            )
            .hint(hint))
        }
    }
}
