use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentMetadata, ErrorDefinition, Json};
use crate::json::or_default;
use crate::json::record::record;

/// An Agent ACP descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentACPDescriptor")]
pub struct Descriptor {
    /// What the agent is.
    pub metadata: AgentMetadata,
    /// What it can do and which data it takes and gives.
    pub specs: Specs,
}

record! {
    /// What an agent can do and which data it takes and gives. Schemas are JSON Schema 2020-12.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "AgentACPSpec")]
    pub struct Specs {
        /// What it can do.
        capabilities: Capabilities,
        /// What a run is given.
        input: Json,
        /// What a run answers.
        output: Json,
        /// The configuration.
        config: Json,
        /// Its own updates; needs `capabilities.streaming.custom`.
        custom_streaming_update?: Json,
        /// The thread state; needs `capabilities.threads`.
        thread_state?: Json,
        /// Its interrupts; need `capabilities.interrupts`.
        interrupts?: Vec<InterruptSpec>,
        /// The errors of its own: an addition of ours.
        errors?: Vec<ErrorDefinition>,
    }
}

/// What an agent can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Capabilities {
    /// Whether it runs on threads.
    #[serde(default, deserialize_with = "or_default")]
    pub threads: bool,
    /// Whether it may interrupt its runs.
    #[serde(default, deserialize_with = "or_default")]
    pub interrupts: bool,
    /// Whether a run's client may be called back.
    #[serde(default, deserialize_with = "or_default")]
    pub callbacks: bool,
    /// How its output is streamed; absent where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
}

record! {
    /// How output is streamed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Streaming {
        /// As a whole that grows.
        values?: bool,
        /// As the agent's own updates.
        custom?: bool,
    }
}

/// An interrupt that an agent may raise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InterruptSpec {
    /// Its name; unique within the agent.
    pub interrupt_type: String,
    /// What is asked.
    pub interrupt_payload: Json,
    /// What is answered.
    pub resume_payload: Json,
}
