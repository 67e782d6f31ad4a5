use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Json, Object, RunOutput, Time};
use crate::json::or_default;
use crate::json::record::record;
use crate::json::words::words;

record! {
    /// One execution of an agent, as it stands.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Run {
        /// Its id.
        run_id: String,
        /// The thread that it runs on.
        thread_id?: String,
        /// The agent.
        agent_id: String,
        /// The configured instance that runs.
        configuration_id?: String,
        /// When it was created.
        created_at: Time,
        /// When it changed last.
        updated_at: Time,
        /// Where it stands.
        status: RunStatus,
        /// Where it stands, in our finer words.
        phase?: String,
        /// The request that created it.
        #[serde(default, deserialize_with = "or_default")]
        creation: Object,
    }
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

record! {
    /// What a wait answers.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct RunWaitResponse {
        /// The run.
        run?: Run,
        /// What came of it.
        output?: RunOutput,
        /// The output's `type`. It and the members below are at the top in the protocol's document.
        #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// The output's `result`.
        result?: Json,
        /// The output's `interrupt_type`.
        interrupt_type?: String,
        /// The output's `interrupt_payload`.
        interrupt_payload?: Json,
        /// The output's `errcode`.
        errcode?: i64,
        /// The output's `description`.
        description?: String,
    }
}
