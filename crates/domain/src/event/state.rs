use crate::id::ThreadId;
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
    /// A sub-agent of the thread's agent, as it is now. It replaces the earlier description of the same thread.
    Subagent(Subagent),
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

/// A sub-agent: a conversation that the thread's agent has started itself, as a thread of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subagent {
    /// The sub-agent's thread.
    pub thread: ThreadId,
    /// The title for people.
    pub title: Option<String>,
    /// Its role or purpose, for people.
    pub description: Option<String>,
    /// What it does now; `None` if its agent has not reported that.
    pub state: Option<SubagentState>,
    /// Whether its work can be cancelled alone.
    pub can_cancel: bool,
}

/// What a sub-agent does. Idle is not its end: its parent can give it more work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubagentState {
    /// It works.
    Running,
    /// It does not work.
    Idle {
        /// Why it stopped, in the agent's word, such as `end_turn`, `cancelled` or `error`.
        stop_reason: Option<String>,
    },
    /// It waits for a person.
    RequiresAction,
    /// Its agent cannot tell, or reports a state that this version does not know.
    Unknown,
}

impl StateEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Values(_) => "state.values",
            Self::Output(_) => "state.output",
            Self::Plan(_) => "state.plan",
            Self::PlanUpdated { .. } => "state.plan_updated",
            Self::PlanRemoved { .. } => "state.plan_removed",
            Self::Subagent(_) => "state.subagent",
            Self::Custom { .. } => "state.custom",
        }
    }
}

impl SubagentState {
    /// The word for the state: `running`, `idle`, `requires_action` or `unknown`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Idle { .. } => "idle",
            Self::RequiresAction => "requires_action",
            Self::Unknown => "unknown",
        }
    }

    /// The state of a word and a stop reason, which only `idle` has. An unknown word is [`Self::Unknown`].
    #[must_use]
    pub fn from_text(state: &str, stop_reason: Option<String>) -> Self {
        match state {
            "running" => Self::Running,
            "idle" => Self::Idle { stop_reason },
            "requires_action" => Self::RequiresAction,
            _ => Self::Unknown,
        }
    }

    /// Why an idle sub-agent stopped.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&str> {
        match self {
            Self::Idle { stop_reason } => stop_reason.as_deref(),
            Self::Running | Self::RequiresAction | Self::Unknown => None,
        }
    }
}
