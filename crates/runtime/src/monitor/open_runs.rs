//! The runs that have not ended, according to the store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use trilogue_domain::{AgentName, Principal, RunKey, RunStatus, ThreadKey, Timestamp, lock};
use trilogue_store::rows::{InterruptRow, RunRow};

use crate::shares::ShareHolder;

#[derive(Debug, Default)]
pub(super) struct OpenRuns(Mutex<OpenThreads>);

#[derive(Debug, Default)]
struct OpenThreads {
    runs: HashMap<ThreadKey, BTreeMap<RunKey, OpenRun>>,
    /// How many of the runs each principal has. Each submission asks for it.
    by_principal: HashMap<ShareHolder, usize>,
}

#[derive(Clone, Debug)]
pub(super) struct OpenRun {
    agent: AgentName,
    status: RunStatus,
    /// The time from which it can begin.
    due: Timestamp,
    questions: usize,
    principal: ShareHolder,
    is_scheduled: bool,
}

/// How many runs have not ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OpenRunCounts {
    pub by_agent: BTreeMap<AgentName, AgentRunCounts>,
    /// The longest present wait of a queued run.
    pub oldest_queued: Option<Duration>,
}

/// How many runs of an agent have not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AgentRunCounts {
    /// Runs that are scheduled and not due.
    pub scheduled: u64,
    /// Runs that wait for their turn.
    pub queued: u64,
    /// Runs whose agent is active, also while it is asked to stop.
    pub running: u64,
    /// Runs that wait for an answer.
    pub waiting: u64,
    /// The questions without an answer.
    pub questions: u64,
}

// === impl OpenRuns ===

impl OpenRuns {
    /// Replaces the known runs of a thread.
    pub(super) fn replace_thread<'a>(
        &self,
        thread: ThreadKey,
        runs: impl Iterator<Item = (&'a RunRow, usize)>,
    ) {
        let runs =
            runs.map(|(row, questions)| (row.key, OpenRun { questions, ..OpenRun::of(row) }));
        let runs: BTreeMap<_, _> = runs.collect();
        lock(&self.0).replace(thread, runs);
    }

    /// Forgets the runs of all other threads.
    pub(super) fn keep_only(&self, threads: &HashSet<ThreadKey>) {
        let mut open = lock(&self.0);
        let gone: Vec<_> =
            open.runs.keys().filter(|thread| !threads.contains(thread)).copied().collect();
        for thread in gone {
            open.replace(thread, BTreeMap::new());
        }
    }

    pub(super) fn change(
        &self,
        thread: ThreadKey,
        changed: Vec<(RunKey, OpenRun)>,
        removed: &[RunKey],
        erases: bool,
        questions: &[InterruptRow],
    ) {
        if changed.is_empty() && removed.is_empty() && questions.is_empty() && !erases {
            return;
        }
        let mut threads = lock(&self.0);
        if erases {
            threads.replace(thread, BTreeMap::new());
            return;
        }
        if changed.is_empty() && !threads.runs.contains_key(&thread) {
            // A run that began and ended in one append was never open.
            return;
        }
        let mut open = threads.runs.remove(&thread).unwrap_or_default();
        threads.count(&open, false);
        for (key, run) in changed {
            let questions = open.get(&key).map_or(0, |known| known.questions);
            open.insert(key, OpenRun { questions, ..run });
        }
        for question in questions {
            if let Some(run) = open.get_mut(&question.run) {
                run.questions = match question.resolution {
                    None => run.questions + 1,
                    Some(_) => run.questions.saturating_sub(1),
                };
            }
        }
        for run in removed {
            open.remove(run);
        }
        threads.replace(thread, open);
    }

    /// Returns how many runs of a principal have not ended.
    pub(super) fn count_of(&self, principal: &Principal) -> usize {
        let holder = (principal.tenant.clone(), principal.id.clone());
        lock(&self.0).by_principal.get(&holder).copied().unwrap_or_default()
    }

    /// Returns how many runs of a principal are scheduled and not due.
    pub(super) fn scheduled_of(&self, principal: &Principal, now: Timestamp) -> usize {
        let threads = lock(&self.0);
        let runs = threads.runs.values().flat_map(BTreeMap::values);
        let is_theirs =
            |(tenant, id): &ShareHolder| *tenant == principal.tenant && *id == principal.id;
        runs.filter(|run| run.is_scheduled && is_theirs(&run.principal))
            .filter(|run| run.status == RunStatus::Queued && run.due > now)
            .count()
    }

    pub(super) fn counts<'a>(
        &self,
        agents: impl Iterator<Item = &'a AgentName>,
        now: Timestamp,
    ) -> OpenRunCounts {
        let by_agent = agents.map(|agent| (agent.clone(), AgentRunCounts::default())).collect();
        let mut counts = OpenRunCounts { by_agent, oldest_queued: None };
        for run in lock(&self.0).runs.values().flat_map(BTreeMap::values) {
            let of_agent = counts.by_agent.entry(run.agent.clone()).or_default();
            of_agent.questions += run.questions as u64;
            match run.status {
                RunStatus::Queued if run.due > now => of_agent.scheduled += 1,
                RunStatus::Queued => {
                    of_agent.queued += 1;
                    let waited = Some(run.due.until(now));
                    counts.oldest_queued = counts.oldest_queued.max(waited);
                }
                RunStatus::Interrupted => of_agent.waiting += 1,
                _ => of_agent.running += 1,
            }
        }
        counts
    }
}

// === impl OpenThreads ===

impl OpenThreads {
    /// Replaces the open runs of a thread.
    fn replace(&mut self, thread: ThreadKey, runs: BTreeMap<RunKey, OpenRun>) {
        self.count(&runs, true);
        let before = if runs.is_empty() {
            self.runs.remove(&thread)
        } else {
            self.runs.insert(thread, runs)
        };
        self.count(&before.unwrap_or_default(), false);
    }

    /// Adds runs to those of their principals, or takes them away.
    fn count(&mut self, runs: &BTreeMap<RunKey, OpenRun>, is_added: bool) {
        for run in runs.values() {
            let count = self.by_principal.entry(run.principal.clone()).or_default();
            *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.by_principal.remove(&run.principal);
            }
        }
    }
}

// === impl OpenRun ===

impl OpenRun {
    pub(super) fn of(row: &RunRow) -> Self {
        Self {
            agent: row.agent.clone(),
            status: row.status,
            due: row.due(),
            questions: 0,
            principal: (row.tenant.clone(), row.principal.clone()),
            is_scheduled: row.not_before.is_some(),
        }
    }
}
