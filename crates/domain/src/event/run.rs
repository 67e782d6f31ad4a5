use crate::error::Code;
use crate::id::{AgentName, RunId};
use crate::json::Json;
use crate::run::{Outcome, RunAudit};

/// Something about a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEvent {
    /// It was accepted. Its input follows as messages, or stands in `input`.
    Created {
        /// Its id.
        run: RunId,
        /// The agent that will run.
        agent: AgentName,
        /// The input as one JSON value, where it was given so.
        input: Option<Json>,
        /// Who asked for it. `None` in copies.
        audit: Option<Box<RunAudit>>,
    },
    /// The agent was started; durable before the agent sees its input.
    Started,
    /// Its last pending interrupt was answered and the agent goes on.
    Resumed,
    /// Somebody asked it to stop.
    Cancelling {
        /// Why, where there is more to say than that somebody asked.
        reason: Option<Code>,
    },
    /// Its value, where the agent answers with one.
    Result(Json),
    /// It ended.
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
