//! All agents of a server of the Agent Connect Protocol.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::AgentName;
use trilogue_domain::error::Result;
use trilogue_runtime::Backend;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::connect::{Agent, Client};

use super::AgentConnect;
use crate::remote::server::AgentServer;
use crate::remote::{AgentListing, ListedAgent, Refresh, Remote, RemoteTransport};

/// Lists the agents of a server.
#[derive(Debug)]
pub struct ConnectListing {
    client: Client,
}

// === impl ConnectListing ===

impl ConnectListing {
    #[must_use]
    pub fn new(transport: &Arc<RemoteTransport>) -> Self {
        Self { client: Client::new(Arc::clone(transport) as _, transport.options()) }
    }
}

#[async_trait]
impl AgentListing for ConnectListing {
    type Agent = AgentConnect;
    type Description = Agent;

    async fn list(&self) -> Result<Vec<ListedAgent<Agent>>, ClientError> {
        let agents = self.client.agents().await?.into_iter().map(|description| ListedAgent {
            id: description.agent_id.clone(),
            name: description.metadata.reference.name.clone(),
            description,
        });
        Ok(agents.collect())
    }

    /// Requests its descriptor. Without one, the agent is looked up when a run begins.
    async fn build(
        &self,
        name: AgentName,
        remote: Remote,
        prefix: &str,
        _: &ListedAgent<Agent>,
    ) -> AgentConnect {
        let unknown = AgentConnect::new(name.clone(), remote.clone(), None, None);
        let description = match unknown.description().await {
            Ok(description) => Some(description),
            Err(error) => {
                tracing::warn!(agent = %name, "{error}");
                None
            }
        };
        let built = AgentConnect::new(name, remote, None, description);
        if prefix.is_empty() { built } else { built.with_own_name() }
    }

    async fn learn(&self, agent: &AgentConnect, listed: Option<&Agent>) {
        agent.set_missing(listed.is_none());
        if listed.is_some()
            && let Err(error) = agent.complete_description().await
        {
            tracing::debug!(agent = %agent.card.name, %error, "an agent is still not described");
        }
    }
}

/// An agent that is served by its name is looked up until its server has described it.
#[async_trait]
impl Refresh for Arc<AgentConnect> {
    fn server(&self) -> &Arc<AgentServer> {
        &self.remote.server
    }

    async fn refresh(&mut self) -> Result<Vec<Arc<dyn Backend>>> {
        self.complete_description().await?;
        Ok(Vec::new())
    }
}
