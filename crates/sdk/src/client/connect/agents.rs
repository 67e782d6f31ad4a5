use trilogue_wire::native::Json;

use super::{
    Agent, AgentCapabilities, AgentErrors, AgentSchemas, AgentSearchRequest, Authentication,
    Client, Descriptor, ErrorDefinition,
};
use crate::client::{ClientError, Method};

// === impl Client ===

impl Client {
    /// Returns the agents that match, in the server's order. A given name or version must match exactly.
    ///
    /// # Errors
    /// [`ClientError`], like every call. The reference server refuses a search without a name or a version.
    pub async fn search_agents(
        &self,
        request: &AgentSearchRequest,
    ) -> Result<Vec<Agent>, ClientError> {
        let found = self.search(&["agents", "search"], request).await;
        found.map_err(|error| match error {
            ClientError::Fault(mut fault) if is_all(request) && fault.is_unnamed(422) => {
                let hint = "this server finds agents only by their names or versions";
                fault.hint.get_or_insert_with(|| hint.to_owned());
                ClientError::Fault(fault)
            }
            error => error,
        })
    }

    /// Returns all agents.
    pub async fn agents(&self) -> Result<Vec<Agent>, ClientError> {
        self.search_agents(&AgentSearchRequest::default()).await
    }

    /// Returns the agent with this id, otherwise the first agent with this name.
    ///
    /// # Errors
    /// The server's error for the id, if the name does not exist either.
    pub async fn find_agent(&self, id_or_name: &str) -> Result<Agent, ClientError> {
        let unknown = match self.agent(id_or_name).await {
            Err(ClientError::Fault(fault)) if matches!(fault.status, 404 | 422) => fault,
            found => return found,
        };
        let named = AgentSearchRequest {
            name: Some(id_or_name.to_owned()),
            ..AgentSearchRequest::default()
        };
        let found = self.search_agents(&named).await?.into_iter().next();
        found.ok_or(ClientError::Fault(unknown))
    }

    /// Returns one agent.
    pub async fn agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.get(&["agents", id]).await
    }

    /// Returns an agent's descriptor: its capabilities, schemas, interrupts and errors.
    pub async fn descriptor(&self, agent: &str) -> Result<Descriptor, ClientError> {
        self.get(&["agents", agent, "descriptor"]).await
    }

    /// Returns the descriptor exactly as its author wrote it.
    pub async fn descriptor_as_written(&self, agent: &str) -> Result<Json, ClientError> {
        self.get(&["agents", agent, "descriptor"]).await
    }

    /// Returns an agent's capabilities, including the server's extensions. Only Trilogue servers have this.
    pub async fn capabilities(&self, agent: &str) -> Result<AgentCapabilities, ClientError> {
        self.get(&["agents", agent, "capabilities"]).await
    }

    /// Returns an agent's schemas. Only Trilogue servers list them separately from the descriptor.
    pub async fn schemas(&self, agent: &str) -> Result<AgentSchemas, ClientError> {
        self.get(&["agents", agent, "schemas"]).await
    }

    /// Returns the OpenAPI document of one agent, which includes its schemas.
    pub async fn openapi(&self, agent: &str) -> Result<Json, ClientError> {
        self.get(&["agents", agent, "openapi"]).await
    }

    /// Returns the authentication schemes of an agent. Needs no credentials. Only Trilogue servers have this.
    pub async fn agent_authentication(&self, agent: &str) -> Result<Authentication, ClientError> {
        self.get(&["agents", agent, "authentication"]).await
    }

    /// Returns the authentication schemes of the server as a whole.
    pub async fn authentication(&self) -> Result<Authentication, ClientError> {
        self.get(&["authentication"]).await
    }

    /// Returns the errors that an agent declares in addition to the protocol's. Only Trilogue servers list them.
    pub async fn agent_errors(&self, agent: &str) -> Result<AgentErrors, ClientError> {
        self.get(&["agents", agent, "errors"]).await
    }

    /// Returns the errors of the protocol. Only Trilogue servers list them.
    pub async fn errors(&self) -> Result<Vec<ErrorDefinition>, ClientError> {
        self.list(self.call(Method::Get, &["errors"])).await
    }
}

fn is_all(request: &AgentSearchRequest) -> bool {
    request.name.is_none() && request.version.is_none()
}
