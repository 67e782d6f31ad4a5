//! Which clients of the network are admitted, and to which agent.

use std::sync::Arc;

use http::HeaderName;
use tokio::sync::OwnedSemaphorePermit;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_mapping::native::escape_for_message;
use trilogue_runtime::shares::HeldShare;

use super::super::state::State;
use crate::access::authenticator::Caller;
use crate::route;

pub(super) type ClientCall = route::Call<State>;

/// The id of a connection.
pub(super) const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");

/// A client's place among those that are connected over the network.
#[derive(Debug)]
pub(super) struct Admission {
    _room: OwnedSemaphorePermit,
    _share: HeldShare,
}

/// Returns the agent of the path.
/// Errors: `agent_not_found`; `unauthenticated` if it does not take the caller.
pub(super) fn agent(call: &ClientCall) -> Result<AgentName> {
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
pub(super) fn admit(state: &State, caller: &Caller) -> Result<Admission> {
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
