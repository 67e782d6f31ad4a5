use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;
use crate::json::record::record;

record! {
    /// An agent and what it says of itself.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Agent {
        /// The name under which it is served.
        name: String,
        /// The name it has elsewhere, such as a descriptor's dotted name.
        title?: String,
        /// Its version.
        version: String,
        /// What it does, for people.
        description: String,
        /// How it takes its input.
        input: AgentInput,
        /// The JSON Schema of its output, where it answers with a value.
        output_schema?: Json,
        /// The JSON Schema of the thread state it keeps.
        state_schema?: Json,
        /// The JSON Schema of its configuration.
        config_schema?: Json,
        /// The interrupts it declares.
        #[serde(default)]
        interrupts: Vec<DeclaredInterrupt>,
        /// MIME types it reads.
        input_content_types: Vec<String>,
        /// MIME types it writes.
        output_content_types: Vec<String>,
        /// The commands that a prompt can begin with.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        commands: Vec<AgentCommand>,
        /// Why the agent cannot be used now, where the server knows that it cannot: its own server is out of reach, or is being started.
        unavailable?: String,
        /// Whether the member `cwd` of a run's `config` names the folder in which the agent works. It is an absolute path of the server's machine.
        #[serde(default)]
        takes_folder: bool,
    }
}

/// A command that a prompt can begin with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentCommand {
    /// Its name.
    pub name: String,
    /// What it does, for people.
    pub description: String,
}

/// How an agent takes its input.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AgentInput {
    /// Messages, or one JSON value.
    pub kind: AgentInputKind,
    /// The JSON Schema of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
}

/// Whether an agent takes messages or one JSON value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentInputKind {
    /// Messages.
    Chat,
    /// One JSON value that fits the schema.
    Schema,
}

/// An interrupt that an agent may raise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DeclaredInterrupt {
    /// Its kind.
    pub kind: String,
    /// The JSON Schema of the question.
    pub payload_schema: Json,
    /// The JSON Schema of the answer.
    pub answer_schema: Json,
}
