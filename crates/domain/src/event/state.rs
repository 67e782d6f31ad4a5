use crate::json::Json;

/// Something about state, plans, or the agent's own updates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateEvent {
    /// The thread's state as the agent sets it; becomes a checkpoint's value when the run completes.
    Values(Json),
    /// The agent's output so far, whole: each replaces the one before, and the run's result the last.
    Output(Json),
    /// The agent's plan, whole.
    Plan(Vec<PlanEntry>),
    /// The agent's own update.
    Custom {
        /// Its kind.
        kind: String,
        /// Its data.
        data: Json,
    },
}

/// One entry of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress` or `completed`.
    pub status: String,
}

impl StateEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Values(_) => "state.values",
            Self::Output(_) => "state.output",
            Self::Plan(_) => "state.plan",
            Self::Custom { .. } => "state.custom",
        }
    }
}
