//! State shared by a run's task and its thread's owner: the draft, pending asks, and cancellation.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trilogue_domain::event::{Body, InterruptEvent, MessageEvent, Original, RunEvent, StateEvent};
use trilogue_domain::port::Clock;
use trilogue_domain::{
    AgentName, CheckpointKey, Error, Interrupt, InterruptId, Json, MessageId, PrincipalId,
    Provenance, RequestSource, Resolution, Role, RuleOrigin, RunId, RunKey, Scope, StartedBy,
    ThreadId, ThreadKey, Timestamp, limits,
};
use trilogue_store::rows::{BindingRow, RunRow, ThreadRow};
use trilogue_store::{Draft, Store};

use super::ask_guard::WaitingAsk;
use super::permit::RunPermit;
use crate::audit::{AuditActor, AuditEvent, audit};
use crate::external_ports::ExternalPorts;
use crate::history::HistorySource;
use crate::monitor::{FirstOutput, StartingRun};
use crate::owner::{Envelope, OwnerInbox};
use crate::part::{check_metadata, check_part};
use crate::services::Services;
use crate::step::{CallbackEvents, Completed, Progress};
use crate::turn::{EmitError, Stopped};
use trilogue_domain::lock;

/// The state that a run's context and its thread's owner share.
#[derive(Debug)]
pub(crate) struct SharedRun {
    pub(crate) key: RunKey,
    pub(crate) id: RunId,
    pub(crate) thread: ThreadId,
    pub(crate) thread_key: ThreadKey,
    pub(crate) scope: Scope,
    /// The time from which the run could have begun.
    pub(crate) due: Timestamp,
    /// The creator of the run.
    pub(crate) principal: PrincipalId,
    pub(crate) agent: AgentName,
    pub(crate) config: Option<Json>,
    pub(crate) source: RequestSource,
    /// Whether the creator of the run can answer its questions, as far as is known.
    can_answer: AtomicBool,
    /// Whether its creator showed a token. Delayed work then needs a valid one.
    pub(crate) needs_token: bool,
    pub(crate) provenance: Option<Box<Provenance>>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) services: Arc<Services>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: OwnerInbox,
    pub(crate) patience: Duration,
    pub(crate) external: Arc<ExternalPorts>,
    is_native: bool,
    pub(crate) rules: Option<Arc<str>>,
    /// Whether the run's face keeps the request, and so shows one kind of state of a thread.
    pub(crate) keeps_request: bool,
    /// Whether the run's client gets callbacks about the output, and about the agent's own updates.
    calls_back: (bool, bool),
    max_part_metadata: usize,
    pub(super) open_draft: Mutex<OpenDraft>,
    /// Notified when the owner has taken a full draft.
    pub(super) space: Notify,
    dirty: Notify,
    /// Whether the run was asked to stop, with the tasks that wait for that.
    pub(super) cancelled: AtomicBool,
    cancel: Notify,
    pub(super) stopped: AtomicBool,
    /// Whether its agent has started it, such as for a sub-agent. Such work needs no permit.
    is_started_by_agent: bool,
    /// Whether the agent has answered, so that the run only waits for late output.
    is_answered: AtomicBool,
    /// Cancelled when no late output is waited for after the answer.
    pub(super) late_output_over: CancellationToken,
    pub(super) asks: Mutex<HashMap<InterruptId, WaitingAsk>>,
    pub(super) permit: RunPermit,
    base: Mutex<Option<CheckpointKey>>,
    /// The thread as first read; its key and names never change.
    row: OnceLock<ThreadRow>,
}

/// Events and notes since the owner last took the draft.
#[derive(Debug, Default)]
pub(super) struct OpenDraft {
    draft: Draft,
    messages: Vec<Completed>,
    /// Unfinished messages. Usually there is one, so an ordered map is smaller than a hash map.
    open: BTreeMap<MessageId, UnfinishedMessage>,
    /// Those that began since the owner last took the draft, in order.
    begun: Vec<MessageId>,
    /// The thought that the last event belongs to.
    thought: Option<MessageId>,
    /// Aliases of messages that the owner already knows.
    aliases: Vec<(MessageId, MessageId)>,
    values: Option<Json>,
    /// The state that was last set, for the agent itself.
    pub(super) latest: Option<Json>,
    /// The agent's binding, if it was read or made.
    bound: Option<BindingRow>,
    /// Whether the owner has that binding.
    bound_is_told: bool,
    /// The agent's last title of the thread, if it set one; `Some(None)` clears it.
    title: Option<Option<String>>,
    /// What the agent needs to find its run again, if the owner does not have it yet.
    kept: Option<Json>,
    callback_events: CallbackEvents,
    first_output: FirstOutput,
    /// Whether the owner was signalled since it last took the draft.
    signalled: bool,
    /// The output since the turn began, taken by the owner or not.
    emitted: EmittedOutput,
    /// Whether the run is complete, so that no event is added any more.
    is_closed: bool,
}

