//! Clients over the network: the routes of the face, and the transports behind them.

mod handshake;
mod liveness;
mod websocket;

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Right};
use trilogue_mapping::native::escape_for_message;

use self::handshake::Handshake;
use super::state::State;
use crate::http::reply::Reply;
use crate::route::{self, Access, ResponseContent, RouteResponse};

type ClientCall = route::Call<State>;
type ClientRoute = route::Route<State>;

/// The path of an agent's endpoint, after the mount's prefix.
const ENDPOINT: &str = "/{agent}";

const BASE: ClientRoute = ClientRoute::base(|call| Box::pin(async move { open_websocket(&call) }))
    .access(Access::Agent(Right::Run))
    // A client decides in its user's name: it answers the questions of agents.
    .for_people();

pub(super) const ROUTES: &[ClientRoute] = &[BASE
    .path(ENDPOINT)
    .describe("client_open", "Open a connection to an agent: a WebSocket")
    .answers(&[RouteResponse {
        status: 101,
        about: "The connection carries WebSocket frames from now on, with one JSON-RPC message in each text frame.",
        content: ResponseContent::Nothing,
    }])
    .errors(&[Code::AgentNotFound, Code::UpgradeRequired, Code::NotImplemented, Code::Overloaded])];

/// Changes the connection to a WebSocket.
fn open_websocket(call: &ClientCall) -> Result<Reply> {
    let agent = agent(call)?;
    let handshake = Handshake::read(call)?;
    let permit = admit(&call.state)?;
    Ok(websocket::accept(call, agent, &handshake, permit))
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
/// Errors: `shutting_down`, or `overloaded` if the face has reached its limit.
fn admit(state: &State) -> Result<OwnedSemaphorePermit> {
    if state.is_draining() {
        return Err(Error::new(Code::ShuttingDown, "the server is shutting down")
            .hint("connect again; another node may answer"));
    }
    Arc::clone(&state.network_room).try_acquire_owned().map_err(|_| {
        let most = state.options.max_network_connections;
        let message = format!("{most} clients are connected over the network, which is the most");
        Error::new(Code::Overloaded, message)
            .hint("try again; an operator may raise `client.max_network_connections`")
    })
}
