use crate::json::Json;

/// The kind of the custom event with a hosted agent's answer to its prompt. Only output that the agent sent late follows it in the run.
pub const TURN_RESULT: &str = "turn_result";

/// An event of the state, a plan, or an update of the agent's own kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateEvent {
    /// The thread's state as the agent sets it. It becomes a checkpoint's value when the run completes.
    Values(Json),
    /// The agent's output so far, as a whole. Each output replaces the previous one, and the run's result replaces the last one.
    Output(Json),
    /// The agent's whole plan.
    Plan(Vec<PlanEntry>),
    /// A whole plan that has an id. It replaces the plan with the same id.
    PlanUpdated {
        /// The plan's id, chosen by the agent.
        plan: String,
        /// The content.
        content: PlanContent,
    },
    /// A plan that has an id was removed.
    PlanRemoved {
        /// The plan's id.
        plan: String,
    },
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

/// The content of a plan that has an id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlanContent {
    /// A list of tasks.
    Entries(Vec<PlanEntry>),
    /// A document.
    Markdown {
        /// The whole document.
        text: String,
        /// The absolute path of the file that contains it.
        path: Option<String>,
    },
}

impl StateEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Values(_) => "state.values",
            Self::Output(_) => "state.output",
            Self::Plan(_) => "state.plan",
            Self::PlanUpdated { .. } => "state.plan_updated",
            Self::PlanRemoved { .. } => "state.plan_removed",
            Self::Custom { .. } => "state.custom",
        }
    }
}
