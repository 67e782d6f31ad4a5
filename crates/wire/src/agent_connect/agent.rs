use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InterruptSpec, Json, Limit, Offset, Streaming};
use crate::json::or_default;
use crate::json::record::record;

/// The name of this protocol in `/capabilities`.
pub const PROTOCOL: &str = "acp-connect";
/// The version of the published specification.
pub const SPEC_VERSION: &str = "0.2.3";

/// An agent of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// The agent's id. For a configured instance, the id of the instance.
    pub agent_id: String,
    /// The configured instance, if the request names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_id: Option<String>,
    /// The agent's metadata.
    pub metadata: AgentMetadata,
    /// The same as `agent_id`, under the name in the protocol's document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The metadata of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentMetadata {
    /// The name and version.
    #[serde(rename = "ref")]
    pub reference: AgentRef,
    /// What the agent does, for people.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
}

/// Names an agent. Name and version together are unique on a server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentRef {
    /// The name of the agent.
    pub name: String,
    /// The version of the agent.
    pub version: String,
    /// The URL of a page about the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

record! {
    /// Searches agents. All given members must match.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct AgentSearchRequest {
        /// The exact name.
        name?: String,
        /// The exact version.
        version?: String,
        /// The maximum number of agents in the response. By default all.
        limit?: Limit,
        /// The number of matches to skip.
        offset?: Offset,
    }
}

/// What an agent supports on this server: the properties that its author declares and those that the server adds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentCapabilities {
    /// Whether the agent runs on threads.
    pub threads: bool,
    /// Whether the agent may interrupt its runs.
    pub interrupts: bool,
    /// Whether a run's client can request callbacks.
    pub callbacks: bool,
    /// How the output is streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    /// [`PROTOCOL`].
    pub protocol: String,
    /// [`SPEC_VERSION`].
    pub spec_version: String,
    /// Whether clients can create configured instances.
    pub configurations: bool,
    /// Whether the agent declares its own errors.
    pub errors: bool,
}

record! {
    /// The schemas of an agent.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
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
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
        interrupts: Vec<InterruptSpec>,
        /// The agent's own updates, if they are declared.
        custom_streaming_update?: Json,
    }
}
