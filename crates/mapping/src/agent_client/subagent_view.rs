//! Sub-agents: the threads that an agent's runs work through, as child sessions.

use trilogue_domain::{Outcome, ThreadId};
use trilogue_wire::agent_client::{
    IdleState, Patch, SessionUpdate, StateUpdate, StopReason, SubagentSessionCapabilities,
    SubagentStopReason, SubagentUpdate, Supported, WorkState, splice,
};

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

/// Returns the update about a child's new state.
#[must_use]
pub fn subagent_state(thread: &ThreadId, state: StateUpdate) -> SessionUpdate {
    SessionUpdate::Subagent(Box::new(SubagentUpdate {
        state: Patch::Set(state),
        ..SubagentUpdate::new(thread.as_str())
    }))
}