/// How much a turn has emitted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EmittedOutput {
    pub(super) events: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct UnfinishedMessage {
    role: Role,
    alias: Option<MessageId>,
    /// Whether the owner knows that the message has begun.
    is_told: bool,
    /// Whether it is a thought, which no event completes.
    is_thought: bool,
}

#[derive(Debug)]
pub(crate) struct SharedRunParts<'a> {
    pub(crate) row: &'a RunRow,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: OwnerInbox,
    pub(crate) patience: Duration,
    pub(crate) external: Arc<ExternalPorts>,
    pub(crate) max_part_metadata: usize,
    pub(crate) services: Arc<Services>,
    pub(crate) is_native: bool,
    /// Whether the thread is a sub-agent's.
    /// The initial draft.
    pub(crate) draft: Draft,
}

// === impl SharedRun ===

impl SharedRun {
    pub(crate) fn new(parts: SharedRunParts<'_>) -> Arc<Self> {
        let row = parts.row;
        Arc::new(Self {
            key: row.key,
            id: row.id.clone(),
            thread: row.thread_id.clone(),
            thread_key: row.thread,
            scope: Scope { tenant: row.tenant.clone(), owner: None },
            due: row.due(),
            principal: row.principal.clone(),
            agent: row.agent.clone(),
            config: row.config.clone(),
            source: row.audit.as_ref().map(|audit| audit.source).unwrap_or_default(),
            can_answer: AtomicBool::new(row.audit.as_ref().is_some_and(|audit| audit.can_answer)),
            needs_token: row.audit.as_ref().is_some_and(|audit| audit.token.is_some()),
            provenance: row.provenance.clone(),
            store: parts.store,
            services: parts.services,
            clock: parts.clock,
            owner: parts.owner,
            patience: parts.patience,
            external: parts.external,
            is_native: parts.is_native,
            rules: row.rules.clone(),
            keeps_request: row.request.is_some(),
            calls_back: row
                .callback
                .as_ref()
                .map_or((false, false), |one| (one.values, one.updates)),
            max_part_metadata: parts.max_part_metadata,
            open_draft: Mutex::new(OpenDraft { draft: parts.draft, ..OpenDraft::default() }),
            space: Notify::new(),
            dirty: Notify::new(),
            cancelled: AtomicBool::new(false),
            cancel: Notify::new(),
            stopped: AtomicBool::new(false),
            is_started_by_agent: row.started_by == Some(StartedBy::Agent),
            is_answered: AtomicBool::new(false),
            late_output_over: CancellationToken::new(),
            asks: Mutex::default(),
            permit: RunPermit::default(),
            base: Mutex::new(row.base),
            row: OnceLock::new(),
        })
    }

    pub(crate) fn can_answer(&self) -> bool {
        self.can_answer.load(Ordering::Relaxed)
    }

