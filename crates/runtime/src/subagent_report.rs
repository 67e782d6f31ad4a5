//! What a parent's log says of its sub-agents.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::{Original, StateEvent, Subagent, SubagentState};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Body, Event, ThreadId, ThreadKey};
use trilogue_store::{Draft, Store};

use crate::log_search::newest_events;
use crate::session::ThreadContext;
use crate::step::Command;

/// A description of a sub-agent in its parent's log.
#[derive(Clone, Debug)]
pub(crate) struct SubagentReport {
    pub(crate) subagent: Subagent,
    /// The agent's own update.
    pub(crate) original: Option<Original>,
}

/// The newest reports about these sub-agents in a log. The order is not defined.
/// Fails if the store cannot be read.
pub(crate) async fn newest_reports(
    store: &dyn Store,
    log: ThreadKey,
    subagents: &[ThreadId],
) -> Result<Vec<SubagentReport>> {
    // Each report names the thread, in the agent's update or beside it.
    let words: Vec<&str> = subagents.iter().map(ThreadId::as_str).collect();
    let pick = |event: &Event| {
        SubagentReport::of(event).filter(|it| subagents.contains(&it.subagent.thread))
    };
    let is_found = |parts: &[Vec<SubagentReport>], thread: &ThreadId| {
        parts.iter().flatten().any(|it| it.subagent.thread == *thread)
    };
    let is_enough = |parts: &[Vec<SubagentReport>]| subagents.iter().all(|it| is_found(parts, it));
    let mut newest: Vec<SubagentReport> = Vec::new();
    for report in newest_events(store, log, &words, pick, is_enough).await? {
        newest.retain(|known| known.subagent.thread != report.subagent.thread);
        newest.push(report);
    }
    Ok(newest)
}

// === impl SubagentReport ===

impl SubagentReport {
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let Body::State(StateEvent::Subagent(subagent)) = &event.body else { return None };
        Some(Self { subagent: subagent.clone(), original: event.original.clone() })
    }

    /// Whether the sub-agent works, or waits for a person.
    pub(crate) fn works(&self) -> bool {
        let state = &self.subagent.state;
        matches!(state, Some(SubagentState::Running | SubagentState::RequiresAction))
    }

    /// The same description without the state, which is not known any more.
    pub(crate) fn without_state(self, originals: &Arc<dyn ReadOriginal>) -> Self {
        let original = self.original.and_then(|it| originals.without_subagent_state(&it));
        Self { subagent: Subagent { state: None, ..self.subagent }, original }
    }

    pub(crate) fn into_event(self) -> (Body, Option<Original>) {
        (Body::State(StateEvent::Subagent(self.subagent)), self.original)
    }
}

// === impl ThreadContext ===

impl ThreadContext {
    /// Whether the newest report about a sub-agent in this thread's log says that its state is not known. What the agent has reported before this call counts.
    /// Fails if the thread was removed or the log cannot be read.
    pub async fn is_subagent_state_cleared(&self, subagent: &ThreadId) -> Result<bool> {
        let newest = self.newest_report(subagent).await?;
        Ok(newest.is_some_and(|report| report.subagent.state.is_none()))
    }

    /// Says in this thread's log that the state of a sub-agent is not known, if the log shows it at work.
    /// Fails if the thread was removed or the log cannot be read or written.
    pub(crate) async fn clear_subagent_state(&self, subagent: &ThreadId) -> Result<()> {
        let newest = self.newest_report(subagent).await?;
        let Some(report) = newest.filter(SubagentReport::works) else { return Ok(()) };
        let (body, original) = report.without_state(&self.services.originals).into_event();
        self.append_event(body, original).await
    }

    async fn newest_report(&self, subagent: &ThreadId) -> Result<Option<SubagentReport>> {
        // First the log gets what the runs have emitted.
        let draft = Draft::default();
        let nothing = Command::AppendOutsideRun { draft, bound: None, title: None, begun: None };
        self.change(nothing).await?;
        let store = self.services.store.as_ref();
        Ok(newest_reports(store, self.thread, std::slice::from_ref(subagent)).await?.pop())
    }
}
