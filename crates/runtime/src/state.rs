//! A thread's state in its owner's memory: the thread, its open runs, and the turn.

use std::collections::{BTreeMap, VecDeque};

use trilogue_domain::{InterruptId, Json, Resolution, RunKey, RunStatus, Timestamp};
use trilogue_store::rows::{
    BindingRow, CheckpointRow, InterruptRow, MessageRow, RunRow, ThreadRow,
};
use trilogue_store::{Draft, OwnedThread};

use trilogue_domain::Input;

/// One thread in memory. Ended runs are only in the store.
#[derive(Clone, Debug)]
pub(crate) struct ThreadState {
    /// The thread's row as the store will have it after the steps so far.
    pub(crate) thread: ThreadRow,
    pub(crate) last: u64,
    /// The runs that have not ended, in the order in which they were created.
    /// Boxed, because most threads have one open run, and a map allocates room for eleven.
    pub(crate) runs: BTreeMap<RunKey, Box<RunState>>,
    /// Runs that wait for the turn, in order: new ones, and waiting ones that were answered.
    pub(crate) queue: VecDeque<RunKey>,
    pub(crate) turn: Option<RunKey>,
    /// Whether the server is draining: then no run takes the turn.
    pub(crate) draining: bool,
    /// The most runs that may wait for the turn.
    pub(crate) max_queued: usize,
    /// Whether notices of new interrupts are sent.
    pub(crate) notifies: bool,
    /// Whether a caller waits to read what the next steps log.
    pub(crate) reads_back: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct RunState {
    /// The run's row as the store will have it after the steps so far.
    pub(crate) row: RunRow,
    /// Its input, until the agent has taken it; `None` after a restart, because the log has it.
    pub(crate) input: Option<Input>,
    /// Its pending interrupts, oldest first.
    pub(crate) pending: Vec<InterruptRow>,
    /// Resolutions that its task gets when the run takes the turn again.
    pub(crate) undelivered: Vec<(InterruptId, Resolution)>,
    /// The interrupt with which it suspended, once answered.
    pub(crate) answered: Option<Box<InterruptRow>>,
    pub(crate) native: bool,
    pub(crate) has_task: bool,
    /// The state that its agent last set.
    pub(crate) values: Option<Json>,
    pub(crate) bound: Option<Box<BindingRow>>,
    /// Incomplete messages, with the positions for their rows when the run ends.
    pub(crate) open: Vec<MessageRow>,
    /// Whether it was loaded from the store, so that some of its data is only in its log.
    pub(crate) restored: bool,
    /// Whether it did not start in the step that accepted it.
    pub(crate) is_delayed: bool,
    /// Whether the run that called it has ended.
    pub(crate) is_orphan: bool,
    /// Whether its log has the agent's answer, so that the run is complete. Known after a restart.
    pub(crate) is_answered: bool,
    /// Its checkpoint, if that exists before its end.
    pub(crate) checkpoint: Option<Box<CheckpointRow>>,
}

// === impl ThreadState ===

impl ThreadState {
    pub(crate) fn new(thread: ThreadRow, max_queued: usize) -> Self {
        Self {
            thread,
            last: 0,
            runs: BTreeMap::new(),
            queue: VecDeque::new(),
            turn: None,
            draining: false,
            max_queued,
            notifies: false,
            reads_back: false,
        }
    }

    /// Creates the state of a stored thread. Runs are not queued yet: recovery decides that.
    pub(crate) fn from_stored(
        acquired: OwnedThread,
        max_queued: usize,
        is_native: impl Fn(&RunRow) -> bool,
        is_orphan: impl Fn(&RunRow) -> bool,
    ) -> Self {
        let mut state = Self::new(acquired.thread, max_queued);
        state.last = acquired.last;
        for row in acquired.open_runs {
            let (native, is_orphan) = (is_native(&row), is_orphan(&row));
            let new = RunState::new(row, None, native);
            let restored = RunState { restored: true, is_delayed: true, is_orphan, ..new };
            state.runs.insert(restored.row.key, Box::new(restored));
        }
        for interrupt in acquired.pending {
            if let Some(run) = state.runs.get_mut(&interrupt.run) {
                run.pending.push(interrupt);
            }
        }
        state
    }

    /// Returns a draft for what a step logs.
    pub(crate) fn new_draft(&self) -> Draft {
        if self.reads_back { Draft::read_back() } else { Draft::default() }
    }

    pub(crate) fn run_waiting_for(&self, interrupt: &InterruptId) -> Option<RunKey> {
        self.runs
            .values()
            .find(|run| run.pending.iter().any(|row| row.interrupt.id == *interrupt))
            .map(|run| run.row.key)
    }
}

// === impl RunState ===

impl RunState {
    pub(crate) fn new(row: RunRow, input: Option<Input>, native: bool) -> Self {
        Self {
            row,
            input,
            pending: Vec::new(),
            undelivered: Vec::new(),
            answered: None,
            native,
            has_task: false,
            values: None,
            bound: None,
            open: Vec::new(),
            restored: false,
            is_delayed: false,
            is_orphan: false,
            is_answered: false,
            checkpoint: None,
        }
    }

    /// Whether the run can begin at this time.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.row.not_before.is_none_or(|at| at <= now)
    }

    /// Whether it is queued, scheduled or active. A waiting run is not; an answered one is, as soon as it has its turn.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.row.status != RunStatus::Interrupted || !self.is_waiting()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }
}
