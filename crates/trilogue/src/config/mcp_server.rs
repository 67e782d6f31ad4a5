//! Servers of the Model Context Protocol that agents use.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trilogue_domain::error::{Code, Result};
use trilogue_domain::{AgentName, Error};

use super::agent::RedactedText;
use super::list::List;

/// A server of the Model Context Protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// The program and its arguments, which the agent starts. Set this or `url`.
    #[serde(default)]
    pub command: List<String>,
    /// Environment variables for the program. The server never shows their values.
    #[serde(default)]
    pub env: IndexMap<String, RedactedText>,
    /// Names of variables of the server that the program gets too.
    #[serde(default)]
    pub inherit: List<String>,
    /// The address of a server that runs already.
    #[serde(default)]
    pub url: Option<String>,
    /// Headers for each request to the address. The server never shows their values.
    #[serde(default)]
    pub headers: IndexMap<String, RedactedText>,
    /// Whether the address is of the older transport with server-sent events.
    #[serde(default)]
    pub sse: bool,
}

// === impl McpServer ===

impl McpServer {
    /// Returns its program and arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        self.command.0.clone()
    }

    /// As the Agent Client Protocol writes it.
    ///
    /// # Errors
    /// `invalid_request` if it is neither a command nor an address, or both.
    pub(crate) fn to_json(&self, agent: &AgentName, name: &str) -> Result<Value> {
        let wrong = |why: &str| {
            let message = format!("`agents.{agent}.mcp_servers.{}`: {why}", name.escape_debug());
            Error::new(Code::InvalidRequest, message)
                .hint("set `command` for a program, or `url` for a server that runs already")
        };
        let pairs = |pairs: &IndexMap<String, RedactedText>| -> Vec<Value> {
            let pair =
                |(name, value): (&String, &RedactedText)| json!({ "name": name, "value": value.0 });
            pairs.iter().map(pair).collect()
        };
        match (self.command.0.split_first(), &self.url) {
            (Some(_), Some(_)) => Err(wrong("it has a command and an address")),
            (None, None) => Err(wrong("it has neither a command nor an address")),
            (Some(_), None) if self.sse || !self.headers.is_empty() => {
                Err(wrong("`headers` and `sse` are for an address"))
            }
            (None, Some(_)) if !self.env.is_empty() || !self.inherit.0.is_empty() => {
                Err(wrong("`env` and `inherit` are for a command"))
            }
            (Some((command, args)), None) => {
                let mut env = pairs(&self.env);
                env.extend(self.inherit.0.iter().filter_map(|name| {
                    let value = std::env::var(name).ok()?;
                    (!self.env.contains_key(name)).then(|| json!({ "name": name, "value": value }))
                }));
                Ok(json!({ "name": name, "command": command, "args": args, "env": env }))
            }
            (None, Some(url)) => {
                let kind = if self.sse { "sse" } else { "http" };
                let headers = pairs(&self.headers);
                Ok(json!({ "type": kind, "name": name, "url": url, "headers": headers }))
            }
        }
    }
}
