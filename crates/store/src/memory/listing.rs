use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Json, ThreadActivity, ThreadKey, limits};

use super::state::State;
use super::thread::ThreadEntry;
use crate::core::search::{Candidates, Condition, activity_of, is_composite, matches};
use crate::rows::{RunRow, ThreadFilter, ThreadRow};

/// The conditions on an object, and the count of rows that were read for conditions without an index.
#[derive(Debug)]
pub(super) struct MetadataFilter<'a> {
    composite: Vec<&'a Condition>,
    scalar: Vec<&'a Condition>,
    candidates: Candidates,
}

/// The values that a filter compares in addition to a thread's row.
#[derive(Debug, Default)]
pub(super) struct ThreadFacts {
    activity: Option<ThreadActivity>,
    value: Option<Json>,
    /// Whether it contains a run of the wanted agent.
    has_run: bool,
    looked_at: usize,
}

// === impl MetadataFilter ===

impl<'a> MetadataFilter<'a> {
    pub(super) fn new(conditions: &'a [Condition]) -> Self {
        let (composite, scalar) = conditions.iter().partition(|(_, value)| is_composite(value));
        Self { composite, scalar, candidates: Candidates::default() }
    }

    /// Whether an object matches the conditions. Fails as [`Candidates::add`].
    pub(super) fn fits(&mut self, object: &Json) -> Result<bool> {
        if !matches(object, self.scalar.iter().copied()) {
            return Ok(false);
        }
        if !self.composite.is_empty() {
            self.candidates.add(1)?;
        }
        Ok(matches(object, self.composite.iter().copied()))
    }
}

// === impl ThreadFacts ===

impl ThreadFacts {
    /// Looks up the values that the filter compares in addition to metadata.
    pub(super) fn of(state: &State, thread: &ThreadEntry, filter: &ThreadFilter) -> Self {
        let activity = filter.activity.map(|_| state.activity(thread.row.key));
        let is_named = filter.agent.is_some() && thread.row.agent() == filter.agent;
        let wanted = |agent: &AgentName| state.runs_of(thread).any(|row| row.agent == *agent);
        let has_run = !is_named && filter.agent.as_ref().is_some_and(wanted);
        let mut beside = Self { activity, has_run, ..Self::default() };
        if !filter.values.is_empty() {
            (beside.value, beside.looked_at) = state.value_at_head(thread);
        }
        beside.looked_at += usize::from(activity.is_some());
        beside
    }

    /// Whether the thread matches the filter's conditions on its agent, state and activity.
    pub(super) fn fits(
        &self,
        row: &ThreadRow,
        filter: &ThreadFilter,
        residual: &mut MetadataFilter<'_>,
    ) -> Result<bool> {
        if filter.agent.is_some() && !self.has_run && row.agent() != filter.agent {
            return Ok(false);
        }
        if self.looked_at > 0 {
            residual.candidates.add(self.looked_at)?;
        }
        if filter.activity.is_some() && self.activity != filter.activity {
            return Ok(false);
        }
        match &self.value {
            _ if filter.values.is_empty() => Ok(true),
            Some(value) => MetadataFilter::new(&filter.values).fits(value),
            None => Ok(false),
        }
    }
}

// === impl State ===

impl State {
    fn runs_of<'a>(&'a self, thread: &'a ThreadEntry) -> impl Iterator<Item = &'a RunRow> {
        let rows = thread.runs.iter().rev().filter_map(|run| self.runs.get(run));
        rows.map(|run| &*run.row)
    }

    pub(super) fn activity(&self, key: ThreadKey) -> ThreadActivity {
        use trilogue_domain::RunStatus::{Cancelling, Queued, Running};
        let runs = self.threads.get(&key).into_iter().flat_map(|thread| &thread.runs);
        let mut statuses =
            runs.rev().filter_map(|run| self.runs.get(run)).map(|run| run.row.status).peekable();
        let newest = statuses.peek().copied();
        if statuses.any(|status| matches!(status, Queued | Running | Cancelling)) {
            return ThreadActivity::Busy;
        }
        activity_of(newest)
    }

    /// The state that was set last on the path to a thread's head, and how many checkpoints were read for it.
    fn value_at_head(&self, thread: &ThreadEntry) -> (Option<Json>, usize) {
        let mut next = thread.row.head;
        let mut looked_at = 0;
        while let Some(row) = next.and_then(|key| self.checkpoints.get(&key)) {
            looked_at += 1;
            if row.ends_state_search() || looked_at > limits::MAX_SEARCH_CANDIDATES {
                return (row.value.clone(), looked_at);
            }
            next = row.parent;
        }
        (None, looked_at.max(1))
    }
}
