//! Which agent a request is for, before anybody knows who sends it.

use hyper::body::Incoming;
use serde::Deserialize;
use trilogue_domain::AgentName;

use super::{configurations, create};
use crate::http::receive;
use crate::routes::{Match, Route};
use crate::shared::Shared;

/// The longest body that is read of a caller whom nobody knows, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// What of a body names an agent.
#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default)]
    configuration_id: Option<String>,
}

/// The agent that the path or the body names, or that a run without a name is for. Instances are not looked up: who they belong to is not known yet.
pub(crate) async fn asked_agent(
    shared: &Shared,
    found: &Match<'_>,
    body: Incoming,
) -> Option<AgentName> {
    let known = |text: &str| {
        let agent = shared.known.find(shared.runtime(), text)?;
        Some(agent.card.name.clone())
    };
    if let Some((_, agent)) = found.params.iter().find(|(name, _)| *name == "agent_id") {
        return known(agent);
    }
    let is_asked = |route: &Route| route.operation == found.route.operation;
    if !create::ROUTES.iter().chain(configurations::ROUTES).any(is_asked) {
        return None;
    }
    let body = receive::body_up_to(MAX_BYTES, body, &shared.options).await.ok()?;
    let asked: Asked = match body.trim_ascii() {
        b"" => Asked { agent_id: None, configuration_id: None },
        body => serde_json::from_slice(body).ok()?,
    };
    match asked {
        Asked { agent_id: Some(agent), .. } => known(&agent),
        Asked { configuration_id: Some(_), .. } => None,
        _ => shared.runtime().registered().first().map(|card| card.name.clone()),
    }
}
