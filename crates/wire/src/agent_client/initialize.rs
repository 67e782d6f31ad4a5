use super::object::object;
use super::{AgentCapabilities, AuthMethod, ClientCapabilities};

pub const PROTOCOL_VERSION: u16 = 1;

object! {
    pub struct InitializeRequest {
        /// The highest version that the client supports.
        protocol_version: u16 = "protocolVersion";
    } may {
        client_capabilities: Option<ClientCapabilities> = "clientCapabilities";
        client_info: Option<Implementation> = "clientInfo";
    }

    pub struct InitializeResponse {
        /// The version of this connection.
        protocol_version: u16 = "protocolVersion";
    } may {
        agent_capabilities: Option<AgentCapabilities> = "agentCapabilities";
        auth_methods: Vec<AuthMethod> = "authMethods" as fitting;
        agent_info: Option<Implementation> = "agentInfo";
    }

    pub struct Implementation {
        /// For programs.
        name: String = "name";
        version: String = "version";
    } may {
        /// For people.
        title: Option<String> = "title";
    }
}
