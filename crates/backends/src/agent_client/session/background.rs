//! Work that an agent does while no prompt is open: the items that wait for the start of its run, and when that run is quiet.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, RunId, ThreadKey, lock};
use trilogue_runtime::{RunContext, ThreadContext};
use trilogue_wire::agent_client::splice;

use super::replay::CONVERSATION;
use super::session::Session;
use crate::agent_client::routing::SessionItem;

/// The shortest time between the starts of two runs in a session.
const START_INTERVAL: Duration = Duration::from_secs(1);
/// The first wait before a refused start is tried again. Each further wait is twice as long.
const RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(2);
/// How long an accepted run may take to begin before another start is tried: the run may have given way to another.
const BEGIN_LIMIT: Duration = Duration::from_secs(5);
/// The most items that wait for a run. Further ones are logged without a run.
const MAX_ITEMS: usize = 256;
/// The most bytes of these items: less than a session's queue holds, so that the queue moves on.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// What an agent says about its own state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AgentState {
    Running,
    Idle,
}

/// The sessions whose agents start a run, by thread: the run finds its session here.
#[derive(Debug, Default)]
pub(crate) struct StartingSessions(Mutex<HashMap<ThreadKey, Weak<Session>>>);

/// The items that wait for the start of a run.
#[derive(Debug)]
pub(super) struct WaitingItems {
    items: VecDeque<SessionItem>,
    bytes: usize,
    /// Since when the oldest waits.
    since: Option<Instant>,
    /// Whether a question waits for a run in which it is asked.
    has_question: bool,
    start: StartState,
    /// No start is tried before this time.
    not_before: Option<Instant>,
    retry: Duration,
    /// Whether the thread takes runs that the agent starts.
    gets_runs: bool,
}

#[derive(Debug)]
enum StartState {
    None,
    Requested(JoinHandle<Result<RunId>>),
    /// The run exists and begins soon.
    Accepted(Instant),
}

/// How a start ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StartOutcome {
    Accepted,
    /// Another run has the thread, or a limit is reached: it is tried again.
    Later,
    /// No run can be started on the thread.
    Never,
}

/// The requests of an agent that are not answered yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRequests(Arc<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    all: AtomicUsize,
    questions: AtomicUsize,
    last_ended: Mutex<Option<Instant>>,
}

/// Counts a request as open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest {
    counts: Arc<RequestCounts>,
    is_question: bool,
}

/// Whether an update starts a run if no prompt is open.
pub(super) fn shows_work(kind: &str, params: &str) -> bool {
    // A compaction can begin and end at any time.
    let is_work = CONVERSATION.contains(&kind) && kind != "compaction_update";
    is_work || state_of(kind, params) == Some(AgentState::Running)
}

pub(super) fn state_of(kind: &str, params: &str) -> Option<AgentState> {
    if kind != "state_update" {
        return None;
    }
    match &*splice::get_text(params, &["update", "state"])? {
        "running" => Some(AgentState::Running),
        "idle" => Some(AgentState::Idle),
        _ => None,
    }
}

// === impl StartingSessions ===

impl StartingSessions {
    fn insert(&self, thread: ThreadKey, session: Weak<Session>) {
        lock(&self.0).insert(thread, session);
    }

    /// The session whose agent has started a run on this thread.
    pub(crate) fn take(&self, thread: ThreadKey) -> Option<Arc<Session>> {
        lock(&self.0).remove(&thread)?.upgrade()
    }
}

// === impl WaitingItems ===