    /// Notes that the creator of the run can no longer answer its questions.
    pub(crate) fn lose_answer(&self) {
        self.can_answer.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_started_by_agent(&self) -> bool {
        self.is_started_by_agent
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    pub(super) fn set_answered(&self) {
        self.is_answered.store(true, Ordering::Release);
    }

    /// Completes the unfinished messages, and accepts no more events. What was emitted before can still be taken.
    pub(crate) fn close(&self) {
        let mut filling = lock(&self.open_draft);
        let open = filling.open.iter().filter(|(_, open)| !open.is_thought);
        let open: Vec<_> = open.map(|(message, _)| message.clone()).collect();
        for message in open {
            let body = Body::Message(MessageEvent::Completed { message });
            if let Err(error) = filling.draft.push(self.clock.now(), &body, None) {
                tracing::error!(%error, "the end of a message does not fit the log");
                continue;
            }
            filling.note(&body);
        }
        filling.is_closed = true;
    }

    /// Checks an event against the metadata limit and the run's rules.
    pub(super) fn check(&self, body: &Body) -> Result<(), Error> {
        check_part(body, self.max_part_metadata)?;
        match &self.rules {
            None => Ok(()),
            Some(rules) => self.external.check(rules, body),
        }
    }

    /// Like [`Self::check`], for an interrupt.
    pub(crate) fn check_interrupt(&self, interrupt: &Interrupt) -> Result<(), Error> {
        check_metadata(&interrupt.prompt, self.max_part_metadata)?;
        let Some(rules) = &self.rules else { return Ok(()) };
        let raised = InterruptEvent::Raised(Box::new(interrupt.clone()));
        self.external.check(rules, &Body::Interrupt(raised))
    }

    /// Writes an audit line of a rule's decision.
    pub(super) fn audit(&self, body: &Body) {
        let Body::Interrupt(InterruptEvent::RuleApplied { rule, allowed, origin }) = body else {
            return;
        };
        let decided = if *allowed { "allowed" } else { "denied" };
        let origin = origin.map_or("another server", RuleOrigin::as_str);
        let (agent, run, thread) = (&self.agent, &self.id, &self.thread);
        let detail =
            format!("{decided}; origin {origin}; agent {agent}; run {run}; thread {thread}");
        let actor =
            AuditActor { tenant: &self.scope.tenant, principal: &self.principal, token: None };
        audit(AuditEvent::RuleApplied, Some(actor), rule, &detail);
    }

    pub(super) fn source(&self) -> HistorySource<'_> {
        HistorySource { store: self.store.as_ref(), external: &self.external, scope: &self.scope }
    }

    /// Returns the thread if it is stored.
    pub(super) async fn thread_row(&self) -> Result<Option<ThreadRow>, Error> {
        if let Some(row) = self.row.get() {
            return Ok(Some(row.clone()));
        }
        let row = self.store.thread(&self.scope, &self.thread).await?;
        if let Some(row) = &row {
            // A faster reader has stored the same value.
            let _: Result<(), ThreadRow> = self.row.set(row.clone());
        }
        Ok(row)
    }

    /// Takes the emitted events. The next events fill `spare`.
    pub(crate) fn take(&self, spare: &mut Vec<u8>) -> Progress {
        let mut filling = lock(&self.open_draft);
        filling.signalled = false;
        let draft = if filling.draft.is_empty() {
            Draft::default()
        } else {
            std::mem::replace(&mut filling.draft, Draft::reusing(std::mem::take(spare)))
        };
        let begun = filling.take_begun_messages();
        let progress = Progress {
            run: self.key,
            draft,
            begun,
            messages: std::mem::take(&mut filling.messages),
            values: filling.values.take(),
            bound: filling.untold_binding(),
            title: filling.title.take(),
            kept: filling.kept.take(),
            aliases: std::mem::take(&mut filling.aliases),
            callback_events: std::mem::take(&mut filling.callback_events),
        };
        // The tasks that wake take this lock.
        drop(filling);
        self.space.notify_waiters();
        progress
    }

    /// Whether to signal the owner that the draft has events; `true` once for each taking.
    pub(crate) fn wants_signal(&self) -> bool {
        let mut filling = lock(&self.open_draft);
        let has_news = !filling.draft.is_empty() || filling.kept.is_some();
        let wants = !filling.signalled && has_news;
        filling.signalled |= wants;
        wants
    }

    /// Records that the agent now begins its first turn.
    pub(crate) fn record_start(&self, starting: &StartingRun<'_>) {
        let monitor = &self.services.monitor;
        monitor.record_start(starting);
        lock(&self.open_draft).first_output = FirstOutput::after(monitor.meters(&self.agent));
    }

    /// Returns the run as one whose agent begins now.
    pub(crate) fn starting_run(&self) -> StartingRun<'_> {
        StartingRun {
            run: &self.id,
            thread: &self.thread,
            tenant: &self.scope.tenant,
            agent: &self.agent,
            due: self.due,
            now: self.clock.now(),
        }
    }

    /// Resolves when an event was emitted.
    pub(crate) async fn wait_for_event(&self) {
        self.dirty.notified().await;
    }

