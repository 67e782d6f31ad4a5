use super::{AnswerGiven, Json, Part};
use crate::json::record::record;

record! {
    /// A question that a run waits for, and its resolution.
    pub struct Interrupt {
        /// The id of the interrupt. Use it in an answer.
        id: String,
        /// The run that waits. Absent inside an event, which has its own `run_id`.
        run_id?: String,
        /// The run's thread. Absent inside an event.
        thread_id?: String,
        /// The run's agent. Absent inside an event.
        agent?: String,
        /// When the interrupt was raised. Absent inside an event, which has its own `at`.
        raised_at?: String,
        /// The kind of answer: `permission`, `message`, `form`, `url`, or the agent's own kind.
        kind: String,
        /// The question for people, as text and media. May be empty.
        prompt: Vec<Part> = default,
        /// The question as data; `null` if it has none.
        payload: Json,
        /// The options of a permission, in the order in which they are shown.
        options: Vec<PermissionOption> = default unless "Vec::is_empty",
        /// The JSON Schema of the answer.
        schema?: Json,
        /// Whether the interrupt survives a restart.
        survives: Survives,
        /// How long the interrupt waits while no client that may answer is connected, in milliseconds. Without a limit if absent.
        patience_ms?: u64,
        /// How the interrupt ended. Absent while it is pending.
        resolution?: Resolution,
        /// When the interrupt ended.
        resolved_at?: String,
    }

    /// One option of a permission.
    pub struct PermissionOption {
        /// The id that an answer uses.
        id: String,
        /// The name for people.
        name: String,
        /// Whether the option allows or rejects.
        effect: Effect,
        /// Whether the decision also holds for later calls.
        always: bool = default,
    }

    /// Whether an option allows or rejects.
    pub enum Effect {
        /// The agent may do it.
        Allow,
        /// The agent may not do it.
        Reject,
    }

    /// How long an interrupt survives.
    pub enum Survives {
        /// As long as the agent's process or task waits.
        Process,
        /// Across a restart of the server.
        Restart,
    }

    /// How an interrupt ended.
    pub struct Resolution {
        /// The kind of the resolution.
        kind: ResolutionKind,
        /// Who answered. With `answered`.
        by?: String,
        /// The answer. With `answered`.
        answer?: AnswerGiven,
        /// The SHA-256 of the payload that was shown, in hexadecimal. With `answered`.
        digest?: String,
        /// The permission's option that was taken. With `timed_out`.
        option?: String,
        /// The reason, as a stable code. With `withdrawn`.
        reason?: String,
    }

    /// The kind of a resolution.
    pub enum ResolutionKind {
        /// The interrupt was answered.
        Answered,
        /// The interrupt got no answer in time. For a permission, the reject option was taken.
        TimedOut,
        /// The run was cancelled.
        Cancelled,
        /// The interrupt ended together with its agent.
        Withdrawn,
    }
}

// === impl Interrupt ===

impl Interrupt {
    /// Returns the text of the question.
    pub fn text(&self) -> String {
        self.prompt.iter().filter_map(Part::as_text).collect()
    }
}
