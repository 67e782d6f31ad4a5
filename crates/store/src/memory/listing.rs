//! Pages of listings, newest first, and the conditions that their rows fulfil.

use std::sync::Arc;

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{AgentName, Json, Standing, ThreadKey, limits};

use super::state::State;
use super::thread::Thread;
use crate::rows::{Listing, Page, RunRow, ThreadFilter, ThreadRow, standing_of};

/// The page that fills.
#[derive(Debug)]
pub(super) struct Pages<T> {
    limit: usize,
    skip: usize,
    rows: Vec<(i64, Arc<T>)>,
}

/// The members that an object must hold, and how many objects were looked at for what no index would answer.
#[derive(Debug)]
pub(super) struct Residual<'a> {
    wanted: &'a [(String, String)],
    /// Whether a condition is on an array or object: then only so many candidates are looked at.
    is_residual: bool,
    looked_at: usize,
}

/// What a thread's listing has to know beside its row.
#[derive(Debug, Default)]
pub(super) struct Beside {
    standing: Option<Standing>,
    value: Option<Json>,
    /// Whether a run of the wanted agent is in it.
    has_run: bool,
    /// How many rows were looked at for this.
    looked_at: usize,
}

/// Keys of a page are below this.
pub(super) fn before(page: &Page) -> i64 {
    page.after.unwrap_or(i64::MAX)
}

/// Cuts the row behind the page off; gives where the next page begins.
pub(super) fn next_of<T>(rows: &mut Vec<T>, page: &Page, key: impl Fn(&T) -> i64) -> Option<i64> {
    if rows.len() <= page.rows() {
        return None;
    }
    rows.truncate(page.rows());
    rows.last().map(key)
}

/// How many rows of a listing without further conditions are looked at: the page, what is left out before it, and one more.
pub(super) fn most(page: &Page) -> usize {
    page.skip.saturating_add(page.rows() + 1)
}

// === impl Pages ===

impl<T: Clone> Pages<T> {
    pub(super) fn new(page: &Page) -> Self {
        Self { limit: page.rows(), skip: page.skip, rows: Vec::new() }
    }

    /// Adds a row that matches; `false` when there is one more than the page takes.
    pub(super) fn add(&mut self, key: i64, row: Arc<T>) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return true;
        }
        self.rows.push((key, row));
        self.rows.len() <= self.limit
    }

    pub(super) fn close(mut self) -> Listing<T> {
        let has_more = self.rows.len() > self.limit;
        self.rows.truncate(self.limit);
        let next = self.rows.last().filter(|_| has_more).map(|(key, _)| *key);
        Listing {
            rows: self.rows.into_iter().map(|(_, row)| Arc::unwrap_or_clone(row)).collect(),
            next,
        }
    }
}

// === impl Residual ===

impl<'a> Residual<'a> {
    pub(super) fn new(wanted: &'a [(String, String)]) -> Self {
        let is_residual = wanted.iter().any(|(_, value)| is_composite(value));
        Self { wanted, is_residual, looked_at: 0 }
    }

    /// Whether an object has the members.
    pub(super) fn fits(&mut self, object: &Json) -> Result<bool> {
        if self.wanted.is_empty() {
            return Ok(true);
        }
        let object = object.to_value();
        let holds = |(key, value): &&(String, String)| {
            let text = object.get(key).map(ToString::to_string);
            text.as_ref() == Some(value)
        };
        let (composite, scalar): (Vec<_>, Vec<_>) =
            self.wanted.iter().partition(|(_, value)| is_composite(value));
        if !scalar.iter().all(holds) {
            return Ok(false);
        }
        if self.is_residual {
            self.look_at(1)?;
        }
        Ok(composite.iter().all(holds))
    }

    /// Counts rows that were looked at for a condition that no index would answer.
    ///
    /// # Errors
    /// `filter_too_broad` when there are too many.
    pub(super) fn look_at(&mut self, count: usize) -> Result<()> {
        self.looked_at = self.looked_at.saturating_add(count);
        if self.looked_at > limits::MAX_SEARCH_CANDIDATES {
            return Err(too_broad());
        }
        Ok(())
    }
}

