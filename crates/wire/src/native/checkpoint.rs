//! Checkpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;

/// A state of a thread on the path to its head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Its id.
    pub id: String,
    /// The checkpoint before it on the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    /// The run that made it; absent when a patch did, or when the run was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The thread number up to which the log is folded in.
    pub position: u64,
    /// The state; absent when it is derived from the messages on the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Json>,
    /// When it was made.
    pub created_at: String,
}
