//! Agents: something that can be run.

use crate::id::AgentName;
use crate::json::Json;

/// What an agent says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCard {
    /// The name under which it is served.
    pub name: AgentName,
    /// The name it has elsewhere, such as a descriptor's dotted name.
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// What it does, for people.
    pub description: String,
    /// How it takes its input.
    pub input: InputKind,
    /// The JSON Schema of its output, where it answers with a value.
    pub output_schema: Option<Json>,
    /// The JSON Schema of the thread state it keeps.
    pub state_schema: Option<Json>,
    /// The JSON Schema of its configuration.
    pub config_schema: Option<Json>,
    /// The interrupts it declares.
    pub interrupts: Vec<DeclaredInterrupt>,
    /// MIME types it reads.
    pub input_content_types: Vec<String>,
    /// MIME types it writes.
    pub output_content_types: Vec<String>,
}

/// How an agent takes its input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// Messages.
    Chat,
    /// One JSON value that fits this JSON Schema.
    Schema(Json),
}

/// An interrupt that an agent may raise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredInterrupt {
    /// Its kind.
    pub kind: String,
    /// The JSON Schema of the question.
    pub payload_schema: Json,
    /// The JSON Schema of the answer.
    pub answer_schema: Json,
}