impl WaitingItems {
    pub(super) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            bytes: 0,
            since: None,
            has_question: false,
            start: StartState::None,
            not_before: None,
            retry: RETRY,
            gets_runs: true,
        }
    }

    pub(super) fn gets_runs(&self) -> bool {
        self.gets_runs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= MAX_ITEMS || self.bytes >= MAX_BYTES
    }

    pub(super) fn push(&mut self, item: SessionItem) {
        self.bytes += item.bytes();
        self.since.get_or_insert_with(Instant::now);
        self.items.push_back(item);
    }

    /// Notes that a question waits for a run in which it is asked.
    pub(super) fn expect_question(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        self.has_question = true;
    }

    /// Returns the items, because a run takes them now, or no run will.
    pub(super) fn take(&mut self) -> VecDeque<SessionItem> {
        (self.bytes, self.since, self.has_question) = (0, None, false);
        std::mem::take(&mut self.items)
    }

    /// Notes that a run has begun: it takes the items.
    pub(super) fn record_begin(&mut self) {
        (self.start, self.retry) = (StartState::None, RETRY);
    }

    /// Whether the oldest has waited for this long.
    pub(super) fn is_overdue(&self, limit: Duration) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= limit)
    }

    /// Starts a run if anything waits for one and the time has come. `parent` is the open run of a sub-agent's parent.
    pub(super) fn start_if_due(
        &mut self,
        thread: &ThreadContext,
        parent: Option<RunContext>,
        starting: &StartingSessions,
        session: &Weak<Session>,
    ) {
        let now = Instant::now();
        if let StartState::Accepted(at) = self.start
            && now >= at + BEGIN_LIMIT
        {
            self.start = StartState::None;
        }
        let is_wanted = !self.items.is_empty() || self.has_question;
        let is_due = self.not_before.is_none_or(|at| at <= now);
        if !is_wanted || !is_due || !matches!(self.start, StartState::None) {
            return;
        }
        starting.insert(thread.key(), Weak::clone(session));
        let thread = thread.clone();
        // In a task: the session's queue must move on, because the run that has the thread may be the session's own.
        let started = tokio::spawn(async move {
            match parent {
                Some(parent) => parent.start_subagent_run(&thread).await,
                None => thread.start_agent_run().await,
            }
        });
        self.start = StartState::Requested(started);
    }

    /// Waits for the outcome of a start.
    pub(super) async fn outcome(&mut self) -> StartOutcome {
        let StartState::Requested(started) = &mut self.start else { return pending().await };
        let started = started.await;
        let now = Instant::now();
        let error = match started {
            Ok(Ok(_)) => {
                self.start = StartState::Accepted(now);
                self.not_before = Some(now + START_INTERVAL);
                return StartOutcome::Accepted;
            }
            Ok(Err(error)) => error,
            Err(_) => {
                self.start = StartState::None;
                return StartOutcome::Never;
            }
        };
        self.start = StartState::None;
        match error.code() {
            Code::ThreadBusy | Code::Overloaded => {
                self.not_before = Some(now + self.retry);
                self.retry = (self.retry * 2).min(MAX_RETRY);
                StartOutcome::Later
            }
            code => {
                // A thread that exists for one run gets no others.
                self.gets_runs = code != Code::InvalidRequest;
                tracing::debug!(%error, "the agent's work outside of prompts gets no run");
                StartOutcome::Never
            }
        }
    }

    /// When to look again: a start is due, or the oldest item has waited for `limit`.
    pub(super) fn next_wake(&self, limit: Duration) -> Option<Instant> {
        let overdue = self.since? + limit;
        let start = match self.start {
            StartState::None => self.not_before,
            StartState::Requested(_) => None,
            StartState::Accepted(at) => Some(at + BEGIN_LIMIT),
        };
        Some(start.map_or(overdue, |start| start.min(overdue)))
    }
}

// === impl OpenRequests ===

impl OpenRequests {
    pub(super) fn open(&self, is_question: bool) -> OpenRequest {
        self.0.all.fetch_add(1, Ordering::AcqRel);
        if is_question {
            self.0.questions.fetch_add(1, Ordering::AcqRel);
        }
        OpenRequest { counts: Arc::clone(&self.0), is_question }
    }

    pub(super) fn are_any(&self) -> bool {
        self.0.all.load(Ordering::Acquire) > 0
    }

    pub(super) fn has_question(&self) -> bool {
        self.0.questions.load(Ordering::Acquire) > 0
    }

    pub(super) fn last_ended(&self) -> Option<Instant> {
        *lock(&self.0.last_ended)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        *lock(&self.counts.last_ended) = Some(Instant::now());
        if self.is_question {
            self.counts.questions.fetch_sub(1, Ordering::AcqRel);
        }
        self.counts.all.fetch_sub(1, Ordering::AcqRel);
    }
}
