//! The registry of agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use url::Url;

use super::is_local;

/// The official registry of agents. See [`super::Options::agent_registry`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentRegistry {
    /// The address of `registry.json`. `http://` is for this machine. Only `trilogue agents known --refresh` reads it; the state folder keeps the last copy.
    pub url: String,
}

// === impl AgentRegistry ===

impl Default for AgentRegistry {
    fn default() -> Self {
        Self {
            url: "https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json".to_owned(),
        }
    }
}

impl AgentRegistry {
    /// The address.
    ///
    /// # Errors
    /// `invalid_request` if it is not an https address, or an http address of this machine: a registry decides which programs are started.
    pub fn to_url(&self) -> Result<Url> {
        let is_accepted = |url: &Url| match url.scheme() {
            "https" => url.has_host(),
            "http" => is_local(url),
            _ => false,
        };
        Url::parse(&self.url).ok().filter(is_accepted).ok_or_else(|| {
            let message = format!(
                "`agent_registry.url` is not an https address: '{}'",
                self.url.escape_debug()
            );
            Error::new(Code::InvalidRequest, message)
                .hint("write an address that begins with https://, or http:// for this machine")
        })
    }
}
