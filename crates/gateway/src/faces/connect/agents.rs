//! Agents: who they are, what they can do, and which data they take and give.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, Right};
use trilogue_mapping::connect as mapping;
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up, request};
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, of};

const AGENT: ConnectRoute = ConnectRoute {
    path: "/agents/{agent_id}",
    access: Access::Agent(Right::Read),
    operation: "connect_get_agent",
    summary: "One agent",
    answers: &[json_response(200, "The agent.", of::<wire::Agent>)],
    errors: &[Code::AgentNotFound],
    handler: |call| Box::pin(async move { get(&call) }),
    ..BASE
};

const DESCRIPTOR: ConnectRoute = ConnectRoute {
    path: "/agents/{agent_id}/descriptor",
    operation: "connect_get_descriptor",
    summary: "An agent's descriptor, as its author declares it",
    answers: &[json_response(200, "The descriptor.", of::<wire::Descriptor>)],
    handler: |call| Box::pin(async move { descriptor(&call) }),
    ..AGENT
};

pub(crate) const ROUTES: &[ConnectRoute] = &[
    ConnectRoute {
        verb: Verb::Post,
        path: "/agents/search",
        access: Access::Right(Right::Read),
        operation: "connect_search_agents",
        summary: "Agents by name and version; all of them unless `limit` or `offset` ask for a page",
        request: Some(of::<wire::AgentSearchRequest>),
        answers: &[json_response(200, "The agents.", of::<Vec<wire::Agent>>)],
        errors: &[],
        handler: |call| Box::pin(async move { search(&call) }),
        ..AGENT
    },
    AGENT,
    DESCRIPTOR,
    ConnectRoute {
        path: "/agents/agent/{agent_id}/descriptor",
        operation: "connect_get_descriptor_alias",
        summary: "The same under the path of the protocol's document",
        ..DESCRIPTOR
    },
    ConnectRoute {
        path: "/agents/{agent_id}/manifest",
        operation: "connect_get_manifest",
        summary: "The same as earlier versions of the protocol had it",
        ..DESCRIPTOR
    },
    ConnectRoute {
        path: "/agents/{agent_id}/details",
        operation: "connect_get_details",
        summary: "The same as earlier versions of the protocol had it",
        ..DESCRIPTOR
    },
    ConnectRoute {
        path: "/agents/{agent_id}/capabilities",
        operation: "connect_get_capabilities",
        summary: "What an agent can do on this server: what its author declares, and what the server adds",
        answers: &[json_response(200, "The capabilities.", of::<wire::AgentCapabilities>)],
        handler: |call| Box::pin(async move { capabilities(&call) }),
        ..AGENT
    },
    ConnectRoute {
        path: "/agents/{agent_id}/schemas",
        operation: "connect_get_schemas",
        summary: "Which data an agent takes and gives",
        answers: &[json_response(200, "The schemas.", of::<wire::AgentSchemas>)],
        handler: |call| Box::pin(async move { schemas(&call) }),
        ..AGENT
    },
];

fn search(call: &ConnectCall) -> Result<Reply> {
    let body: wire::AgentSearchRequest = request::body_or_empty(call)?;
    let fits = |card: &&AgentCard| {
        body.name.as_deref().is_none_or(|name| name == mapping::name(card))
            && body.version.as_deref().is_none_or(|version| version == card.version)
    };
    let limit = body.limit.map_or(usize::MAX, |limit| request::size(limit.get()));
    let offset = body.offset.map_or(0, |offset| request::size(offset.get()));
    let found = call.state.runtime.registered().into_iter().filter(fits);
    let page = found.skip(offset).take(limit);
    let literal = request::is_literal(call);
    Ok(Reply::ok(&page.map(|card| mapping::agent(card, literal)).collect::<Vec<_>>()))
}

fn get(call: &ConnectCall) -> Result<Reply> {
    let card = look_up::reached_agent(call)?;
    Ok(Reply::ok(&mapping::agent(card, request::is_literal(call))))
}

fn descriptor(call: &ConnectCall) -> Result<Reply> {
    let descriptor = mapping::descriptor(look_up::reached_agent(call)?);
    Ok(Reply::json_bytes(StatusCode::OK, descriptor.as_bytes().clone()))
}

fn capabilities(call: &ConnectCall) -> Result<Reply> {
    let card = look_up::reached_agent(call)?;
    Ok(Reply::ok(&mapping::capabilities(card, request::is_literal(call))))
}

fn schemas(call: &ConnectCall) -> Result<Reply> {
    Ok(Reply::ok(&mapping::schemas(look_up::reached_agent(call)?)))
}
