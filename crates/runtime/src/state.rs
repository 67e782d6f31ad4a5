//! What a thread's owner holds in memory: the thread, its open runs, and whose turn it is.

use std::collections::{BTreeMap, VecDeque};

use trilogue_domain::{InterruptId, Json, Resolution, RunKey, RunStatus, Timestamp};
use trilogue_store::OwnedThread;
use trilogue_store::rows::{BindingRow, InterruptRow, MessageRow, RunRow, ThreadRow};

use trilogue_domain::Input;

/// One thread in memory. Runs that have ended are not here: the store has them.
#[derive(Clone, Debug)]
pub(crate) struct ThreadState {
    /// The thread's row as the store will have it after the steps taken so far.
    pub(crate) thread: ThreadRow,
    /// The last number given out.
    pub(crate) last: u64,
    /// The runs that have not ended, in the order in which they were created.
    /// Boxed: most threads have one open run, and a map makes room for eleven at once.
    pub(crate) runs: BTreeMap<RunKey, Box<RunState>>,
    /// Runs that wait for the turn, in order: new ones, and waiting ones that were answered.
    pub(crate) queue: VecDeque<RunKey>,
    /// The run that has the turn.
    pub(crate) turn: Option<RunKey>,
    /// Whether the server is draining: nothing takes the turn any more.
    pub(crate) draining: bool,
    /// The most runs that may wait for the turn.
    pub(crate) max_queued: usize,
    /// Whether somebody is told of new interrupts.
    pub(crate) notifies: bool,
}

/// One open run in memory.
#[derive(Clone, Debug)]
pub(crate) struct RunState {
    /// The run's row as the store will have it after the steps taken so far.
    pub(crate) row: RunRow,
    /// Its input, until the agent has taken it; `None` after a restart, then the log has it.
    pub(crate) input: Option<Input>,
    /// Its interrupts that are pending, oldest first.
    pub(crate) pending: Vec<InterruptRow>,
    /// Resolutions that its task gets when the run takes the turn again.
    pub(crate) undelivered: Vec<(InterruptId, Resolution)>,
    /// The interrupt with which it suspended, once answered.
    pub(crate) answered: Option<InterruptRow>,
    /// Whether its agent runs in this process.
    pub(crate) native: bool,
    /// Whether a task of it is alive.
    pub(crate) has_task: bool,
    /// The state that its agent set last.
    pub(crate) values: Option<Json>,
    /// How its agent knows the thread.
    pub(crate) bound: Option<BindingRow>,
    /// Messages that have begun and are not complete, as they are pointed at when the run ends.
    pub(crate) open: Vec<MessageRow>,
    /// Whether it was loaded from the store, so that its log holds what memory does not.
    pub(crate) restored: bool,
}

// === impl ThreadState ===

impl ThreadState {
    /// A thread that is not stored yet.
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
        }
    }

    /// A thread as the store has it. Runs are not yet queued: recovery decides.
    pub(crate) fn from_stored(
        acquired: OwnedThread,
        max_queued: usize,
        is_native: impl Fn(&RunRow) -> bool,
    ) -> Self {
        let mut state = Self::new(acquired.thread, max_queued);
        state.last = acquired.last;
        for row in acquired.open_runs {
            let native = is_native(&row);
            let restored = RunState { restored: true, ..RunState::new(row, None, native) };
            state.runs.insert(restored.row.key, Box::new(restored));
        }
        for interrupt in acquired.pending {
            if let Some(run) = state.runs.get_mut(&interrupt.run) {
                run.pending.push(interrupt);
            }
        }
        state
    }

    /// The run that this interrupt of a pending one belongs to.
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
        }
    }

    /// Whether the run may begin at this time.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.row.not_before.is_none_or(|at| at <= now)
    }

    /// Whether it is queued, scheduled or at work. A run that waits for an answer is not; one that was answered goes on when it has its turn.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.row.status != RunStatus::Interrupted || !self.is_waiting()
    }

    /// Whether it waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }
}
