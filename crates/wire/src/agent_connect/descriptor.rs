use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AgentMetadata, ErrorDefinition, Json};
use crate::json::or_default;
use crate::json::record::record;

/// An Agent ACP descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentACPDescriptor")]
pub struct Descriptor {
    /// The agent's metadata.
    pub metadata: AgentMetadata,
    /// The agent's capabilities and data.
    pub specs: Specs,
}

record! {
    /// The capabilities and data of an agent. Schemas are JSON Schema 2020-12.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    #[schemars(rename = "AgentACPSpec")]
    pub struct Specs {
        /// The capabilities of the agent.
        capabilities: Capabilities,
        /// The input of a run.
        input: Json,
        /// The output of a run.
        output: Json,
        /// The configuration.
        config: Json,
        /// The agent's own updates; requires `capabilities.streaming.custom`.
        custom_streaming_update?: Json,
        /// The thread state; requires `capabilities.threads`.
        thread_state?: Json,
        /// The interrupts of the agent; require `capabilities.interrupts`.
        interrupts?: Vec<InterruptSpec>,
        /// The agent's own errors. A Trilogue extension.
        errors?: Vec<ErrorDefinition>,
    }
}

/// The capabilities of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Capabilities {
    /// Whether the agent runs on threads.
    #[serde(default, deserialize_with = "or_default")]
    pub threads: bool,
    /// Whether the agent may interrupt its runs.
    #[serde(default, deserialize_with = "or_default")]
    pub interrupts: bool,
    /// Whether a run's client can request callbacks.
    #[serde(default, deserialize_with = "or_default")]
    pub callbacks: bool,
    /// How the output is streamed. Absent if the author does not declare it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
}

record! {
    /// How output is streamed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct Streaming {
        /// As a growing whole.
        values?: bool,
        /// As the agent's own updates.
        custom?: bool,
    }
}

/// An interrupt that an agent can raise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InterruptSpec {
    /// The name of the interrupt; unique within the agent.
    pub interrupt_type: String,
    /// The question.
    pub interrupt_payload: Json,
    /// The answer.
    pub resume_payload: Json,
}
