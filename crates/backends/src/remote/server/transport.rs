//! Sends the requests of an agent to its server.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_sdk::client::{Credential, Options, Request, Response, Transport, TransportError};

use super::agent_server::AgentServer;
use crate::remote::Remote;

/// Sends requests to a server with a credential. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RemoteTransport {
    pub server: Arc<AgentServer>,
    /// Sent to the server's address and nowhere else: redirects are not followed.
    pub credential: Option<Credential>,
}

// === impl RemoteTransport ===

impl RemoteTransport {
    /// Returns the options for a client of the server: its base path.
    pub(crate) fn options(&self) -> Options {
        Options::at(&self.server.path())
    }

    /// Returns the agent with this name or id at the server.
    pub(crate) fn agent(&self, agent: &str) -> Remote {
        let (server, credential) = (Arc::clone(&self.server), self.credential.clone());
        Remote { server, agent: agent.to_owned(), credential }
    }
}

#[async_trait]
impl Transport for RemoteTransport {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let credential = self.credential.clone();
        let prepare = |transport: trilogue_sdk::client::HttpTransport| match credential {
            Some(credential) => transport.credential(credential),
            None => transport,
        };
        self.server.send(request, prepare).await
    }
}
