use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Json, Object, RunOutput, Time};
use crate::json::or_default;
use crate::json::words::words;

/// One execution of an agent, as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its id.
    pub run_id: String,
    /// The thread that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The agent.
    pub agent_id: String,
    /// The configured instance that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_id: Option<String>,
    /// When it was created.
    pub created_at: Time,
    /// When it changed last.
    pub updated_at: Time,
    /// Where it stands.
    pub status: RunStatus,
    /// Where it stands, in our finer words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The request that created it.
    #[serde(default, deserialize_with = "or_default")]
    pub creation: Object,
}

words! {
    /// Where a run stands.
    pub enum RunStatus {
        /// It waits for its turn or its time, or the agent works.
        Pending = "pending";
        /// It failed or was cancelled.
        Error = "error";
        /// It ended well.
        Success = "success";
        /// Its time was over.
        Timeout = "timeout";
        /// It waits for an answer.
        Interrupted = "interrupted";
    }
}

/// What a wait answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunWaitResponse {
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<RunOutput>,
    /// The output's `type`, on mounts that follow the document to the letter; so are the members below.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The output's `values`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The output's `interrupt_type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_type: Option<String>,
    /// The output's `interrupt_payload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_payload: Option<Json>,
}
