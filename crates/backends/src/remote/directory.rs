//! Serves all agents that a server lists. Builds the agents that are new in the list, and shows those that left it as unavailable.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::AgentName;
use trilogue_domain::error::Result;
use trilogue_runtime::Backend;
use trilogue_sdk::client::ClientError;

use super::server::{AgentServer, RemoteTransport};
use super::{Remote, await_answer};

/// Lists and builds the agents of a server. Each protocol implements it.
#[async_trait]
pub trait AgentListing: fmt::Debug + Send + Sync {
    type Agent: Backend + 'static;
    /// The server's description of one agent in its list.
    type Description: Send + Sync;

    /// Requests the list of all agents of the server.
    async fn list(&self) -> Result<Vec<ListedAgent<Self::Description>>, ClientError>;

    /// Builds an agent with this local name, which begins with `prefix`. May request more details from the server.
    async fn build(
        &self,
        name: AgentName,
        remote: Remote,
        prefix: &str,
        listed: &ListedAgent<Self::Description>,
    ) -> Self::Agent;

    /// Passes an agent its server's current description of it. `None` means that the server no longer lists the agent.
    async fn learn(&self, agent: &Self::Agent, description: Option<&Self::Description>);
}

/// An agent in the list of its server.
#[derive(Clone, Debug)]
pub struct ListedAgent<D> {
    /// Its unique id at the server.
    pub id: String,
    /// Its name at the server.
    pub name: String,
    pub description: D,
}

/// Updates agents from their server while this server runs.
#[async_trait]
pub trait Refresh: fmt::Debug + Send {
    fn server(&self) -> &Arc<AgentServer>;

    /// Requests the current agents from the server, and updates the known ones. Returns the agents that are new.
    /// Errors: `peer_unavailable`, with the reason, if the server does not list them in time.
    async fn refresh(&mut self) -> Result<Vec<Arc<dyn Backend>>>;
}

/// The agents of a server, by their ids at the server.
#[derive(Debug)]
pub struct Directory<L: AgentListing> {
    transport: Arc<RemoteTransport>,
    listing: L,
    /// The prefix of each agent's local name.
    prefix: String,
    agents: HashMap<String, Arc<L::Agent>>,
    /// The ids and names at the server that are not served: another entry names them, or they give no valid local name.
    left_out: HashSet<String>,
}

// === impl Directory ===

impl<L: AgentListing> Directory<L> {
    /// Creates a directory without agents. It never serves an agent whose id or name at the server is in `left_out`.
    pub fn new(
        transport: Arc<RemoteTransport>,
        listing: L,
        prefix: &str,
        left_out: HashSet<String>,
    ) -> Self {
        Self { transport, listing, prefix: prefix.to_owned(), agents: HashMap::new(), left_out }
    }
}

#[async_trait]
impl<L: AgentListing> Refresh for Directory<L> {
    fn server(&self) -> &Arc<AgentServer> {
        &self.transport.server
    }

    async fn refresh(&mut self) -> Result<Vec<Arc<dyn Backend>>> {
        let server = &self.transport.server;
        let listed = await_answer(server, "list its agents", self.listing.list()).await?;
        for (id, agent) in &self.agents {
            if !listed.iter().any(|other| other.id == *id) {
                self.listing.learn(agent, None).await;
            }
        }
        let mut new: Vec<Arc<dyn Backend>> = Vec::new();
        for listed in listed {
            if self.left_out.contains(&listed.id) || self.left_out.contains(&listed.name) {
                continue;
            }
            if let Some(agent) = self.agents.get(&listed.id) {
                self.listing.learn(agent, Some(&listed.description)).await;
                continue;
            }
            match AgentName::parse(&local_name(&self.prefix, &listed.name)) {
                Ok(name) => {
                    let remote = self.transport.agent(&listed.id);
                    let agent = self.listing.build(name, remote, &self.prefix, &listed).await;
                    let agent = Arc::new(agent);
                    new.push(Arc::clone(&agent) as Arc<dyn Backend>);
                    self.agents.insert(listed.id, agent);
                }
                Err(error) => {
                    tracing::warn!(%server, agent = ?listed.name, %error, "an agent is not served: it cannot have its name here");
                    self.left_out.insert(listed.id);
                }
            }
        }
        Ok(new)
    }
}

/// Returns the local name of an agent: the prefix and the name, with `-` for each character that is not an ASCII letter, digit, `_` or `-`.
fn local_name(prefix: &str, there: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' };
    prefix.chars().chain(there.chars()).map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_here_have_letters_digits_underscores_and_dashes() {
        for (prefix, there, here) in [
            ("", "slow_echo", "slow_echo"),
            ("", "org.example.mail", "org-example-mail"),
            ("far-", "a b/ö", "far-a-b--"),
        ] {
            assert_eq!(local_name(prefix, there), here);
        }
    }
}
