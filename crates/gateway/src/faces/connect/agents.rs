//! Agents: their identities, capabilities, inputs and outputs.

use std::borrow::Cow;

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, Right};
use trilogue_mapping::connect as mapping;
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up, request};
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

const AGENT: ConnectRoute = BASE
    .at("/agents/{agent_id}", |call| Box::pin(get(call)))
    .access(Access::Agent(Right::Read))
    .describe("connect_get_agent", "One agent, or the agent of a configured instance")
    .answers(&[json_response(200, "The agent.", of::<wire::Agent>)])
    .errors(&[Code::AgentNotFound]);

const DESCRIPTOR: ConnectRoute = AGENT
    .at("/agents/{agent_id}/descriptor", |call| Box::pin(descriptor(call)))
    .describe("connect_get_descriptor", "An agent's descriptor, as its author declares it")
    .answers(&[json_response(200, "The descriptor.", of::<wire::Descriptor>)]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    AGENT
        .post("/agents/search", |call| Box::pin(async move { search(&call) }))
        .access(Access::Right(Right::Read))
        .describe(
            "connect_search_agents",
            "Agents by name and version; all of them unless `limit` or `offset` ask for a \
             page",
        )
        .request(of::<wire::AgentSearchRequest>)
        .answers(&[json_response(200, "The agents.", of::<Vec<wire::Agent>>)])
        .errors(&[]),
    AGENT,
    DESCRIPTOR,
    DESCRIPTOR.path("/agents/agent/{agent_id}/descriptor").describe(
        "connect_get_descriptor_alias",
        "The same under the path of the protocol's document",
    ),
    DESCRIPTOR
        .path("/agents/{agent_id}/manifest")
        .describe("connect_get_manifest", "The same as earlier versions of the protocol had it"),
    DESCRIPTOR
        .path("/agents/{agent_id}/details")
        .describe("connect_get_details", "The same as earlier versions of the protocol had it"),
    AGENT
        .at("/agents/{agent_id}/capabilities", |call| Box::pin(capabilities(call)))
        .describe(
            "connect_get_capabilities",
            "What an agent can do on this server: what its author declares, and what the \
             server adds",
        )
        .answers(&[json_response(200, "The capabilities.", of::<wire::AgentCapabilities>)]),
    AGENT
        .at("/agents/{agent_id}/schemas", |call| Box::pin(schemas(call)))
        .describe("connect_get_schemas", "Which data an agent takes and gives")
        .answers(&[json_response(200, "The schemas.", of::<wire::AgentSchemas>)]),
];

fn search(call: &ConnectCall) -> Result<Reply> {
    let body: wire::AgentSearchRequest = request::body_or_empty(call)?;
    let fits = |card: &Cow<'_, AgentCard>| {
        body.name.as_deref().is_none_or(|name| name == mapping::name(card))
            && body.version.as_deref().is_none_or(|version| version == card.version)
    };
    let limit = body.limit.map_or(usize::MAX, |limit| request::size(limit.get()));
    let offset = body.offset.map_or(0, |offset| request::size(offset.get()));
    let runtime = &call.state.runtime;
    let cards = runtime.listed_agents().into_iter().map(|card| runtime.visible_card(card));
    let found = cards.filter(fits);
    let page = found.skip(offset).take(limit);
    Ok(Reply::ok(&page.map(|card| mapping::agent(&card)).collect::<Vec<_>>()))
}

/// Shows a configured instance as an agent with the instance's id: a client that runs the shown agent runs the instance.
async fn get(call: ConnectCall) -> Result<Reply> {
    let target = look_up::target(&call, Some(call.param("agent_id")), None).await?;
    let card = call.state.runtime.visible_card(target.card);
    let mut agent = mapping::agent(&card);
    if let Some(row) = target.instance {
        agent.agent_id = row.id.as_str().to_owned();
        agent.id = Some(agent.agent_id.clone());
        agent.configuration_id = Some(agent.agent_id.clone());
    }
    Ok(Reply::ok(&agent))
}

async fn descriptor(call: ConnectCall) -> Result<Reply> {
    let card = look_up::shown_agent(&call).await?;
    let descriptor = mapping::descriptor(&card);
    Ok(Reply::json_bytes(StatusCode::OK, descriptor.as_bytes().clone()))
}

async fn capabilities(call: ConnectCall) -> Result<Reply> {
    let card = look_up::shown_agent(&call).await?;
    Ok(Reply::ok(&mapping::capabilities(&card)))
}

async fn schemas(call: ConnectCall) -> Result<Reply> {
    let card = look_up::shown_agent(&call).await?;
    Ok(Reply::ok(&mapping::schemas(&card)))
}
