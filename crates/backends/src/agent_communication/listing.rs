//! All agents of a server of the Agent Communication Protocol.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::AgentName;
use trilogue_domain::error::Result;
use trilogue_runtime::Backend;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::communication::Client;
use trilogue_wire::agent_communication::AgentManifest;

use super::AgentCommunication;
use crate::remote::server::AgentServer;
use crate::remote::{AgentListing, ListedAgent, Refresh, Remote, RemoteTransport};

/// The most agents of one server.
const MAX_AGENTS: u32 = 1_000;

/// Lists the agents of a server.
#[derive(Debug)]
pub struct CommunicationListing {
    server: Arc<AgentServer>,
    client: Client,
}

// === impl CommunicationListing ===

impl CommunicationListing {
    #[must_use]
    pub fn new(transport: &Arc<RemoteTransport>) -> Self {
        let client = Client::new(Arc::clone(transport) as _, transport.options());
        Self { server: Arc::clone(&transport.server), client }
    }
}

#[async_trait]
impl AgentListing for CommunicationListing {
    type Agent = AgentCommunication;
    type Description = AgentManifest;

    async fn list(&self) -> Result<Vec<ListedAgent<AgentManifest>>, ClientError> {
        // A server without paging returns all agents.
        let listed = self.client.agents_page(MAX_AGENTS, 0).await?;
        let most = MAX_AGENTS as usize;
        if listed.agents.len() > most {
            tracing::warn!(server = %self.server, most, "the other agents of the server are not served");
        }
        let agents = listed.agents.into_iter().take(most).map(|description| {
            let name = description.name.clone();
            ListedAgent { id: name.clone(), name, description }
        });
        Ok(agents.collect())
    }

    /// Builds an agent. Its title gets the prefix too.
    async fn build(
        &self,
        name: AgentName,
        remote: Remote,
        prefix: &str,
        listed: &ListedAgent<AgentManifest>,
    ) -> AgentCommunication {
        AgentCommunication::new(name, remote, None).with_prefix(prefix, &listed.description)
    }

    async fn learn(&self, agent: &AgentCommunication, manifest: Option<&AgentManifest>) {
        agent.learn(manifest);
    }
}

/// An agent that is served by its name takes what its server reports about it.
#[async_trait]
impl Refresh for Arc<AgentCommunication> {
    fn server(&self) -> &Arc<AgentServer> {
        &self.remote.server
    }

    async fn refresh(&mut self) -> Result<Vec<Arc<dyn Backend>>> {
        let asked = async {
            match self.client.agent(&self.remote.agent).await {
                Ok(manifest) => Ok(Some(manifest)),
                Err(ClientError::Refused(refusal)) if refusal.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.learn(self.remote.await_description(asked).await?.as_ref());
        Ok(Vec::new())
    }
}
