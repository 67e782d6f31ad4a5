//! Sub-agents: the threads that an agent's runs work through, as child sessions.

use trilogue_domain::event::{Subagent, SubagentState};
use trilogue_domain::{Outcome, ThreadId};
use trilogue_wire::agent_client::{
    ContentBlock, IdleState, Patch, SessionUpdate, StateUpdate, StopReason,
    SubagentSessionCapabilities, SubagentStopReason, SubagentUpdate, Supported, ToolCall,
    ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolContent, ToolKind, WorkState, splice,
};

/// The title of a sub-agent without one.
pub(super) const UNTITLED: &str = "Sub-agent";

/// Returns the state of a child whose run works.
#[must_use]
pub fn running_state() -> StateUpdate {
    StateUpdate::Running(WorkState::new())
}

/// Returns the state of a child whose run waits for an answer.
#[must_use]
pub fn waiting_state() -> StateUpdate {
    StateUpdate::RequiresAction(WorkState::new())
}

/// Returns the state of a child whose run has ended. `result` is the agent's own result, as for [`super::prompt_result`].
#[must_use]
pub fn idle_state(outcome: &Outcome, result: Option<&str>) -> StateUpdate {
    let own = result.and_then(|result| splice::get_text(result, &["stopReason"]));
    let own = own.filter(|word| StopReason::parse(word).is_known());
    let reason = match (outcome, own) {
        (Outcome::Completed, Some(own)) => SubagentStopReason::parse(&own),
        (Outcome::Completed, None) => SubagentStopReason::EndTurn,
        (Outcome::Cancelled { .. }, _) => SubagentStopReason::Cancelled,
        (Outcome::Failed(_) | Outcome::TimedOut { .. }, _) => SubagentStopReason::Error,
    };
    StateUpdate::Idle(IdleState { stop_reason: Some(reason), ..IdleState::new() })
}

/// Announces the thread of a called agent. A client can cancel its runs.
#[must_use]
pub fn called_agent(agent: &str, thread: &ThreadId, state: Option<StateUpdate>) -> SessionUpdate {
    let cancel = Some(Supported::default());
    let capabilities = SubagentSessionCapabilities { cancel, ..SubagentSessionCapabilities::new() };
    SessionUpdate::Subagent(Box::new(SubagentUpdate {
        title: Patch::Set(agent.to_owned()),
        capabilities: Patch::Set(capabilities),
        state: state.map_or(Patch::Unchanged, Patch::Set),
        ..SubagentUpdate::new(thread.as_str())
    }))
}

/// Returns the whole description of a sub-agent as an update.
#[must_use]
pub fn subagent_update(subagent: &Subagent) -> SessionUpdate {
    let text = |text: &Option<String>| text.clone().map_or(Patch::Clear, Patch::Set);
    let cancel = subagent.can_cancel.then(Supported::default);
    let capabilities = SubagentSessionCapabilities { cancel, ..SubagentSessionCapabilities::new() };
    SessionUpdate::Subagent(Box::new(SubagentUpdate {
        title: text(&subagent.title),
        description: text(&subagent.description),
        capabilities: Patch::Set(capabilities),
        state: subagent.state.as_ref().map_or(Patch::Clear, |state| Patch::Set(state_of(state))),
        ..SubagentUpdate::new(subagent.thread.as_str())
    }))
}

fn state_of(state: &SubagentState) -> StateUpdate {
    match state {
        SubagentState::Running => running_state(),
        SubagentState::RequiresAction => waiting_state(),
        SubagentState::Unknown => StateUpdate::Unknown(WorkState::new()),
        SubagentState::Idle { stop_reason } => StateUpdate::Idle(IdleState {
            stop_reason: stop_reason.as_deref().map(SubagentStopReason::parse),
            ..IdleState::new()
        }),
    }
}

/// The id of the tool call that stands for a sub-agent, for clients that show no sub-agents.
fn subagent_call_id(thread: &ThreadId) -> String {
    format!("subagent-{thread}")
}

/// The tool call that stands for a sub-agent, as a client has it.
#[derive(Clone, PartialEq, Debug)]
pub struct SubagentCall {
    title: String,
    status: ToolCallStatus,
    /// Whether the agent has reported a state since the last time that it was not known.
    has_state: bool,
}

// === impl SubagentCall ===

impl SubagentCall {
    /// The call after this description. `before` is the one that the client has, if it has any.
    #[must_use]
    pub fn of(subagent: &Subagent, before: Option<&Self>) -> Self {
        let status = match (&subagent.state, before) {
            (Some(SubagentState::Idle { stop_reason }), _) => match stop_reason.as_deref() {
                Some("cancelled" | "error" | "refusal") => ToolCallStatus::Failed,
                _ => ToolCallStatus::Completed,
            },
            (Some(_), _) | (None, None) => ToolCallStatus::InProgress,
            // It worked, and how that ended is not known.
            (None, Some(Self { status: ToolCallStatus::InProgress, has_state: true, .. })) => {
                ToolCallStatus::Failed
            }
            (None, Some(before)) => before.status,
        };
        Self {
            title: subagent.title.clone().unwrap_or_else(|| UNTITLED.to_owned()),
            status,
            has_state: subagent.state.is_some(),
        }
    }

    /// Whether clients see no difference.
    #[must_use]
    pub fn looks_like(&self, other: &Self) -> bool {
        (&self.title, &self.status) == (&other.title, &other.status)
    }

    /// Returns the update with which the client has this call. `is_first`: the client does not have it yet.
    #[must_use]
    pub fn update(&self, thread: &ThreadId, is_first: bool) -> SessionUpdate {
        let (id, title) = (subagent_call_id(thread), self.title.clone());
        let status = Some(self.status);
        if is_first {
            let kind = Some(ToolKind::Other);
            return SessionUpdate::ToolCall(Box::new(ToolCall {
                kind,
                status,
                ..ToolCall::new(id, title)
            }));
        }
        SessionUpdate::ToolCallUpdate(Box::new(ToolCallUpdate {
            title: Some(title),
            status,
            ..ToolCallUpdate::new(id)
        }))
    }
}

/// Returns the update with what a sub-agent said, for the tool call that stands for it.
#[must_use]
pub fn subagent_call_text(thread: &ThreadId, text: &str) -> SessionUpdate {
    let content = ToolCallContent::Content(Box::new(ToolContent::new(ContentBlock::text(text))));
    SessionUpdate::ToolCallUpdate(Box::new(ToolCallUpdate {
        content: Some(vec![content]),
        ..ToolCallUpdate::new(subagent_call_id(thread))
    }))
}

/// Returns the update about a child's new state.
#[must_use]
pub fn subagent_state(thread: &ThreadId, state: StateUpdate) -> SessionUpdate {
    SessionUpdate::Subagent(Box::new(SubagentUpdate {
        state: Patch::Set(state),
        ..SubagentUpdate::new(thread.as_str())
    }))
}
