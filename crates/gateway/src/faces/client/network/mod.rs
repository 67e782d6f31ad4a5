//! Clients over the network: the routes of the face, and the transports behind them.

mod admission;
pub(super) mod continuation;
mod counted;
mod frames;
mod handshake;
pub(super) mod http;
pub(super) mod lasting;
mod liveness;
mod mailbox;
mod resume;
mod websocket;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};

use self::admission::{ClientCall, admit, agent};
use self::handshake::Handshake;
use super::state::State;
use crate::http::reply::Reply;
use crate::route::{self, Access, ResponseContent, RouteResponse, Verb};

type ClientRoute = route::Route<State>;

/// The path of an agent's endpoint, after the mount's prefix.
const ENDPOINT: &str = "/{agent}";

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
