//! Finds the agent of a request before its caller is authenticated.

use serde::Deserialize;
use trilogue_domain::AgentName;

use super::{ConnectRoute, State, configurations, create};
use crate::face::UnknownCaller;

/// The longest body that is read from an unauthenticated caller, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// The members of a body that name an agent.
#[derive(Deserialize, Default)]
struct NamedAgent {
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default)]
    configuration_id: Option<String>,
}

/// Returns the agent that the path or the body names, or the default agent of a run. Instances are not looked up, because their owner is not known yet.
pub(super) async fn requested_agent(state: &State, caller: UnknownCaller<'_>) -> Option<AgentName> {
    let known = |text: &str| {
        let agent = state.common.agents.find(&state.runtime, text)?;
        Some(agent.card.name.clone())
    };
    if let Some((_, agent)) = caller.params.iter().find(|(name, _)| *name == "agent_id") {
        return known(agent);
    }
    let is_wanted = |route: &ConnectRoute| route.operation == caller.operation;
    if !create::ROUTES.iter().chain(configurations::ROUTES).any(is_wanted) {
        return None;
    }
    let body = caller.body(MAX_BYTES).await?;
    let named: NamedAgent = match body.trim_ascii() {
        b"" => NamedAgent::default(),
        body => serde_json::from_slice(body).ok()?,
    };
    match named {
        NamedAgent { agent_id: Some(agent), .. } => known(&agent),
        NamedAgent { configuration_id: Some(_), .. } => None,
        _ => state.runtime.listed_agents().first().map(|card| card.name.clone()),
    }
}