    /// Marks the run as stopped: later events are dropped.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        // After the flag: a later ask sees the flag, and earlier ones are cleared here.
        lock(&self.asks).clear();
        self.cancel.notify_waiters();
        self.space.notify_waiters();
    }

    pub(crate) fn restore_values(&self, values: Json) {
        let mut filling = lock(&self.open_draft);
        filling.latest = Some(values.clone());
        filling.values = Some(values);
    }

    pub(super) fn bound(&self) -> Option<BindingRow> {
        lock(&self.open_draft).bound.clone()
    }

    /// Records the agent's binding, and passes it to the owner.
    pub(super) fn bind(&self, row: Option<BindingRow>) {
        let mut filling = lock(&self.open_draft);
        filling.bound = row;
        filling.bound_is_told = false;
    }

    /// Records a binding that was made outside of the run; the owner already knows it.
    pub(crate) fn rebind(&self, row: BindingRow) {
        let mut filling = lock(&self.open_draft);
        filling.bound = Some(row);
        filling.bound_is_told = true;
    }

    pub(super) fn alias(&self, message: &MessageId, alias: &MessageId) {
        let mut filling = lock(&self.open_draft);
        let is_told = match filling.open.get_mut(message) {
            Some(open) => {
                open.alias = Some(alias.clone());
                open.is_told
            }
            None => true,
        };
        if is_told {
            filling.aliases.push((message.clone(), alias.clone()));
        }
    }

    pub(super) fn title(&self, title: Option<&str>) {
        lock(&self.open_draft).title = Some(title.and_then(trilogue_domain::thread::title));
    }

    pub(super) fn keep(&self, saved: Json) {
        self.keep_with_next_event(saved);
        self.signal();
    }

    pub(super) fn keep_with_next_event(&self, saved: Json) {
        lock(&self.open_draft).kept = Some(saved);
    }

    pub(super) fn store_kept(&self) {
        if lock(&self.open_draft).kept.is_some() {
            self.signal();
        }
    }

    /// Records an unfinished message of this run that is already in the log.
    pub(super) fn continue_message(&self, message: MessageId, role: Role) {
        let open = UnfinishedMessage { role, alias: None, is_told: true, is_thought: false };
        lock(&self.open_draft).open.insert(message, open);
    }

    /// Whether the run accepts no more events.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || lock(&self.open_draft).is_closed
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.cancel.notify_waiters();
    }

    /// Resolves when the run is asked to stop.
    pub(crate) async fn wait_until_cancelled(&self) {
        loop {
            // Created before the check, so that no notification is missed.
            let asked = self.cancel.notified();
            if self.cancelled.load(Ordering::Acquire) {
                return;
            }
            asked.await;
        }
    }

    pub(super) async fn wait_until_stopped(&self) {
        loop {
            // Created before the check, so that no notification is missed.
            let told = self.cancel.notified();
            if self.stopped.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    pub(crate) fn deliver(&self, interrupt: &InterruptId, resolution: Resolution) {
        if let Some(ask) = lock(&self.asks).remove(interrupt) {
            // If the task stopped waiting, its receiver is gone; the log has the answer all the same.
            drop(ask.answer.send(resolution));
        }
    }

    /// Whether the run itself waits for the answer to this interrupt, and not a sub-agent that works beside it.
    pub(crate) fn waits_for(&self, interrupt: &InterruptId) -> bool {
        lock(&self.asks).get(interrupt).is_some_and(|ask| !ask.is_of_subagent)
    }

    pub(crate) fn rebase(&self, base: Option<CheckpointKey>) {
        *lock(&self.base) = base;
    }

    pub(crate) fn base(&self) -> Option<CheckpointKey> {
        *lock(&self.base)
    }

    pub(super) async fn send_to_owner(&self, request: Envelope) -> Result<(), Stopped> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(Stopped);
        }
        self.owner.send(request).await.map_err(|_| Stopped)
    }

    pub(super) fn emitted_output(&self) -> EmittedOutput {
        lock(&self.open_draft).emitted
    }

    /// Adds an event to the draft. Returns `false` if the draft is full.
    pub(super) fn push(&self, body: &Body, original: Option<&Original>) -> Result<bool, EmitError> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(EmitError::Stopped);
        }
        let mut filling = lock(&self.open_draft);
        // Under the lock: a closed draft is taken for the last time.
        if filling.is_closed {
            return Err(EmitError::Stopped);
        }
        let was_empty = filling.draft.is_empty();
        if filling.draft.is_full() {
            drop(filling);
            self.dirty.notify_one();
            return Ok(false);
        }
        let named = filling.name_thought(body);
        let body = named.as_ref().unwrap_or(body);
        let (bytes, blobs) = (filling.draft.bytes(), filling.draft.blobs().len());
        filling.draft.push(self.clock.now(), body, original).map_err(EmitError::Refused)?;
        let blobs: u64 = filling.draft.blobs().iter().skip(blobs).map(|blob| blob.length).sum();
        let bytes = filling.draft.bytes().saturating_sub(bytes) as u64 + blobs;
        filling.emitted.events += 1;
        filling.emitted.bytes += bytes;
        filling.note(body);
        filling.first_output.note(body);
        if self.calls_back != (false, false) {
            filling.record_callback_event(body, self.calls_back);
        }
        drop(filling);
        if was_empty {
            self.signal();
        }
        Ok(true)
    }

    /// Makes the owner take the draft: at once if the agent works elsewhere; if it works in this process, when it waits.
    fn signal(&self) {
        if !self.is_native && self.wants_signal() {
            let progress = Envelope::Progress { run: self.key };
            if self.owner.try_send_small(progress).is_ok() {
                return;
            }
            // The owner's queue is full; the run's task waits for room.
            lock(&self.open_draft).signalled = false;
        }
        self.dirty.notify_one();
    }
}

