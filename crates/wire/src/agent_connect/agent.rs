use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InterruptSpec, Json, Limit, Offset, Streaming};
use crate::json::or_default;

/// The name of this protocol, as `/capabilities` says it.
pub const PROTOCOL: &str = "acp-connect";
/// The version of the published document that is followed.
pub const SPEC_VERSION: &str = "0.2.3";

/// An agent of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// Its id.
    pub agent_id: String,
    /// What it is.
    pub metadata: AgentMetadata,
    /// The same as `agent_id`, on mounts that follow the document to the letter.
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

/// Looks agents up: all members that are there have to match.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AgentSearchRequest {
    /// The name, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The most agents of the answer; all where it is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// How many matches are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
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

/// An agent's schemas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentSchemas {
    /// The agent.
    pub agent_id: String,
    /// What a run is given.
    pub input_schema: Json,
    /// What a run answers.
    pub output_schema: Json,
    /// The thread state, where it is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_schema: Option<Json>,
    /// The configuration.
    pub config_schema: Json,
    /// Its interrupts.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub interrupts: Vec<InterruptSpec>,
    /// Its own updates, where they are declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_streaming_update: Option<Json>,
}
