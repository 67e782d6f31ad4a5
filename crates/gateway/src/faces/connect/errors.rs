//! What can go wrong: the protocol's errors and the agents' own.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};
use trilogue_mapping::connect as mapping;
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up};
use crate::http::reply::Reply;
use crate::route::{Access, json_response, of};

pub(crate) const ROUTES: &[ConnectRoute] = &[
    ConnectRoute {
        path: "/errors",
        access: Access::Public,
        operation: "connect_list_errors",
        summary: "The errors of the protocol",
        answers: &[json_response(200, "The definitions.", of::<Vec<wire::ErrorDefinition>>)],
        handler: |_| Box::pin(async { Ok(Reply::ok(&mapping::definitions())) }),
        ..BASE
    },
    ConnectRoute {
        path: "/agents/{agent_id}/errors",
        access: Access::Agent(Right::Read),
        operation: "connect_list_agent_errors",
        summary: "The errors of an agent's own",
        answers: &[json_response(200, "The definitions.", of::<wire::AgentErrors>)],
        errors: &[Code::AgentNotFound],
        handler: |call| Box::pin(async move { of_agent(&call) }),
        ..BASE
    },
];

fn of_agent(call: &ConnectCall) -> Result<Reply> {
    let card = look_up::reached_agent(call)?;
    Ok(Reply::ok(&mapping::errors(card)))
}
