//! The operators' view of runs: log lines, meters, the open runs, and the export of ended ones.
//!
//! Everything here follows from stored changes, so the cost of a run does not depend on its number of events.

mod agent_meters;
mod first_output;
pub mod metric_names;
mod open_runs;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use metrics::{Counter, Histogram, counter, histogram};
use trilogue_domain::{AgentName, Code, Outcome, Principal, RunKey, ThreadKey, Timestamp, safe};
use trilogue_store::rows::{InterruptRow, RunRow};
use trilogue_store::{Batch, Change};

pub(crate) use agent_meters::AgentMeters;
pub(crate) use first_output::FirstOutput;
use open_runs::OpenRuns;
pub use open_runs::{AgentRunCounts, OpenRunCounts};

/// Receives the runs that have ended. It must not block.
pub trait EndedRuns: Send + Sync + fmt::Debug {
    /// Receives a run that ended. Its log is complete and durable.
    fn on_run_ended(&self, run: &RunRow);
}

#[derive(Debug)]
pub(crate) struct RunMonitor {
    open: OpenRuns,
    agents: RwLock<HashMap<AgentName, Arc<AgentMeters>>>,
    store: StoreMeters,
    export: Option<Arc<dyn EndedRuns>>,
}

#[derive(Debug)]
struct StoreMeters {
    commit: Histogram,
    batch: Histogram,
    events: Counter,
    bytes: Counter,
}

/// The changes of an append that operators see, collected before the store gets it.
#[derive(Debug)]
pub(crate) struct AppendSummary {
    thread: ThreadKey,
    open: Vec<(RunKey, open_runs::OpenRun)>,
    removed: Vec<RunKey>,
    erases: bool,
    questions: Vec<InterruptRow>,
    events: u64,
    bytes: u64,
    began: Instant,
}

/// A run whose agent begins now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartingRun<'a> {
    pub(crate) run: &'a trilogue_domain::RunId,
    pub(crate) thread: &'a trilogue_domain::ThreadId,
    pub(crate) tenant: &'a trilogue_domain::TenantId,
    pub(crate) agent: &'a AgentName,
    /// The time from which it could have begun.
    pub(crate) due: Timestamp,
    pub(crate) now: Timestamp,
}

// === impl StartingRun ===

impl StartingRun<'_> {
    /// Returns how long the run waited for its turn, in milliseconds.
    pub(crate) fn queue_ms(&self) -> u64 {
        self.due.until(self.now).as_millis() as u64
    }

    pub(crate) fn log(&self) {
        let (queue_ms, Self { run, thread, tenant, agent, .. }) = (self.queue_ms(), self);
        tracing::info!(%run, %thread, %tenant, %agent, queue_ms, "run started");
    }
}

// === impl RunMonitor ===

impl RunMonitor {
    pub(crate) fn new(export: Option<Arc<dyn EndedRuns>>) -> Self {
        let codes =
            [Code::DiskFull, Code::StoreReadOnly, Code::StoreUnavailable, Code::StoreCorrupt];
        for code in codes {
            // Register the counters at zero, so that an alarm sees the first failure.
            drop(counter!(metric_names::COMMIT_FAILURES, "code" => code.as_str()));
        }
        let store = StoreMeters {
            commit: histogram!(metric_names::COMMIT_SECONDS),
            batch: histogram!(metric_names::COMMIT_EVENTS),
            events: counter!(metric_names::STORE_EVENTS),
            bytes: counter!(metric_names::STORE_BYTES),
        };
        Self { open: OpenRuns::default(), agents: RwLock::default(), store, export }
    }

    pub(crate) fn meters(&self, agent: &AgentName) -> Arc<AgentMeters> {
        let known = self.agents.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(meters) = known.get(agent) {
            return Arc::clone(meters);
        }
        // Otherwise the write lock below would wait for this read lock for ever.
        drop(known);
        let mut agents = self.agents.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let meters = agents.entry(agent.clone());
        Arc::clone(meters.or_insert_with(|| Arc::new(AgentMeters::new(agent))))
    }

    /// Counts the open runs of a loaded thread.
    pub(crate) fn loaded<'a>(
        &self,
        thread: ThreadKey,
        runs: impl Iterator<Item = (&'a RunRow, usize)>,
    ) {
        self.open.replace_thread(thread, runs);
    }

    /// Forgets the open runs of all other threads.
    pub(crate) fn keep_only(&self, threads: &HashSet<ThreadKey>) {
        self.open.keep_only(threads);
    }

