use trilogue_wire::native::Json;

use super::{
    Agent, AgentCapabilities, AgentErrors, AgentSchemas, AgentSearchRequest, Authentication,
    Client, Descriptor, ErrorDefinition,
};
use crate::client::{ClientError, Method};

// === impl Client ===

impl Client {
    /// The agents that match: name and version exactly, where they are given; in the server's order.
    ///
    /// # Errors
    /// [`ClientError`], as every call. The reference server refuses a search without a name or a version.
    pub async fn search_agents(
        &self,
        request: &AgentSearchRequest,
    ) -> Result<Vec<Agent>, ClientError> {
        let found = self.found(&["agents", "search"], request).await;
        found.map_err(|error| match error {
            ClientError::Fault(mut fault) if is_all(request) && fault.is_unnamed(422) => {
                let hint = "this server finds agents only by their names or versions";
                fault.hint.get_or_insert_with(|| hint.to_owned());
                ClientError::Fault(fault)
            }
            error => error,
        })
    }

    /// All agents.
    pub async fn agents(&self) -> Result<Vec<Agent>, ClientError> {
        self.search_agents(&AgentSearchRequest::default()).await
    }

    /// The agent with this id, or else the first with this name.
    ///
    /// # Errors
    /// What the server says of the id, where there is no such name either.
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

    /// One agent.
    pub async fn agent(&self, id: &str) -> Result<Agent, ClientError> {
        self.get(&["agents", id]).await
    }

    /// What an agent's author declares: capabilities, schemas, interrupts, errors.
    pub async fn descriptor(&self, agent: &str) -> Result<Descriptor, ClientError> {
        self.get(&["agents", agent, "descriptor"]).await
    }

    /// The same member for member, as its author wrote it.
    pub async fn descriptor_as_written(&self, agent: &str) -> Result<Json, ClientError> {
        self.get(&["agents", agent, "descriptor"]).await
    }

    /// What an agent can do, with what the server adds. Only servers of ours say it.
    pub async fn capabilities(&self, agent: &str) -> Result<AgentCapabilities, ClientError> {
        self.get(&["agents", agent, "capabilities"]).await
    }

    /// An agent's schemas. Only servers of ours list them apart from the descriptor.
    pub async fn schemas(&self, agent: &str) -> Result<AgentSchemas, ClientError> {
        self.get(&["agents", agent, "schemas"]).await
    }

    /// The OpenAPI document of one agent, with its own schemas in place.
    pub async fn openapi(&self, agent: &str) -> Result<Json, ClientError> {
        self.get(&["agents", agent, "openapi"]).await
    }

    /// How an agent's callers prove who they are; needs no credentials. Only servers of ours say it.
    pub async fn agent_authentication(&self, agent: &str) -> Result<Authentication, ClientError> {
        self.get(&["agents", agent, "authentication"]).await
    }

    /// The same for the server as a whole.
    pub async fn authentication(&self) -> Result<Authentication, ClientError> {
        self.get(&["authentication"]).await
    }

    /// The errors that an agent declares beside the protocol's. Only servers of ours list them.
    pub async fn agent_errors(&self, agent: &str) -> Result<AgentErrors, ClientError> {
        self.get(&["agents", agent, "errors"]).await
    }

    /// The errors of the protocol. Only servers of ours list them.
    pub async fn errors(&self) -> Result<Vec<ErrorDefinition>, ClientError> {
        self.list(self.call(Method::Get, &["errors"])).await
    }
}

fn is_all(request: &AgentSearchRequest) -> bool {
    request.name.is_none() && request.version.is_none()
}
