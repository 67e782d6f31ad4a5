use super::object::object;
use super::{AgentCapabilities, AuthMethod, ClientCapabilities};

/// The version of the protocol that this module is.
pub const PROTOCOL_VERSION: u16 = 1;

object! {
    /// Begins a connection.
    pub struct InitializeRequest {
        /// The highest version that the client knows.
        protocol_version: u16 = "protocolVersion" as required;
    } may {
        /// What the client can do.
        client_capabilities: Option<ClientCapabilities> = "clientCapabilities" as lenient;
        /// Who the client is.
        client_info: Option<Implementation> = "clientInfo" as lenient;
    }
}

object! {
    /// The connection has begun.
    pub struct InitializeResponse {
        /// The version that both speak from now on.
        protocol_version: u16 = "protocolVersion" as required;
    } may {
        /// What the agent can do.
        agent_capabilities: Option<AgentCapabilities> = "agentCapabilities" as lenient;
        /// The ways to authenticate.
        auth_methods: Vec<AuthMethod> = "authMethods" as fitting;
        /// Who the agent is.
        agent_info: Option<Implementation> = "agentInfo" as lenient;
    }
}

object! {
    /// A program.
    pub struct Implementation {
        /// What it is called towards programs.
        name: String = "name" as required;
        /// Its version.
        version: String = "version" as required;
    } may {
        /// What it is called towards people.
        title: Option<String> = "title" as lenient;
    }
}
