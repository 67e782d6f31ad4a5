//! The names under which an agent's own schemas stand in an OpenAPI document.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! named {
    ($($(#[$meta:meta])* $name:ident = $schema:tt;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

named! {
    /// What a run is given.
    InputSchema = { "description": "What a run is given: any JSON that fits the agent's input schema." };
    /// What a run answers.
    OutputSchema = { "description": "What a run answers: any JSON that fits the agent's output schema." };
    /// How an agent is configured.
    ConfigSchema = { "description": "How an agent is configured: any JSON that fits the agent's config schema." };
    /// A thread's state.
    ThreadStateSchema = { "description": "The state of a thread: any JSON that fits the agent's thread state schema." };
    /// What an interrupt asks: the payload under the name of the interrupt's type.
    InterruptPayloadSchema = { "description": "What is asked: the interrupt's payload under the name of its type." };
    /// What an interrupt is answered.
    ResumePayloadSchema = { "description": "The answer to an interrupt: the payload itself, the payload under the name of the interrupt's type, or an object with `interrupt_type` and `resume_payload`." };
    /// An agent's own update.
    StreamUpdateSchema = { "type": "object", "description": "An update that fits the agent's custom streaming update schema." };
}