    /// Returns the open runs, with zeros for these agents.
    pub(crate) fn counts<'a>(
        &self,
        agents: impl Iterator<Item = &'a AgentName>,
        now: Timestamp,
    ) -> OpenRunCounts {
        self.open.counts(agents, now)
    }

    /// Returns how many runs of a principal are scheduled and not due.
    pub(crate) fn scheduled_of(&self, principal: &Principal, now: Timestamp) -> usize {
        self.open.scheduled_of(principal, now)
    }

    /// Returns how many runs of a principal have not ended.
    pub(crate) fn open_runs_of(&self, principal: &Principal) -> usize {
        self.open.count_of(principal)
    }

    /// Collects the changes of an append.
    pub(crate) fn summarize_append(&self, batch: &Batch) -> AppendSummary {
        let mut noted = AppendSummary {
            thread: batch.thread,
            open: Vec::new(),
            removed: Vec::new(),
            erases: false,
            questions: Vec::new(),
            events: batch.frames.iter().map(|frame| frame.last() - frame.first() + 1).sum(),
            bytes: batch.frames.iter().map(|frame| frame.bytes().len() as u64).sum(),
            began: Instant::now(),
        };
        for change in &batch.changes {
            match change {
                Change::Run(row) if row.status.is_terminal() => noted.removed.push(row.key),
                Change::Run(row) => {
                    noted.open.push((row.key, open_runs::OpenRun::of(row)));
                }
                Change::Interrupt(row) => noted.questions.push(InterruptRow::clone(row)),
                Change::RemoveRun(run) => noted.removed.push(*run),
                Change::RemoveThread => noted.erases = true,
                _ => {}
            }
        }
        noted
    }

    /// Publishes the changes of an append. `ended` are the runs that it ended.
    pub(crate) fn record_append<'a>(
        &self,
        noted: AppendSummary,
        ended: impl Iterator<Item = &'a RunRow>,
    ) {
        let AppendSummary { thread, open, removed, erases, questions, events, bytes, began } =
            noted;
        let StoreMeters { commit, batch, events: all_events, bytes: all_bytes } = &self.store;
        commit.record(began.elapsed().as_secs_f64());
        batch.record(events as f64);
        all_events.increment(events);
        all_bytes.increment(bytes);
        self.open.change(thread, open, &removed, erases, &questions);
        for question in &questions {
            self.question(question);
        }
        for run in ended {
            self.record_end(run);
        }
    }

    pub(crate) fn append_failed(&self, code: Code) {
        counter!(metric_names::COMMIT_FAILURES, "code" => code.as_str()).increment(1);
    }

    pub(crate) fn record_start(&self, starting: &StartingRun<'_>) {
        let meters = self.meters(starting.agent);
        meters.started.increment(1);
        meters.queue.record(starting.due.until(starting.now).as_secs_f64());
    }

    fn question(&self, row: &InterruptRow) {
        let meters = self.meters(&row.agent);
        let InterruptRow { run_id: run, thread_id: thread, tenant, agent, .. } = row;
        let (question, kind) = (&row.interrupt.id, row.interrupt.kind.family());
        let Some(resolution) = &row.resolution else {
            meters.count_question(kind);
            tracing::info!(%run, %thread, %tenant, %agent, %question, kind, "question asked");
            return;
        };
        let how = resolution.as_str();
        meters.question_ended(how);
        let waited = row.resolved_at.map(|end| row.raised_at.until(end)).unwrap_or_default();
        if how == "answered" {
            meters.answer.record(waited.as_secs_f64());
        }
        let waited_ms = waited.as_millis() as u64;
        tracing::info!(%run, %thread, %tenant, %agent, %question, kind, how, waited_ms, "question ended");
    }

    fn record_end(&self, row: &RunRow) {
        let Some(outcome) = &row.outcome else { return };
        let meters = self.meters(&row.agent);
        let RunRow { id: run, thread_id: thread, tenant, agent, .. } = row;
        let label = outcome.status().as_str();
        meters.count_ended(label);
        let took = row.started_at.zip(row.ended_at).map(|(start, end)| start.until(end));
        if let Some(took) = took {
            meters.run.record(took.as_secs_f64());
        }
        let duration_ms = took.unwrap_or_default().as_millis() as u64;
        match outcome {
            Outcome::Failed(failure) => {
                let known = Code::from_text(&failure.code);
                let label = known.map_or("other", Code::as_str);
                counter!(metric_names::RUN_FAILURES, "code" => label).increment(1);
                // The agent's own code can be any text.
                let (code, transient) = (safe::line(&failure.code), failure.transient);
                tracing::info!(%run, %thread, %tenant, %agent, duration_ms, code, transient, "run failed");
            }
            Outcome::Cancelled { reason } => {
                let code = reason.map(Code::as_str);
                tracing::info!(%run, %thread, %tenant, %agent, duration_ms, outcome = label, code, "run ended");
            }
            Outcome::TimedOut { reason } => {
                let code = reason.as_str();
                tracing::info!(%run, %thread, %tenant, %agent, duration_ms, outcome = label, code, "run ended");
            }
            Outcome::Completed => {
                tracing::info!(%run, %thread, %tenant, %agent, duration_ms, outcome = label, "run ended");
            }
        }
        if let Some(export) = &self.export {
            export.on_run_ended(row);
        }
    }
}
