use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InterruptSpec, Json, Limit, Offset, Streaming};
use crate::json::or_default;
use crate::json::record::record;

/// The name of this protocol, as `/capabilities` says it.
pub const PROTOCOL: &str = "acp-connect";
/// The version of the published document that is followed.
pub const SPEC_VERSION: &str = "0.2.3";

/// An agent of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// Its id; that of a configured instance of it, where that was asked for.
    pub agent_id: String,
    /// The configured instance, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_id: Option<String>,
    /// What it is.
    pub metadata: AgentMetadata,
    /// The same as `agent_id`, by the name that the protocol's document has for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// What an agent is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentMetadata {
    /// Which one.
    #[serde(rename = "ref")]
    pub reference: AgentRef,
    /// What it does, for people.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
}

/// Names an agent: name and version are unique on a server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentRef {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where more can be read of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

record! {
    /// Looks agents up: all members that are there have to match.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct AgentSearchRequest {
        /// The name, exactly.
        name?: String,
        /// The version, exactly.
        version?: String,
        /// The most agents of the answer; all where it is not sent.
        limit?: Limit,
        /// How many matches are passed over.
        offset?: Offset,
    }
}

/// What an agent can do on this server: what its author declares, and what the server adds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentCapabilities {
    /// Whether it runs on threads.
    pub threads: bool,
    /// Whether it may interrupt its runs.
    pub interrupts: bool,
    /// Whether a run's client may be called back.
    pub callbacks: bool,
    /// How its output is streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    /// [`PROTOCOL`].
    pub protocol: String,
    /// [`SPEC_VERSION`].
    pub spec_version: String,
    /// Whether configured instances of it can be made.
    pub configurations: bool,
    /// Whether it declares errors of its own.
    pub errors: bool,
}

record! {
    /// An agent's schemas.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct AgentSchemas {
        /// The agent.
        agent_id: String,
        /// What a run is given.
        input_schema: Json,
        /// What a run answers.
        output_schema: Json,
        /// The thread state, where it is declared.
        state_schema?: Json,
        /// The configuration.
        config_schema: Json,
        /// Its interrupts.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
        interrupts: Vec<InterruptSpec>,
        /// Its own updates, where they are declared.
        custom_streaming_update?: Json,
    }
}
