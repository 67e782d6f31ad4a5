//! Agents.

use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Right};
use trilogue_mapping::native::{self as mapping, shown};
use trilogue_wire::native::{Agent, List};

use super::{Call, Route};
use crate::http::reply::Reply;
use crate::route::{Access, Verb, answer, of};

pub(crate) const ROUTES: &[Route] = &[
    Route {
        verb: Verb::Get,
        path: "/api/v1/agents",
        access: Access::Right(Right::Read),
        operation: "list_agents",
        summary: "The agents, by name",
        query: &[],
        headers: &[],
        request: None,
        answers: &[answer(200, "All agents, on one page.", of::<List<Agent>>)],
        errors: &[],
        handler: |call| Box::pin(async move { Ok(list(&call)) }),
    },
    Route {
        verb: Verb::Get,
        path: "/api/v1/agents/{agent}",
        access: Access::Right(Right::Read),
        operation: "get_agent",
        summary: "One agent",
        query: &[],
        headers: &[],
        request: None,
        answers: &[answer(200, "The agent.", of::<Agent>)],
        errors: &[Code::AgentNotFound],
        handler: |call| Box::pin(async move { get(&call) }),
    },
];

fn list(call: &Call) -> Reply {
    let items = call.state.runtime.agents().into_iter().map(mapping::agent::agent).collect();
    Reply::ok(&List { items, next: None })
}

fn get(call: &Call) -> Result<Reply> {
    let name = agent_name(call.param("agent"))?;
    Ok(Reply::ok(&mapping::agent::agent(call.state.runtime.agent(&name)?)))
}

/// # Errors
/// `agent_not_found` where the name cannot be one: it names nothing.
pub(crate) fn agent_name(text: &str) -> Result<AgentName> {
    AgentName::parse(text).map_err(|_| {
        Error::new(Code::AgentNotFound, format!("there is no agent '{}'", shown(text)))
            .hint("list the agents with: trilogue agents")
    })
}
