//! Clients over the network: the routes of the face, and the transports behind them.

mod counted;
mod handshake;
mod http;
mod liveness;
mod websocket;

use std::sync::Arc;

use ::http::HeaderName;
use tokio::sync::OwnedSemaphorePermit;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Right};
use trilogue_mapping::native::escape_for_message;
use trilogue_runtime::shares::HeldShare;

pub(super) use self::http::HttpConnections;

use self::handshake::Handshake;
use super::state::State;
use crate::access::authenticator::Caller;
use crate::http::reply::Reply;
use crate::route::{self, Access, ResponseContent, RouteResponse, Verb};

type ClientCall = route::Call<State>;
type ClientRoute = route::Route<State>;

/// The path of an agent's endpoint, after the mount's prefix.
const ENDPOINT: &str = "/{agent}";

/// The id of a connection.
const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
/// A message that a WebSocket would carry in a frame. Its schema is the protocol's own.
const MESSAGE: ResponseContent = ResponseContent::Other("application/json");

const BASE: ClientRoute = ClientRoute::base(|call| Box::pin(async move { http::stream(&call) }))
    .access(Access::Agent(Right::Read))
    // A client decides in its user's name: it answers the questions of agents.
    .for_people()
    .path(ENDPOINT);

pub(super) const ROUTES: &[ClientRoute] = &[
    BASE.handler(|call| Box::pin(async move { open(&call) }))
        .describe("client_open", "Open a WebSocket to an agent, or a stream of a connection")
        .answers(&[
            response(101, "The connection carries WebSocket frames from now on, with one JSON-RPC message in each text frame.", ResponseContent::Nothing),
            response(200, "A stream of messages.", ResponseContent::Other("text/event-stream")),
        ])
        .errors(&[
            Code::AgentNotFound,
            Code::NotFound,
            Code::AlreadyExists,
            Code::InvalidCursor,
            Code::NotAcceptable,
            Code::UpgradeRequired,
            Code::NotImplemented,
            Code::Overloaded,
        ]),
    BASE.verb(Verb::Post)
        .handler(|call| Box::pin(async move { http::post(&call).await }))
        .describe("client_send", "Send a message; `initialize` begins a connection")
        .answers(&[
            response(200, "The response to `initialize`.", MESSAGE),
            response(202, "The message was accepted. A response comes on a stream.", ResponseContent::Nothing),
        ])
        .errors(&[
            Code::AgentNotFound,
            Code::NotFound,
            Code::NotAcceptable,
            Code::UnsupportedMediaType,
            Code::BodyTooLarge,
            Code::NotImplemented,
            Code::Overloaded,
        ]),
    BASE.verb(Verb::Delete)
        .handler(|call| Box::pin(async move { http::delete(&call) }))
        .describe("client_close", "End a connection")
        .answers(&[response(202, "The connection ends.", ResponseContent::Nothing)])
        .errors(&[Code::AgentNotFound, Code::NotFound]),
];

/// A client's place among those that are connected over the network.
#[derive(Debug)]
struct Admission {
    _room: OwnedSemaphorePermit,
    _share: HeldShare,
}

const fn response(status: u16, about: &'static str, content: ResponseContent) -> RouteResponse {
    RouteResponse { status, about, content }
}

/// Changes the connection to a WebSocket, or opens a stream of a connection over HTTP.
fn open(call: &ClientCall) -> Result<Reply> {
    if !Handshake::is_requested(call) {
        return http::stream(call);
    }
    let agent = agent(call)?;
    let handshake = Handshake::read(call)?;
    let admission = admit(&call.state, &call.caller)?;
    Ok(websocket::accept(call, agent, &handshake, admission))
}

/// Returns the agent of the path.
/// Errors: `agent_not_found`; `unauthenticated` if it does not take the caller.
fn agent(call: &ClientCall) -> Result<AgentName> {
    let text = call.param("agent");
    let Ok(agent) = AgentName::parse(text) else {
        let message = format!("agent '{}' not found", escape_for_message(text));
        return Err(Error::new(Code::AgentNotFound, message));
    };
    call.reach(&agent)?;
    call.state.runtime.agent(&agent)?;
    Ok(agent)
}

/// Counts one more client.
/// Errors: `shutting_down`, or `overloaded` if the face or the principal has reached its limit.
fn admit(state: &State, caller: &Caller) -> Result<Admission> {
    if state.is_draining() {
        return Err(Error::new(Code::ShuttingDown, "the server is shutting down")
            .hint("connect again; another node may answer"));
    }
    let full = |most: usize, whose: &str| {
        let message =
            format!("{most} clients{whose} are connected over the network, which is the most");
        Error::new(Code::Overloaded, message)
            .hint("try again; an operator may raise `client.max_network_connections`")
    };
    let most = state.options.max_network_connections;
    let room = Arc::clone(&state.network_room).try_acquire_owned().map_err(|_| full(most, ""))?;
    let shares = &state.network_shares;
    let share = shares.take(&caller.principal);
    let share = share.ok_or_else(|| full(shares.max_each(), " of yours"))?;
    Ok(Admission { _room: room, _share: share })
}
