//! Agents of kind `agent-communication`, by their settings.

use std::collections::HashMap;
use std::path::Path;

use futures_util::future::join_all;
use trilogue_backends::AgentCommunication;
use trilogue_backends::agent_communication::Remote;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Json};
use trilogue_mapping::connect;
use trilogue_runtime::Backend;
use trilogue_sdk::client::Credential;
use trilogue_wire::agent_communication::AgentManifest;

use super::of_setting;
use crate::config::{self, AgentKind, TokenAs};

/// The longest token, in bytes.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

/// What servers say of their agents, by the names under which these are served here.
pub(crate) type Manifests = HashMap<String, AgentManifest>;

/// Asks all servers at once what their agents are. One that does not say is warned of, and its agent is served all the same.
pub(crate) async fn manifests(options: &config::Options) -> Result<Manifests> {
    let is_remote = |agent: &config::Agent| agent.kind == AgentKind::AgentCommunication;
    let mut asked = Vec::new();
    for (name, agent) in options.agents.iter().filter(|(_, agent)| is_remote(agent)) {
        let remote = build(&AgentName::parse(name)?, agent, None, None)?;
        asked.push(async move { (name.clone(), remote.manifest().await) });
    }
    let answers = join_all(asked).await.into_iter();
    Ok(answers
        .filter_map(|(name, answer)| match answer {
            Ok(manifest) => Some((name, manifest)),
            Err(error) => {
                tracing::warn!(agent = name, "{error}");
                None
            }
        })
        .collect())
}

pub(super) fn build(
    name: &AgentName,
    agent: &config::Agent,
    descriptor: Option<&Json>,
    manifest: Option<&AgentManifest>,
) -> Result<AgentCommunication> {
    let Some(url) = agent.url.clone() else {
        let message = format!("`agents.{name}` has no `url`");
        return Err(Error::new(Code::InvalidRequest, message).hint(format!(
            "name the address of the agent's server, such as url = \"http://127.0.0.1:8000\" in [agents.{name}]"
        )));
    };
    let remote = Remote {
        url,
        agent: agent.name.clone().unwrap_or_else(|| name.as_str().to_owned()),
        credential: credential(name, agent)?,
    };
    let mut built = AgentCommunication::new(name.clone(), remote, manifest).map_err(|error| {
        Error::new(Code::InvalidRequest, format!("`agents.{name}.url`: {}", error.message()))
    })?;
    if let Some(description) = &agent.description {
        built = built.described(description.clone());
    }
    let Some(written) = descriptor else { return Ok(built) };
    let card = connect::card(written, built.card().clone());
    Ok(built.with_card(card.map_err(|error| of_setting(name, &error))?))
}

fn credential(name: &AgentName, agent: &config::Agent) -> Result<Option<Credential>> {
    let wrong = |key: &str, why: String| {
        Error::new(Code::InvalidRequest, format!("`agents.{name}.{key}`: {why}"))
    };
    let token = match (&agent.token_env, &agent.token_file) {
        (Some(_), Some(_)) => {
            let why = "`token_env` names a token too".to_owned();
            return Err(wrong("token_file", why).hint("set one of the two"));
        }
        (Some(variable), None) => std::env::var(variable).map_err(|_| {
            wrong("token_env", format!("the variable '{}' is not set", variable.escape_debug()))
                .hint("set it where the server starts")
        })?,
        (None, Some(file)) => {
            read_token(Path::new(file)).map_err(|why| wrong("token_file", why))?
        }
        (None, None) => return Ok(None),
    };
    let token = token.trim().to_owned();
    Ok(Some(match agent.token_as {
        TokenAs::Bearer => Credential::Bearer(token),
        TokenAs::ApiKey => Credential::ApiKey(token),
    }))
}

fn read_token(path: &Path) -> Result<String, String> {
    let told = |error: std::io::Error| format!("'{}' cannot be read: {error}", path.display());
    let length = std::fs::metadata(path).map_err(told)?.len();
    if length > MAX_TOKEN_BYTES {
        return Err(format!(
            "'{}' has {length} bytes; {MAX_TOKEN_BYTES} is the most",
            path.display()
        ));
    }
    std::fs::read_to_string(path).map_err(told)
}