// === impl OpenDraft ===

impl OpenDraft {
    /// Returns a piece of a thought without an id from its agent, with the id of the piece before, or a new one.
    fn name_thought(&self, body: &Body) -> Option<Body> {
        let Body::Message(MessageEvent::Thought { message: None, text }) = body else {
            return None;
        };
        let message = self.thought.clone().unwrap_or_else(MessageId::generate);
        let text = Arc::clone(text);
        Some(Body::Message(MessageEvent::Thought { message: Some(message), text }))
    }

    /// Records what the owner needs in addition to the events.
    fn note(&mut self, body: &Body) {
        let thought = match body {
            Body::Message(MessageEvent::Thought { message, .. }) => message.as_ref(),
            _ => None,
        };
        let is_new_thought = thought.is_some() && self.thought.as_ref() != thought;
        if self.thought.as_ref() != thought {
            self.thought = thought.cloned();
        }
        match body {
            Body::Message(MessageEvent::Started { message, role, .. }) => {
                self.begin(message.clone(), role.clone(), false);
            }
            // No event completes a thought: it ends with its run.
            Body::Message(MessageEvent::Thought { message: Some(message), .. })
                if is_new_thought && !self.open.contains_key(message) =>
            {
                self.begin(message.clone(), Role::Agent, true);
            }
            Body::Message(MessageEvent::Completed { message }) => {
                if let Some(UnfinishedMessage { role, alias, .. }) = self.open.remove(message) {
                    self.messages.push(Completed { message: message.clone(), role, alias });
                }
            }
            Body::State(StateEvent::Values(values)) => {
                self.values = Some(values.clone());
                self.latest = Some(values.clone());
            }
            _ => {}
        }
    }

    fn begin(&mut self, message: MessageId, role: Role, is_thought: bool) {
        if self.open.len() >= limits::MAX_OPEN_MESSAGES {
            // A message beyond the limit is not tracked, so report it at once.
            self.messages.push(Completed { message, role, alias: None });
            return;
        }
        self.begun.push(message.clone());
        let open = UnfinishedMessage { role, alias: None, is_told: false, is_thought };
        self.open.insert(message, open);
    }

    /// Returns the messages that have begun and that the owner does not know yet; their aliases follow.
    fn take_begun_messages(&mut self) -> Vec<(MessageId, Role)> {
        let mut begun = Vec::new();
        for message in std::mem::take(&mut self.begun) {
            let Some(open) = self.open.get_mut(&message).filter(|open| !open.is_told) else {
                continue;
            };
            open.is_told = true;
            self.aliases.extend(open.alias.clone().map(|alias| (message.clone(), alias)));
            begun.push((message, open.role.clone()));
        }
        begun
    }

    /// Returns the binding if the owner does not have it yet.
    fn untold_binding(&mut self) -> Option<BindingRow> {
        let is_told = std::mem::replace(&mut self.bound_is_told, true);
        if is_told { None } else { self.bound.clone() }
    }

    /// Records the last event if the run's client gets callbacks about its kind.
    fn record_callback_event(&mut self, body: &Body, (values, updates): (bool, bool)) {
        let place = self.draft.len() as u64;
        match body {
            Body::Message(MessageEvent::Thought { .. })
            | Body::Tool(_)
            | Body::State(
                StateEvent::Custom { .. }
                | StateEvent::Plan(_)
                | StateEvent::PlanUpdated { .. }
                | StateEvent::PlanRemoved { .. }
                | StateEvent::Subagent(_),
            ) if updates => {
                self.callback_events.updates.push(place);
            }
            Body::Message(MessageEvent::Thought { .. }) => {}
            Body::Message(_)
            | Body::State(StateEvent::Output(_))
            | Body::Run(RunEvent::Result(_))
                if values =>
            {
                self.callback_events.output = place;
            }
            _ => {}
        }
    }
}
