use crate::json::Json;

/// An event of the state, a plan, or an update of the agent's own kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateEvent {
    /// The thread's state as the agent sets it. It becomes a checkpoint's value when the run completes.
    Values(Json),
    /// The agent's output so far, as a whole. Each output replaces the previous one, and the run's result replaces the last one.
    Output(Json),
    /// The agent's whole plan.
    Plan(Vec<PlanEntry>),
    /// An update of the agent's own kind.
    Custom {
        /// The kind.
        kind: String,
        /// The data.
        data: Json,
    },
}

/// One entry of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanEntry {
    /// The task.
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
