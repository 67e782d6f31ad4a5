use super::{
    Client, Configuration, ConfigurationCreate, ConfigurationPatch, ConfigurationSearchRequest,
};
use crate::client::ClientError;

// === impl Client ===

/// Configured instances of agents. Only Trilogue servers have them.
impl Client {
    /// Creates a configured instance of an agent. Later runs can use its id as the agent's id.
    ///
    /// # Errors
    /// `agent_not_found`, `configuration_exists`, `configuration_not_supported`, `config_schema_violation`.
    pub async fn create_configuration(
        &self,
        agent: &str,
        new: &ConfigurationCreate,
    ) -> Result<Configuration, ClientError> {
        self.post(&["agents", agent, "configurations"], new).await
    }

    /// Returns one configured instance.
    pub async fn configuration(&self, agent: &str, id: &str) -> Result<Configuration, ClientError> {
        self.get(&["agents", agent, "configurations", id]).await
    }

    /// Changes a configured instance. Existing runs keep their configuration.
    ///
    /// # Errors
    /// `configuration_not_found`, `config_schema_violation`.
    pub async fn patch_configuration(
        &self,
        agent: &str,
        id: &str,
        patch: &ConfigurationPatch,
    ) -> Result<Configuration, ClientError> {
        self.patch(&["agents", agent, "configurations", id], patch).await
    }

    /// Removes a configured instance.
    pub async fn delete_configuration(&self, agent: &str, id: &str) -> Result<(), ClientError> {
        self.delete(&["agents", agent, "configurations", id]).await
    }

    /// Returns the configured instances of an agent that match, newest first.
    pub async fn search_configurations(
        &self,
        agent: &str,
        request: &ConfigurationSearchRequest,
    ) -> Result<Vec<Configuration>, ClientError> {
        self.search(&["agents", agent, "configurations", "search"], request).await
    }
}
