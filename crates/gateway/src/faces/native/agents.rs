//! Agents.

use serde::Serialize;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, AgentName, Code, Error, Right};
use trilogue_mapping::native::{self as mapping, escape_for_message};
use trilogue_mapping::{communication, connect};
use trilogue_runtime::Availability;
use trilogue_wire::native::{Agent, AgentForm, Json, LastFailure, List};

use super::{NativeCall, NativeRoute};
use crate::http::reply::Reply;
use crate::route::{json_response, of};

pub(crate) const ROUTES: &[NativeRoute] = &[
    NativeRoute::base(|call| Box::pin(async move { Ok(list(&call)) }))
        .path("/api/v1/agents")
        .describe("list_agents", "The agents, by name")
        .answers(&[json_response(200, "All agents, on one page.", of::<List<Agent>>)]),
    NativeRoute::base(|call| Box::pin(async move { get(&call) }))
        .path("/api/v1/agents/{agent}")
        .describe("get_agent", "One agent")
        .answers(&[json_response(200, "The agent.", of::<Agent>)])
        .errors(&[Code::AgentNotFound]),
    NativeRoute::base(|call| Box::pin(async move { forms(&call) }))
        .path("/api/v1/agents/{agent}/forms")
        .describe(
            "get_agent_forms",
            "One agent as the clients of each protocol that is served get it: its manifest, its descriptor and its capabilities",
        )
        .answers(&[json_response(200, "All forms, on one page.", of::<List<AgentForm>>)])
        .errors(&[Code::AgentNotFound]),
];

fn list(call: &NativeCall) -> Reply {
    let cards = call.state.runtime.agents().into_iter();
    let items = cards.map(|card| shown_agent(call, card)).collect();
    Reply::ok(&List { items, next: None })
}

fn get(call: &NativeCall) -> Result<Reply> {
    let name = agent_name(call.param("agent"))?;
    Ok(Reply::ok(&shown_agent(call, call.state.runtime.agent(&name)?)))
}

fn forms(call: &NativeCall) -> Result<Reply> {
    let runtime = &call.state.runtime;
    let card = runtime.visible_card(runtime.agent(&agent_name(call.param("agent"))?)?);
    let places = call.state.protocol_views.places();
    let mut items = Vec::new();
    if places.communication.is_some() {
        let manifest = json(&communication::agent(&card));
        items.push(form("communication", "Agent Communication Protocol: manifest", manifest));
    }
    if places.connect.is_some() {
        let descriptor = mapping::json(&connect::descriptor(&card));
        items.push(form("connect", "Agent Connect Protocol: descriptor", descriptor));
        let capabilities = json(&connect::capabilities(&card));
        items.push(form("connect", "Agent Connect Protocol: capabilities", capabilities));
    }
    Ok(Reply::ok(&List { items, next: None }))
}

fn form(protocol: &str, title: &str, value: Json) -> AgentForm {
    AgentForm { protocol: protocol.to_owned(), title: title.to_owned(), value }
}

fn json(value: &impl Serialize) -> Json {
    let text = serde_json::to_string(value).ok();
    text.and_then(|text| Json::parse(text).ok()).unwrap_or_else(Json::null)
}

fn shown_agent(call: &NativeCall, card: &AgentCard) -> Agent {
    let runtime = &call.state.runtime;
    let availability = runtime.availability(&card.name);
    let unavailable = availability.as_ref().and_then(Availability::reason);
    let agent = mapping::agent::agent(&runtime.visible_card(card), unavailable);
    // Its output can be about runs of other principals, as that of `get_process_stderr`.
    let may_see = call.principal().require(Right::Server).is_ok();
    let last_failure = runtime.last_failure(&card.name).filter(|_| may_see);
    let last_failure =
        last_failure.map(|it| LastFailure { at: it.at.to_string(), reason: it.reason });
    Agent { takes_folder: runtime.takes_folder(&card.name), last_failure, ..agent }
}

/// Reads an agent's name. Errors: `agent_not_found` if the name is invalid.
pub(crate) fn agent_name(text: &str) -> Result<AgentName> {
    AgentName::parse(text).map_err(|_| {
        Error::new(Code::AgentNotFound, format!("agent '{}' not found", escape_for_message(text)))
            .hint("list the agents with: trilogue agents")
    })
}
