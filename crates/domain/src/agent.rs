//! Agents: their cards and what they declare.

use std::sync::Arc;

use crate::id::AgentName;
use crate::json::Json;

/// What an agent declares about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCard {
    /// The name of the agent on this server.
    pub name: AgentName,
    /// The agent's id from before it came to this server; `None` to make one from the name.
    pub id: Option<Arc<str>>,
    /// The agent's name elsewhere, such as the dotted name in a descriptor.
    pub title: Option<String>,
    /// The agent's version.
    pub version: String,
    /// The URL of a page about the agent.
    pub url: Option<String>,
    /// What the agent does, for people.
    pub description: String,
    /// The form of its input.
    pub input: InputKind,
    /// The JSON Schema of its result, if it returns a value.
    pub output_schema: Option<Json>,
    /// The JSON Schema of the thread state.
    pub state_schema: Option<Json>,
    /// The JSON Schema of the configuration.
    pub config_schema: Option<Json>,
    /// The JSON Schema of the agent's own updates.
    pub update_schema: Option<Json>,
    /// The interrupts that the agent declares.
    pub interrupts: Vec<DeclaredInterrupt>,
    /// The errors that the agent declares.
    pub errors: Vec<DeclaredError>,
    /// What the agent supports.
    pub abilities: Abilities,
    /// The descriptor that its author wrote (Agent Connect Protocol, Agent ACP descriptor), kept member for member; `None` to make one from this card.
    pub descriptor: Option<Json>,
    /// The MIME types that the agent reads.
    pub input_content_types: Vec<String>,
    /// The MIME types that the agent writes.
    pub output_content_types: Vec<String>,
    /// The commands with which a prompt can begin.
    pub commands: Vec<AgentCommand>,
}

/// A command with which a prompt can begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCommand {
    /// The name, as the agent announces it.
    pub name: String,
    /// What the command does, for people.
    pub description: String,
}

/// The form of an agent's input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InputKind {
    /// Messages.
    Chat,
    /// One JSON value that fits this JSON Schema.
    Schema(Json),
}

/// What an agent supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Whether the agent runs on lasting threads.
    pub threads: bool,
    /// Whether clients can request callbacks.
    pub callbacks: bool,
    /// Whether the output is streamed as a growing whole; `None` if the author does not declare it.
    pub streams_values: Option<bool>,
    /// Whether the agent's own updates are streamed; `None` if the author does not declare it.
    pub streams_updates: Option<bool>,
    /// The instructions of clients that the agent takes; `None` for none.
    pub system_prompt: Option<SystemPromptAbility>,
}

/// The instructions of clients that an agent takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemPromptAbility {
    /// Further instructions, next to its own.
    Append,
    /// Further instructions, or others instead of its own.
    AppendOrOverride,
}

/// An error that an agent can end with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredError {
    /// The stable code.
    pub code: String,
    /// The number, at least [`crate::limits::FIRST_AGENT_ERROR`]; unique within the agent.
    pub number: u32,
    /// The condition, for people.
    pub description: String,
    /// Whether the same request may succeed later.
    pub transient: bool,
    /// The JSON Schema of the details.
    pub data_schema: Option<Json>,
}

/// An interrupt that an agent can raise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredInterrupt {
    /// The kind.
    pub kind: String,
    /// The JSON Schema of the question.
    pub payload_schema: Json,
    /// The JSON Schema of the answer.
    pub answer_schema: Json,
}

// === impl AgentCard ===

impl AgentCard {
    /// Returns a card with the default abilities that declares nothing else.
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
    /// Supports threads and callbacks, and declares nothing about streaming.
    fn default() -> Self {
        Self {
            threads: true,
            callbacks: true,
            streams_values: None,
            streams_updates: None,
            system_prompt: None,
        }
    }
}
