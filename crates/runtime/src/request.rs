use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, Callback, CheckpointId, InterruptId, Json, Message, MessageId, ParentRun, Principal,
    PrincipalId, Provenance, RequestSource, Right, RunId, RunKey, Strategy, TenantId, ThreadId,
    Timestamp, TokenId,
};
use trilogue_store::Frame;
use trilogue_store::rows::{RetentionPolicy, RunRow};

use crate::monitor::EndedRuns;
use trilogue_domain::Input;

#[derive(Clone, Debug)]
pub struct Options {
    /// How long an interrupt that survives only in its process waits while no client that can answer is connected.
    pub interrupt_deadline: Duration,
    /// The longest that any interrupt with a deadline waits, even while a client that can answer is connected.
    pub attended_deadline: Duration,
    /// How long a cancelled agent has to stop. Then a native agent is dropped, and the process of a hosted one is killed.
    pub cancel_grace: Duration,
    pub max_queued_runs_per_thread: usize,
    /// The most runs with active agents; further ones queue.
    pub max_running: usize,
    /// The most of them that are of one principal; three quarters when `None`.
    pub max_running_per_principal: Option<usize>,
    /// The most requests that wait for a thread's owner; senders of further ones wait.
    pub max_commands_per_thread: usize,
    /// The most bytes of content in requests that wait for a thread's owner; senders of further ones wait. A request may be larger; it then waits alone.
    pub max_command_bytes_per_thread: usize,
    /// How long an idle owner of a thread stays in memory.
    pub owner_idle: Duration,
    /// A principal that needs no token: its scheduled work runs without one.
    pub local_principal: Option<PrincipalId>,
    /// The most attempts for a callback before it goes to the dead-letter list.
    pub callback_attempts: u32,
    /// The delay after a callback's first failure; doubled with each further one, with jitter.
    pub callback_backoff: Duration,
    /// The longest delay between two attempts of a callback.
    pub callback_backoff_max: Duration,
    pub retention: RetentionPolicy,
    /// The interval of retention.
    pub retention_interval: Duration,
    pub max_part_metadata_bytes: usize,
    /// Whether notices of new interrupts are sent, through [`crate::Runtime::notify_with`].
    pub notify: bool,
    /// The most runs in a chain of calls.
    pub max_call_depth: usize,
    /// The most open child runs of one run.
    pub max_calls_per_run: usize,
    /// The most runs of one principal that are scheduled and not due, on one node.
    pub max_scheduled_per_principal: usize,
    /// The most runs of one principal that have not ended, on one node.
    pub max_open_runs_per_principal: usize,
    /// The most events that a turn of a remote agent logs, or that log nothing.
    pub max_remote_events: u64,
    /// The most bytes of these events, with their blobs.
    pub max_remote_bytes: usize,
    /// The sampled fraction of the traces that begin here, if runs are traced: from 0 to 1. `None` passes on the trace of a run's caller unchanged.
    pub trace_ratio: Option<f64>,
    /// Receives the runs that end, including those that a start ends.
    pub ended_runs: Option<Arc<dyn EndedRuns>>,
    /// Whether the open runs that a thread has when it is loaded are cancelled as `run_not_restored`: see [`crate::cancel_open_runs`].
    pub cancels_open_runs: bool,
}

#[derive(Clone, Debug, Default)]
pub struct NewThread {
    /// The client's id; `None` generates one.
    pub id: Option<ThreadId>,
    /// Metadata; an object.
    pub metadata: Option<Json>,
    /// Whether the caller's right to its editor's settings and folders in the metadata was checked before. Otherwise they need the right `server`.
    pub has_checked_settings: bool,
}

#[derive(Clone, Debug, Default)]
pub struct ThreadPatch {
    /// Members to merge into the metadata; `null` removes one.
    pub metadata: Option<Json>,
    /// As [`NewThread::has_checked_settings`].
    pub has_checked_settings: bool,
    /// The new state, as a new checkpoint.
    pub values: Option<Json>,
    /// The checkpoint that the new one follows; `None` for the head.
    pub from: Option<CheckpointId>,
    /// Refuse a new state with `thread_busy` while a run is queued, scheduled or active.
    pub if_idle: bool,
    /// Refuse a new state with `thread_state_schema_violation` if the messages are the thread's state, because the agent of its newest run declares none.
    pub only_where_set: bool,
}