// === impl Beside ===

impl Beside {
    /// What the filter asks of a thread beside its metadata.
    pub(super) fn of(state: &State, thread: &Thread, filter: &ThreadFilter) -> Self {
        let standing = filter.standing.map(|_| state.standing(thread.row.key));
        let is_named = filter.agent.is_some() && thread.row.agent() == filter.agent;
        let wanted = |agent: &AgentName| state.runs_of(thread).any(|row| row.agent == *agent);
        let has_run = !is_named && filter.agent.as_ref().is_some_and(wanted);
        let mut beside = Self { standing, has_run, ..Self::default() };
        if !filter.values.is_empty() {
            (beside.value, beside.looked_at) = state.value_at_head(thread);
        }
        beside.looked_at += usize::from(standing.is_some());
        beside
    }

    /// Whether the thread fulfils the filter's conditions on its agent, state and standing.
    pub(super) fn fits(
        &self,
        row: &ThreadRow,
        filter: &ThreadFilter,
        residual: &mut Residual<'_>,
    ) -> Result<bool> {
        if filter.agent.is_some() && !self.has_run && row.agent() != filter.agent {
            return Ok(false);
        }
        if self.looked_at > 0 {
            residual.look_at(self.looked_at)?;
        }
        if filter.standing.is_some() && self.standing != filter.standing {
            return Ok(false);
        }
        match &self.value {
            _ if filter.values.is_empty() => Ok(true),
            Some(value) => Residual::new(&filter.values).fits(value),
            None => Ok(false),
        }
    }
}

// === impl State ===

impl State {
    /// The rows of a thread's runs, newest first.
    fn runs_of<'a>(&'a self, thread: &'a Thread) -> impl Iterator<Item = &'a RunRow> {
        let rows = thread.runs.iter().rev().filter_map(|run| self.runs.get(run));
        rows.map(|run| &*run.row)
    }

    /// How a thread stands.
    pub(super) fn standing(&self, key: ThreadKey) -> Standing {
        use trilogue_domain::RunStatus::{Cancelling, Queued, Running};
        let runs = self.threads.get(&key).into_iter().flat_map(|thread| &thread.runs);
        let mut statuses =
            runs.rev().filter_map(|run| self.runs.get(run)).map(|run| run.row.status).peekable();
        let newest = statuses.peek().copied();
        if statuses.any(|status| matches!(status, Queued | Running | Cancelling)) {
            return Standing::Busy;
        }
        standing_of(newest)
    }

    /// The state that was set last on the path to a thread's head, and how many checkpoints were looked at for it.
    fn value_at_head(&self, thread: &Thread) -> (Option<Json>, usize) {
        let mut next = thread.row.head;
        let mut looked_at = 0;
        while let Some(row) = next.and_then(|key| self.checkpoints.get(&key)) {
            looked_at += 1;
            let lies_elsewhere = row.given.as_ref().is_some_and(|given| given.state.is_some());
            if row.value.is_some() || lies_elsewhere || looked_at > limits::MAX_SEARCH_CANDIDATES {
                return (row.value.clone(), looked_at);
            }
            next = row.parent;
        }
        (None, looked_at.max(1))
    }
}

// === impl Page ===

impl Page {
    /// How many rows the page has.
    pub(crate) fn rows(&self) -> usize {
        self.limit.clamp(1, limits::MAX_PAGE_ROWS)
    }
}

// === impl Listing ===

impl<T> Listing<T> {
    /// No rows.
    pub(crate) fn empty() -> Self {
        Self { rows: Vec::new(), next: None }
    }
}

fn is_composite(value: &str) -> bool {
    value.starts_with(['{', '['])
}

fn too_broad() -> Error {
    Error::new(
        Code::FilterTooBroad,
        format!("the filter leaves more than {} candidates", limits::MAX_SEARCH_CANDIDATES),
    )
    .hint("add a condition on a string, number, truth value or null")
}
