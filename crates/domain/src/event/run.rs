use crate::error::Code;
use crate::id::{AgentName, RunId};
use crate::json::Json;
use crate::run::{Outcome, RunAudit};

/// An event of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEvent {
    /// The run was accepted. Its input follows as messages, or is in `input`.
    Created {
        /// The id of the run.
        run: RunId,
        /// The agent that will run.
        agent: AgentName,
        /// The input as one JSON value, if the request has one.
        input: Option<Json>,
        /// Who requested the run. `None` in copies.
        audit: Option<Box<RunAudit>>,
    },
    /// The agent was started. This event is durable before the agent gets its input.
    Started,
    /// The last pending interrupt was answered, and the agent continues.
    Resumed,
    /// Cancellation of the run was requested.
    Cancelling {
        /// The reason, if it is more specific than a request to cancel.
        reason: Option<Code>,
    },
    /// The result value, if the agent returns one.
    Result(Json),
    /// The run ended.
    Ended(Outcome),
}

impl RunEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Created { .. } => "run.created",
            Self::Started => "run.started",
            Self::Resumed => "run.resumed",
            Self::Cancelling { .. } => "run.cancelling",
            Self::Result(_) => "run.result",
            Self::Ended(_) => "run.ended",
        }
    }
}
