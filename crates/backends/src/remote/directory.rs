//! All agents of a server, as it lists them now: those that come are built, those that go are shown as unavailable.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::AgentName;
use trilogue_domain::error::Result;
use trilogue_runtime::Backend;
use trilogue_sdk::client::ClientError;

use super::server::{AgentServer, RemoteTransport};
use super::{Remote, answered_in_time};

/// What a protocol brings so that all agents of a server can be served.
#[async_trait]
pub trait AgentListing: fmt::Debug + Send + Sync {
    type Agent: Backend + 'static;
    /// What the server says of one agent in its list.
    type Description: Send + Sync;

    /// All agents of the server.
    async fn list(&self) -> Result<Vec<ListedAgent<Self::Description>>, ClientError>;

    /// An agent with this name here, which begins with this prefix. It may ask the server for more of it.
    async fn build(
        &self,
        name: AgentName,
        remote: Remote,
        prefix: &str,
        listed: &ListedAgent<Self::Description>,
    ) -> Self::Agent;

    /// Tells an agent what its server says of it now; `None` where it is not listed any more.
    async fn learn(&self, agent: &Self::Agent, description: Option<&Self::Description>);
}

/// An agent in the list of its server.
#[derive(Clone, Debug)]
pub struct ListedAgent<D> {
    /// What tells it from the others there.
    pub id: String,
    /// What people call it there.
    pub name: String,
    pub description: D,
}

/// What the server can tell anew while this one runs.
#[async_trait]
pub trait Refresh: fmt::Debug + Send {
    fn server(&self) -> &Arc<AgentServer>;

    /// Asks the server. Returns agents that were not there before.
    /// Errors: `peer_unavailable` with why it does not say.
    async fn refresh(&mut self) -> Result<Vec<Arc<dyn Backend>>>;
}

/// The agents of a server by their ids there.
#[derive(Debug)]
pub struct Directory<L: AgentListing> {
    transport: Arc<RemoteTransport>,
    listing: L,
    /// What the name of each agent begins with here.
    prefix: String,
    agents: HashMap<String, Arc<L::Agent>>,
    /// Ids and names there that are not served: another entry names them, or they cannot be names here.
    left_out: HashSet<String>,
}

// === impl Directory ===

impl<L: AgentListing> Directory<L> {
    /// No agent is known yet. Those of `left_out`, by their ids or names there, are never served.
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
        let listed = answered_in_time(server, "list its agents", self.listing.list()).await?;
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

/// The name here of an agent: letters, digits, `_` and `-` stay.
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
