//! The errors of the protocol, and of agents.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};
use trilogue_mapping::connect as mapping;
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up};
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

pub(crate) const ROUTES: &[ConnectRoute] = &[
    BASE.at("/errors", |_| Box::pin(async { Ok(Reply::ok(&mapping::definitions())) }))
        .access(Access::Public)
        .describe("connect_list_errors", "The errors of the protocol")
        .answers(&[json_response(200, "The definitions.", of::<Vec<wire::ErrorDefinition>>)]),
    BASE.at("/agents/{agent_id}/errors", |call| Box::pin(of_agent(call)))
        .access(Access::Agent(Right::Read))
        .describe("connect_list_agent_errors", "The errors of an agent's own")
        .answers(&[json_response(200, "The definitions.", of::<wire::AgentErrors>)])
        .errors(&[Code::AgentNotFound]),
];

async fn of_agent(call: ConnectCall) -> Result<Reply> {
    let card = look_up::reached_agent(&call).await?;
    Ok(Reply::ok(&mapping::errors(card)))
}
