use super::{InterruptSpec, Json, Limit, Offset, Streaming};
use crate::json::or_default;
use crate::json::record::record;

/// The name of this protocol in `/capabilities`.
pub const PROTOCOL: &str = "acp-connect";
/// The version of the published specification.
pub const SPEC_VERSION: &str = "0.2.3";

record! {
    /// An agent of the server.
    pub struct Agent {
        /// The agent's id. For a configured instance, the id of the instance.
        agent_id: String,
        /// The configured instance, if the request names one.
        configuration_id?: String,
        /// The agent's metadata.
        metadata: AgentMetadata,
        /// The same as `agent_id`, under the name in the protocol's document.
        id?: String,
    }

    /// The metadata of an agent.
    pub struct AgentMetadata: Default {
        /// The name and version.
        reference as "ref": AgentRef,
        /// What the agent does, for people.
        description: String = default from "or_default",
    }

    /// Names an agent. Name and version together are unique on a server.
    pub struct AgentRef: Default {
        /// The name of the agent.
        name: String,
        /// The version of the agent.
        version: String,
        /// The URL of a page about the agent.
        url?: String,
    }

    /// Searches agents. All given members must match.
    pub struct AgentSearchRequest: Default {
        /// The exact name.
        name?: String,
        /// The exact version.
        version?: String,
        /// The maximum number of agents in the response. By default all.
        limit?: Limit,
        /// The number of matches to skip.
        offset?: Offset,
    }

    /// What an agent supports on this server: the properties that its author declares and those that the server adds.
    pub struct AgentCapabilities {
        /// Whether the agent runs on threads.
        threads: bool,
        /// Whether the agent may interrupt its runs.
        interrupts: bool,
        /// Whether a run's client can request callbacks.
        callbacks: bool,
        /// How the output is streamed.
        streaming?: Streaming,
        /// [`PROTOCOL`].
        protocol: String,
        /// [`SPEC_VERSION`].
        spec_version: String,
        /// Whether clients can create configured instances.
        configurations: bool,
        /// Whether the agent declares its own errors.
        errors: bool,
    }

    /// The schemas of an agent.
    pub struct AgentSchemas {
        /// The id of the agent.
        agent_id: String,
        /// The input of a run.
        input_schema: Json,
        /// The output of a run.
        output_schema: Json,
        /// The thread state, if it is declared.
        state_schema?: Json,
        /// The configuration.
        config_schema: Json,
        /// The interrupts of the agent.
        interrupts: Vec<InterruptSpec> = default from "or_default" unless "Vec::is_empty",
        /// The agent's own updates, if they are declared.
        custom_streaming_update?: Json,
    }
}
