//! Ping, and the list of agents.

use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, AgentName, Code, Error};
use trilogue_mapping::communication as mapping;
use trilogue_mapping::native::escape_for_message;
use trilogue_wire::agent_communication::AgentsList;

use super::{BASE, CommunicationCall, CommunicationRoute};
use crate::http::reply::Reply;

const MAX_PAGE: usize = 1_000;

pub(crate) const ROUTES: &[CommunicationRoute] = &[
    BASE.path("/ping").describe("communication_ping", "Whether the server is there"),
    BASE.at("/agents", |call| Box::pin(async move { list(&call) })).describe(
        "communication_list_agents",
        "The agents, all of them unless `limit` or `offset` ask for a page",
    ),
    BASE.at("/agents/{name}", |call| Box::pin(async move { get(&call) }))
        .describe("communication_get_agent", "One agent")
        .errors(&[Code::AgentNotFound]),
];

pub(super) fn ping() -> Reply {
    Reply::json_bytes(http::StatusCode::OK, &b"{}"[..])
}

fn list(call: &CommunicationCall) -> Result<Reply> {
    let limit = number(call, "limit", 1..=MAX_PAGE)?;
    let offset = number(call, "offset", 0..=usize::MAX)?;
    let runtime = &call.state.runtime;
    let cards = runtime.agents().into_iter();
    let page = cards.skip(offset.unwrap_or(0)).take(limit.unwrap_or(usize::MAX));
    let agents = page.map(|card| mapping::agent(&runtime.visible_card(card))).collect();
    Ok(Reply::ok(&AgentsList { agents }))
}

fn get(call: &CommunicationCall) -> Result<Reply> {
    let card = agent(call, call.param("name"))?;
    Ok(Reply::ok(&mapping::agent(&call.state.runtime.visible_card(card))))
}

/// Returns the agent that has this name on this face.
/// Errors: `agent_not_found`.
pub(super) fn agent<'a>(call: &'a CommunicationCall, name: &str) -> Result<&'a AgentCard> {
    let runtime = &call.state.runtime;
    // Names on this face contain no dot. If the configured name contains none either, the two are equal.
    if !name.contains('.') {
        let same = AgentName::parse(name).ok().and_then(|name| runtime.agent(&name).ok());
        let other =
            || runtime.agents().into_iter().find(|card| mapping::face_name(&card.name) == name);
        if let Some(card) = same.or_else(other) {
            return Ok(card);
        }
    }
    Err(Error::new(Code::AgentNotFound, format!("agent '{}' not found", escape_for_message(name)))
        .hint("the agents are listed at /agents")
        .without_agent(name))
}

/// Returns a number from the query, if it is present.
/// Errors: `invalid_request` if it is not a number, or not one of these.
pub(super) fn number(
    call: &CommunicationCall,
    name: &str,
    fits: std::ops::RangeInclusive<usize>,
) -> Result<Option<usize>> {
    let Some(text) = call.query(name) else { return Ok(None) };
    match text.parse::<usize>() {
        Ok(number) if fits.contains(&number) => Ok(Some(number)),
        _ => Err(Error::new(
            Code::InvalidRequest,
            format!("the query parameter '{name}' is '{}'", escape_for_message(text)),
        )
        .hint(match *fits.end() {
            usize::MAX => format!("'{name}' is a number from {}", fits.start()),
            most => format!("'{name}' is {} to {most}", fits.start()),
        })),
    }
}
