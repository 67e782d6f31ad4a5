//! The names of an agent's own schemas in an OpenAPI document.

use schemars::json_schema;

use crate::json::schema::schema;

macro_rules! named {
    ($($(#[$meta:meta])* $name:ident = $schema:tt;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        schema!($name = stringify!($name), |_| json_schema!($schema));
    )*};
}

named! {
    /// The input of a run.
    InputSchema = { "description": "What a run is given: any JSON that fits the agent's input schema." };
    /// The output of a run.
    OutputSchema = { "description": "What a run answers: any JSON that fits the agent's output schema." };
    /// The configuration of an agent.
    ConfigSchema = { "description": "How an agent is configured: any JSON that fits the agent's config schema." };
    /// The state of a thread.
    ThreadStateSchema = { "description": "The state of a thread: any JSON that fits the agent's thread state schema." };
    /// The payload of an interrupt, as a member named after the interrupt's type.
    InterruptPayloadSchema = { "description": "What is asked: the interrupt's payload under the name of its type." };
    /// The answer to an interrupt.
    ResumePayloadSchema = { "description": "The answer to an interrupt: the payload itself, the payload under the name of the interrupt's type, or an object with `interrupt_type` and `resume_payload`." };
    /// An update of the agent's own kind.
    StreamUpdateSchema = { "type": "object", "description": "An update that fits the agent's custom streaming update schema." };
}
