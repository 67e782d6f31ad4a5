//! Interrupts: a run waits for a decision or data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AnswerGiven, Json, Part};

/// What a run waits for, and how the wait ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Interrupt {
    /// Its id; an answer names it.
    pub id: String,
    /// The run that waits. Absent inside an event, whose own `run_id` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The run's thread. Absent inside an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The run's agent. Absent inside an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// When it was raised. Absent inside an event, whose own `at` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_at: Option<String>,
    /// What kind of answer it wants: `permission`, `message`, `form`, `url`, or the agent's own kind.
    pub kind: String,
    /// The question in words and media; may be empty.
    #[serde(default)]
    pub prompt: Vec<Part>,
    /// The question as data; `null` where there is none.
    pub payload: Json,
    /// The choices of a permission, in the order in which they are shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<PermissionOption>,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    /// What it outlives.
    pub survives: Survives,
    /// How long it waits while nobody who may answer is connected, in milliseconds; without end when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<u64>,
    /// How it ended; absent while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<String>,
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

/// How an interrupt ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resolution {
    /// How.
    pub kind: ResolutionKind,
    /// Who answered. With `answered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What was answered. With `answered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerGiven>,
    /// SHA-256 of the payload that was shown, in hexadecimal. With `answered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The permission's option that was taken. With `timed_out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// Why, as a stable code. With `withdrawn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
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