#[derive(Clone, Debug)]
pub struct RunRequest {
    pub agent: AgentName,
    pub thread: ThreadChoice,
    /// The client's id; `None` generates one.
    pub id: Option<RunId>,
    pub input: Input,
    pub config: Option<Json>,
    /// Metadata; an object.
    pub metadata: Option<Json>,
    /// What to do if another run has the turn.
    pub strategy: Strategy,
    /// What to do if a run waits without the turn.
    pub when_waiting: WhenWaiting,
    /// What to do if a run waits and keeps the turn.
    pub when_holding: WhenHolding,
    /// The client's idempotency key and SHA-256 of its request.
    pub idempotency: Option<(String, [u8; 32])>,
    /// The run does not begin before this time.
    pub not_before: Option<Timestamp>,
    /// The rules for the agent's output, by their name in the checker of [`crate::Runtime::check_output_with`].
    pub rules: Option<Arc<str>>,
    pub callback: Option<Callback>,
    /// The prefix of the request's mount, if links in callbacks must lead there.
    pub mount: Option<Arc<str>>,
    /// The request in the form of its face, kept with the run. A face that keeps it shows its clients one kind of state of a thread: an
    /// agent with another kind is refused there with `thread_state_incompatible`.
    pub request: Option<Json>,
    /// Whether the caller waits in this same call and does not know the run yet: a native run then costs one commit.
    pub synchronous: bool,
    /// The request's origin outside this server.
    pub provenance: Option<Box<Provenance>>,
    /// The token of its caller.
    pub token: Option<TokenId>,
    /// What sent the request: it decides what the configuration can contain.
    pub source: RequestSource,
    /// The folders that its caller has opened on this machine: its configuration can also choose folders below them.
    pub folders: Vec<PathBuf>,
    /// Whether [`Strategy::Rollback`] may remove runs of other principals.
    pub may_remove_of_others: bool,
}

/// The caller of a run, as far as the check of its configuration needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunCaller<'a> {
    pub tenant: &'a TenantId,
    pub principal: &'a PrincipalId,
    pub source: RequestSource,
    /// Whether it can answer questions, and so allow calls before the agent asks.
    pub can_answer: bool,
    /// The folders that it has opened on this machine.
    pub folders: &'a [PathBuf],
}

/// Makes a run the child of another. Its key is assigned first, so that its caller is registered when it begins.
#[derive(Clone, Debug)]
pub(crate) struct ChildOf {
    pub(crate) key: RunKey,
    pub(crate) parent: ParentRun,
}

#[derive(Clone, Debug)]
pub enum ThreadChoice {
    /// On an existing thread.
    Existing(ThreadId),
    /// On an existing thread, or on a new one with this id.
    Ensure(NewThread),
    /// On a new thread that lists do not show.
    Ephemeral,
    /// Like [`Self::Ephemeral`]; after the end of the run only its row stays, until the retention of stateless runs removes it.
    Stateless,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateContent {
    /// What an agent or a client set.
    Value(Json),
    /// The messages; the checkpoint has no value.
    Messages(Vec<Message>),
}

/// What a new run does if another waits for an answer without the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenWaiting {
    /// It starts; the waiting run stays and can be answered.
    Start,
    /// It starts; the waiting run is cancelled as `run_superseded`.
    Supersede,
    /// It is refused with `thread_waiting`.
    Refuse,
}

/// What a new run does if another waits for an answer and keeps the turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenHolding {
    /// It follows its [`Strategy`].
    Strategy,
    /// It is refused with `thread_waiting`.
    Refuse,
}

/// An accepted run.
#[derive(Debug)]
pub struct Submitted {
    /// The run in its state at acceptance.
    pub run: RunRow,
    /// Whether this call created it; `false` if the idempotency key was used before.
    pub created: bool,
    /// The message that was sent with the idempotency key earlier.
    pub message: Option<MessageId>,
    pub settled: SettledReceiver,
    /// The run's whole log, if the agent's turn ended within this call; it is durable once `settled` reports so.
    pub log: Option<Vec<Arc<Frame>>>,
}

