//! Agents: something that can be run.

use std::sync::Arc;

use crate::id::AgentName;
use crate::json::Json;

/// What an agent says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCard {
    /// The name under which it is served.
    pub name: AgentName,
    /// The id that it has had before it came to this server; made from its name when `None`.
    pub id: Option<Arc<str>>,
    /// The name it has elsewhere, such as a descriptor's dotted name.
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// Where more can be read of it.
    pub url: Option<String>,
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
    /// The JSON Schema of its own updates.
    pub update_schema: Option<Json>,
    /// The interrupts it declares.
    pub interrupts: Vec<DeclaredInterrupt>,
    /// The errors of its own.
    pub errors: Vec<DeclaredError>,
    /// What it can do and what not.
    pub abilities: Abilities,
    /// The descriptor that its author wrote (Agent Connect Protocol, Agent ACP descriptor), member for member; one is made of this card when `None`.
    pub descriptor: Option<Json>,
    /// MIME types it reads.
    pub input_content_types: Vec<String>,
    /// MIME types it writes.
    pub output_content_types: Vec<String>,
    /// The commands that a prompt can begin with.
    pub commands: Vec<AgentCommand>,
}

/// A command that a prompt can begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCommand {
    /// Its name, as its agent announces it.
    pub name: String,
    /// What it does, for people.
    pub description: String,
}

/// How an agent takes its input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// Messages.
    Chat,
    /// One JSON value that fits this JSON Schema.
    Schema(Json),
}

/// What an agent can do and what not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Whether it runs on threads that last.
    pub threads: bool,
    /// Whether its clients may be called back.
    pub callbacks: bool,
    /// Whether its output is streamed as a whole that grows; `None` where its author does not say.
    pub streams_values: Option<bool>,
    /// Whether its own updates are streamed; `None` where its author does not say.
    pub streams_updates: Option<bool>,
}

/// An error that an agent may end with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredError {
    /// Its stable code.
    pub code: String,
    /// Its number, at least [`crate::limits::FIRST_AGENT_ERROR`]; unique within the agent.
    pub number: u32,
    /// The condition, for people.
    pub description: String,
    /// Whether the same request may succeed later.
    pub transient: bool,
    /// The JSON Schema of its details.
    pub data_schema: Option<Json>,
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

// === impl AgentCard ===

impl AgentCard {
    /// A card that declares nothing.
    #[must_use]
    pub fn new(name: AgentName, input: InputKind) -> Self {
        Self {
            name,
            id: None,
            title: None,
            version: String::new(),
            url: None,
            description: String::new(),
            input,
            output_schema: None,
            state_schema: None,
            config_schema: None,
            update_schema: None,
            interrupts: Vec::new(),
            errors: Vec::new(),
            abilities: Abilities::default(),
            descriptor: None,
            input_content_types: Vec::new(),
            output_content_types: Vec::new(),
            commands: Vec::new(),
        }
    }
}

// === impl Abilities ===

impl Default for Abilities {
    /// Threads and callbacks; of streaming nothing is said.
    fn default() -> Self {
        Self { threads: true, callbacks: true, streams_values: None, streams_updates: None }
    }
}
