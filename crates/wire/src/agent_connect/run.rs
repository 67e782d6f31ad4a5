use super::{Json, Object, RunOutput, Time};
use crate::json::or_default;
use crate::json::record::record;
use crate::json::words::words;

record! {
    /// One execution of an agent, in its current state.
    pub struct Run {
        /// The id of the run.
        run_id: String,
        /// The thread of the run.
        thread_id?: String,
        /// The agent.
        agent_id: String,
        /// The configured instance of the run.
        configuration_id?: String,
        /// When the run was created.
        created_at: Time,
        /// When the run last changed.
        updated_at: Time,
        /// The status of the run.
        status: RunStatus,
        /// The status in Trilogue's more precise terms.
        phase?: String,
        /// The request that created the run.
        creation: Object = default from "or_default",
    }
}

words! {
    /// The status of a run.
    pub enum RunStatus {
        /// The run waits for its turn or its time, or the agent is running.
        Pending = "pending";
        /// The run failed or was cancelled.
        Error = "error";
        /// The run ended well.
        Success = "success";
        /// The run timed out.
        Timeout = "timeout";
        /// The run waits for an answer.
        Interrupted = "interrupted";
    }
}

record! {
    /// The response to a wait.
    pub struct RunWaitResponse {
        /// The run.
        run?: Run,
        /// The result of the run.
        output?: RunOutput,
        /// The output's `type`. In the protocol's document, this and the next members are at the top level.
        kind as "type"?: String,
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

// === impl RunWaitResponse ===

impl RunWaitResponse {
    /// Returns the text of the [result](RunResult::text); empty if the run has none.
    pub fn text(&self) -> String {
        match &self.output {
            Some(RunOutput::Result(result)) => result.text(),
            _ => String::new(),
        }
    }
}
