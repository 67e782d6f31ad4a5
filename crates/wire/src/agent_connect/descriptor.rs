use super::{AgentMetadata, ErrorDefinition, Json};
use crate::json::or_default;
use crate::json::record::record;

record! {
    /// An Agent ACP descriptor.
    #[schemars(rename = "AgentACPDescriptor")]
    pub struct Descriptor {
        /// The agent's metadata.
        metadata: AgentMetadata,
        /// The agent's capabilities and data.
        specs: Specs,
    }

    /// The capabilities and data of an agent. Schemas are JSON Schema 2020-12.
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

    /// The capabilities of an agent.
    pub struct Capabilities: Default, Copy {
        /// Whether the agent runs on threads.
        threads: bool = default from "or_default",
        /// Whether the agent may interrupt its runs.
        interrupts: bool = default from "or_default",
        /// Whether a run's client can request callbacks.
        callbacks: bool = default from "or_default",
        /// How the output is streamed. Absent if the author does not declare it.
        streaming?: Streaming,
    }

    /// How output is streamed.
    pub struct Streaming: Default, Copy {
        /// As a growing whole.
        values?: bool,
        /// As the agent's own updates.
        custom?: bool,
    }

    /// An interrupt that an agent can raise.
    pub struct InterruptSpec {
        /// The name of the interrupt; unique within the agent.
        interrupt_type: String,
        /// The question.
        interrupt_payload: Json,
        /// The answer.
        resume_payload: Json,
    }
}
