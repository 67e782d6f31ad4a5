use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunStatus;

/// Something that lists show has changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListChange {
    /// What it is.
    pub kind: ListChangeKind,
    /// Its thread, or the thread itself.
    pub thread_id: String,
    /// The run, of a run or an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The agent, of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The status now, of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// The interrupt, of an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_id: Option<String>,
    /// Whether it waits for an answer, of an interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
}

/// What has changed.
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
