use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunStatus;

/// A change of an item in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListChange {
    /// The kind of change.
    pub kind: ListChangeKind,
    /// The thread, or the thread of the run or interrupt.
    pub thread_id: String,
    /// The run, for changes of a run or an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The agent, for changes of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The current status, for changes of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// The interrupt, for changes of an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_id: Option<String>,
    /// Whether the interrupt waits for an answer, for changes of an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
}

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListChangeKind {
    /// A thread is new, or its metadata, runs or head changed.
    Thread,
    /// A thread was removed.
    ThreadRemoved,
    /// A run is new, or its status changed.
    Run,
    /// An interrupt is new, or was resolved.
    Interrupt,
}
