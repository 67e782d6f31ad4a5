use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AnswerGiven, Json, Part};
use crate::json::record::record;

record! {
    /// What a run waits for, and how the wait ended.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Interrupt {
        /// Its id; an answer names it.
        id: String,
        /// The run that waits. Absent inside an event, whose own `run_id` says it.
        run_id?: String,
        /// The run's thread. Absent inside an event.
        thread_id?: String,
        /// The run's agent. Absent inside an event.
        agent?: String,
        /// When it was raised. Absent inside an event, whose own `at` says it.
        raised_at?: String,
        /// What kind of answer it wants: `permission`, `message`, `form`, `url`, or the agent's own kind.
        kind: String,
        /// The question in words and media; may be empty.
        #[serde(default)]
        prompt: Vec<Part>,
        /// The question as data; `null` where there is none.
        payload: Json,
        /// The choices of a permission, in the order in which they are shown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<PermissionOption>,
        /// The JSON Schema of the answer.
        schema?: Json,
        /// What it outlives.
        survives: Survives,
        /// How long it waits while nobody who may answer is connected, in milliseconds; without end when absent.
        patience_ms?: u64,
        /// How it ended; absent while it is pending.
        resolution?: Resolution,
        /// When it ended.
        resolved_at?: String,
    }
}

/// One choice of a permission.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PermissionOption {
    /// The id that an answer names.
    pub id: String,
    /// What the user reads.
    pub name: String,
    /// Whether choosing it allows or rejects.
    pub effect: Effect,
    /// Whether the choice holds for later calls too.
    #[serde(default)]
    pub always: bool,
}

/// Whether an option allows or rejects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The agent may go on.
    Allow,
    /// The agent may not.
    Reject,
}

/// What an interrupt outlives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Survives {
    /// Only as long as the agent's process or task waits.
    Process,
    /// A restart of the server.
    Restart,
}

record! {
    /// How an interrupt ended.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Resolution {
        /// How.
        kind: ResolutionKind,
        /// Who answered. With `answered`.
        by?: String,
        /// What was answered. With `answered`.
        answer?: AnswerGiven,
        /// SHA-256 of the payload that was shown, in hexadecimal. With `answered`.
        digest?: String,
        /// The permission's option that was taken. With `timed_out`.
        option?: String,
        /// Why, as a stable code. With `withdrawn`.
        reason?: String,
    }
}

/// How an interrupt ended, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolutionKind {
    /// Somebody answered.
    Answered,
    /// Nobody answered in time; for a permission the reject option was taken.
    TimedOut,
    /// The run was cancelled.
    Cancelled,
    /// It went with what raised it.
    Withdrawn,
}
