use super::Json;
use crate::json::record::record;

record! {
    /// An agent and its declared properties.
    pub struct Agent {
        /// The name of the agent on this server.
        name: String,
        /// The agent's name elsewhere, such as the dotted name in a descriptor.
        title?: String,
        /// The agent's version.
        version: String,
        /// What the agent does, for people.
        description: String,
        /// The form of the agent's input.
        input: AgentInput,
        /// The JSON Schema of the result, if the agent returns a value.
        output_schema?: Json,
        /// The JSON Schema of the thread state.
        state_schema?: Json,
        /// The JSON Schema of the configuration.
        config_schema?: Json,
        /// The interrupts that the agent declares.
        interrupts: Vec<DeclaredInterrupt> = default,
        /// The MIME types that the agent reads.
        input_content_types: Vec<String>,
        /// The MIME types that the agent writes.
        output_content_types: Vec<String>,
        /// The commands with which a prompt can begin.
        commands: Vec<AgentCommand> = default unless "Vec::is_empty",
        /// Why the agent cannot be used now: its server is unreachable or is starting. Absent if no problem is known.
        unavailable?: String,
        /// How a process of a hosted agent last failed: it did not start, or exited before a turn had completed. Absent if a turn has completed since, and for callers without the right `server`.
        last_failure?: LastFailure,
        /// Whether the member `cwd` of a run's `config` sets the agent's working directory. It is an absolute path on the server's machine.
        takes_folder: bool = default,
    }

    /// A failure of a hosted agent's process.
    pub struct LastFailure {
        /// When the process failed.
        at: String,
        /// What happened: for example the status with which the process exited, and the end of its output.
        reason: String,
    }

    /// A command with which a prompt can begin.
    pub struct AgentCommand {
        /// The name of the command.
        name: String,
        /// What the command does, for people.
        description: String,
    }

    /// The form of an agent's input.
    pub struct AgentInput {
        /// Whether the agent takes messages or one JSON value.
        kind: AgentInputKind,
        /// The JSON Schema of the value.
        schema?: Json,
    }

    /// Whether an agent takes messages or one JSON value.
    pub enum AgentInputKind {
        /// Messages.
        Chat,
        /// One JSON value that fits the schema.
        Schema,
    }

    /// An interrupt that an agent can raise.
    pub struct DeclaredInterrupt {
        /// The kind of the interrupt.
        kind: String,
        /// The JSON Schema of the question.
        payload_schema: Json,
        /// The JSON Schema of the answer.
        answer_schema: Json,
    }
}