/// Resolves when a run ends or waits. Await the receiver; it fails only if the server stops.
#[derive(Debug)]
pub struct SettledReceiver(pub oneshot::Receiver<Result<RunRow>>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnswerKey {
    pub agent: AgentName,
    pub text: String,
    pub request: [u8; 32],
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerTo {
    Interrupt(InterruptId),
    /// The interrupt of this run that the principal was last shown.
    Run(RunId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuntimeStatus {
    pub running: usize,
    pub owners: usize,
    pub draining: bool,
}

/// The outcome of handing over the threads of a stopping server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandOverAll {
    /// No other node takes over.
    NoOtherNode,
    /// This node has no thread left.
    Done,
    /// Some threads are still active here.
    AtWork,
}

/// The runs that a drain left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DrainReport {
    /// Runs that were still active at the deadline and ended as `agent_lost`.
    pub abandoned: Vec<RunId>,
    pub waiting: Vec<RunId>,
}

// === impl RunRequest ===

impl RunRequest {
    /// Creates a request with only its input; the run waits for its turn, and is refused while another run keeps it.
    pub fn new(agent: AgentName, thread: ThreadChoice, input: Input) -> Self {
        Self {
            agent,
            thread,
            id: None,
            input,
            config: None,
            metadata: None,
            strategy: Strategy::Enqueue,
            when_waiting: WhenWaiting::Start,
            when_holding: WhenHolding::Refuse,
            idempotency: None,
            not_before: None,
            rules: None,
            callback: None,
            request: None,
            synchronous: false,
            provenance: None,
            mount: None,
            token: None,
            source: RequestSource::Network,
            folders: Vec::new(),
            may_remove_of_others: false,
        }
    }

    /// Returns its caller, with this principal.
    pub(crate) fn caller<'a>(&'a self, by: &'a Principal) -> RunCaller<'a> {
        RunCaller::new(by, self.source, &self.folders)
    }
}

// === impl RunCaller ===

impl<'a> RunCaller<'a> {
    #[must_use]
    pub fn new(by: &'a Principal, source: RequestSource, folders: &'a [PathBuf]) -> Self {
        // An agent never answers its own questions.
        let can_answer = by.rights.has(Right::Answer) && source != RequestSource::Agent;
        Self { tenant: &by.tenant, principal: &by.id, source, can_answer, folders }
    }
}

// === impl SettledReceiver ===

impl SettledReceiver {
    /// Waits for the result. Fails with the error that kept the run from being stored; with `shutting_down` if the server stops first.
    pub async fn wait(self) -> Result<RunRow> {
        self.0.await.unwrap_or_else(|_| {
            Err(trilogue_domain::Error::new(
                trilogue_domain::Code::ShuttingDown,
                "the server stopped before the run ended",
            )
            .hint("ask for the run again when the server is back"))
        })
    }
}

// === impl Options ===

impl Options {
    pub(crate) fn max_running_each(&self) -> usize {
        self.max_running_per_principal
            .unwrap_or_else(|| crate::shares::default_share(self.max_running))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interrupt_deadline: trilogue_domain::limits::DEFAULT_INTERRUPT_DEADLINE,
            attended_deadline: trilogue_domain::limits::DEFAULT_ATTENDED_DEADLINE,
            cancel_grace: Duration::from_secs(10),
            max_queued_runs_per_thread: trilogue_domain::limits::MAX_QUEUED_RUNS_PER_THREAD,
            max_running: 10_000,
            max_running_per_principal: None,
            max_commands_per_thread: 256,
            max_command_bytes_per_thread: 16 * 1024 * 1024,
            owner_idle: Duration::from_secs(1),
            local_principal: None,
            callback_attempts: 12,
            callback_backoff: Duration::from_secs(2),
            callback_backoff_max: Duration::from_secs(3600),
            retention: RetentionPolicy {
                max_age: None,
                max_stateless_age: Some(Duration::from_secs(3600)),
                max_runs_per_thread: None,
                max_runs_per_tenant: None,
            },
            retention_interval: Duration::from_secs(60),
            max_part_metadata_bytes: trilogue_domain::limits::DEFAULT_MAX_PART_METADATA_BYTES,
            notify: false,
            max_call_depth: trilogue_domain::limits::DEFAULT_MAX_CALL_DEPTH,
            max_calls_per_run: trilogue_domain::limits::DEFAULT_MAX_CALLS_PER_RUN,
            max_scheduled_per_principal:
                trilogue_domain::limits::DEFAULT_MAX_SCHEDULED_PER_PRINCIPAL,
            max_open_runs_per_principal:
                trilogue_domain::limits::DEFAULT_MAX_OPEN_RUNS_PER_PRINCIPAL,
            max_remote_events: trilogue_domain::limits::DEFAULT_MAX_REMOTE_EVENTS,
            max_remote_bytes: trilogue_domain::limits::DEFAULT_MAX_REMOTE_BYTES,
            trace_ratio: None,
            ended_runs: None,
            cancels_open_runs: false,
        }
    }
}
