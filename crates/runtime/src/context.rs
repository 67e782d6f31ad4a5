//! What a run's task shares with its thread's owner: the draft that it fills, its questions, and that it should stop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use trilogue_domain::event::{Body, InterruptEvent, MessageEvent, Original, RunEvent, StateEvent};
use trilogue_domain::port::Clock;
use trilogue_domain::{
    AgentName, CheckpointKey, Error, Interrupt, InterruptId, Json, Message, MessageId, Resolution,
    Role, RunId, RunKey, Scope, Survives, ThreadId,
};
use trilogue_store::rows::BindingRow;
use trilogue_store::{Draft, Store};

use crate::backend::{EmitError, Stopped};
use crate::client::{CallError, ClientProfile};
use crate::history::{self, Source};
use crate::outside::Outside;
use crate::owner::Envelope;
use crate::part::{check_metadata, has_large_content, outline};
use crate::services::Services;
use crate::session::ThreadContext;
use crate::step::{Progress, Told};

/// What a run's agent can do. Cheap to clone; may be used from several tasks of the run.
#[derive(Clone, Debug)]
pub struct RunContext(pub(crate) Arc<Shared>);

/// What the context and the owner share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) key: RunKey,
    pub(crate) id: RunId,
    pub(crate) thread: ThreadId,
    pub(crate) thread_key: trilogue_domain::ThreadKey,
    pub(crate) scope: Scope,
    pub(crate) agent: AgentName,
    pub(crate) config: Option<Json>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) services: Arc<Services>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: mpsc::Sender<Envelope>,
    pub(crate) patience: Duration,
    /// What reaches beyond the store.
    pub(crate) outside: Arc<Outside>,
    /// The rules that output is held to.
    pub(crate) rules: Option<Arc<str>>,
    /// Whether the run's client is called back about its output, and about its agent's own updates.
    calls_back: (bool, bool),
    /// The largest metadata of one part, in bytes.
    max_part_metadata: usize,
    filling: Mutex<Filling>,
    /// Woken when the owner has taken a full draft.
    space: Notify,
    /// Woken when there is something in the draft.
    dirty: Notify,
    /// Whether the run was asked to stop, and who waits for that.
    cancelled: AtomicBool,
    cancel: Notify,
    stopped: AtomicBool,
    asks: Mutex<HashMap<InterruptId, oneshot::Sender<Resolution>>>,
    base: Mutex<Option<CheckpointKey>>,
}

/// What has been emitted since the owner took the draft last.
#[derive(Debug, Default)]
struct Filling {
    draft: Draft,
    messages: Vec<(MessageId, Role)>,
    /// Roles of messages that are not complete.
    open: HashMap<MessageId, Role>,
    values: Option<Json>,
    /// The state that was ever set last, for the agent itself.
    latest: Option<Json>,
    bound: Option<BindingRow>,
    /// What the run's client is called back about.
    told: Told,
    /// Whether the owner was told since it took the draft last.
    signalled: bool,
}

/// How far an agent's own memory of a thread reaches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It does not know the thread.
    Unbound,
    /// It knows the thread up to a point of the path.
    Bound {
        /// How it knows the thread.
        binding: BindingRow,
        /// What it was not told, oldest first: prime it with these.
        missed: Vec<Message>,
    },
    /// It knows a path that was left: it needs a new session.
    Rewound {
        /// How it knows the thread.
        binding: BindingRow,
    },
}

/// What a new context is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) row: trilogue_store::rows::RunRow,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: mpsc::Sender<Envelope>,
    pub(crate) patience: Duration,
    pub(crate) outside: Arc<Outside>,
    pub(crate) max_part_metadata: usize,
    pub(crate) services: Arc<Services>,
}

// === impl RunContext ===

impl RunContext {
    /// The run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.0.id
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.0.thread
    }

    /// The agent's name in this server.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.0.agent
    }

    /// The configuration that this run was given.
    #[must_use]
    pub fn config(&self) -> Option<&Json> {
        self.0.config.as_ref()
    }

    /// Adds an event to the run when there is room for it now and none of its content has to be stored apart.
    /// `false` when not: call [`Self::emit`] then.
    ///
    /// # Errors
    /// [`EmitError`] when the run was stopped, the event is larger than the log takes, or it breaks the run's rules.
    pub fn try_emit(&self, body: &Body, original: Option<&Original>) -> Result<bool, EmitError> {
        self.0.check(body)?;
        if has_large_content(body) {
            return Ok(false);
        }
        self.0.push(body, original)
    }

    /// Adds an event to the run. Returns when it is in the draft; waits while the draft is full.
    /// Content above [`limits::INLINE_CONTENT_BYTES`] is stored beside the log first.
    ///
    /// # Errors
    /// [`EmitError`] when the run was stopped, the event is larger than the log takes, it breaks the run's rules, or content could not be stored.
    pub async fn emit(&self, body: Body, original: Option<Original>) -> Result<(), EmitError> {
        self.0.check(&body)?;
        let body = if has_large_content(&body) { self.0.store_content(body).await? } else { body };
        loop {
            let space = self.0.space.notified();
            if self.0.push(&body, original.as_ref())? {
                return Ok(());
            }
            space.await;
        }
    }

    /// Waits until everything emitted so far is durable.
    ///
    /// # Errors
    /// [`Stopped`] when the run was stopped or could not be stored.
    pub async fn commit(&self) -> Result<(), Stopped> {
        let (reply, done) = oneshot::channel();
        self.0.tell(Envelope::Flush { run: self.0.key, reply: Some(reply) }).await?;
        done.await.map_err(|_| Stopped)?.map_err(|_| Stopped)
    }

    /// Raises an interrupt that survives as long as this task, and waits for its end.
    /// Without a patience of its own it gets the server's default.
    ///
    /// # Errors
    /// [`EmitError`] when the run was stopped, or the interrupt was refused.
    pub async fn ask(&self, mut interrupt: Interrupt) -> Result<Resolution, EmitError> {
        interrupt.survives = Survives::Process;
        interrupt.patience.get_or_insert(self.0.patience);
        self.0.check_interrupt(&interrupt)?;
        let (answer, answered) = oneshot::channel();
        let id = interrupt.id.clone();
        lock(&self.0.asks).insert(id.clone(), answer);
        let (reply, raised) = oneshot::channel();
        let request = Envelope::Raise { run: self.0.key, interrupt: Box::new(interrupt), reply };
        let outcome = match self.0.tell(request).await {
            Ok(()) => raised.await.map_err(|_| EmitError::Stopped)?,
            Err(Stopped) => return Err(EmitError::Stopped),
        };
        if let Err(error) = outcome {
            lock(&self.0.asks).remove(&id);
            return Err(EmitError::Refused(error));
        }
        answered.await.map_err(|_| EmitError::Stopped)
    }

    /// The thread's messages on the path to the head that this run is based on, oldest first, without this run's own.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn history(&self) -> Result<Vec<Message>, Error> {
        history::messages(self.0.source(), &self.0.thread, self.0.base()).await
    }

    /// The thread's state as this run last set it, or at the head that this run is based on.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn load_state(&self) -> Result<Option<Json>, Error> {
        if let Some(values) = lock(&self.0.filling).latest.clone() {
            return Ok(Some(values));
        }
        history::values(self.0.source(), &self.0.thread, self.0.base()).await
    }

    /// How this agent knows the thread at the other side, where it has a memory of its own.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn binding(&self) -> Result<Option<BindingRow>, Error> {
        if let Some(bound) = lock(&self.0.filling).bound.clone() {
            return Ok(Some(bound));
        }
        let stored = self.0.store.binding(&self.0.scope, &self.0.thread, &self.0.agent).await?;
        lock(&self.0.filling).bound.clone_from(&stored);
        Ok(stored)
    }

    /// Binds the thread to a session at the other side; durable when this returns, so that it stands before the first prompt.
    ///
    /// # Errors
    /// [`Stopped`] as [`Self::commit`].
    pub async fn bind(&self, remote: &str, capabilities: Json) -> Result<(), Stopped> {
        let row = BindingRow {
            thread: self.0.thread_key,
            agent: self.0.agent.clone(),
            remote: remote.to_owned(),
            capabilities,
            told: self.0.base(),
        };
        lock(&self.0.filling).bound = Some(row);
        self.commit().await
    }

    /// How far this agent's own memory of the thread reaches, seen from the head that this run is based on.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn standing(&self) -> Result<Standing, Error> {
        let Some(binding) = self.binding().await? else { return Ok(Standing::Unbound) };
        let store = self.0.store.as_ref();
        let (scope, thread) = (&self.0.scope, &self.0.thread);
        let base = self.0.base();
        let path = history::path(store, scope, thread, base).await?;
        let told = |row: &trilogue_store::rows::CheckpointRow| Some(row.key) == binding.told;
        if binding.told.is_some() && !path.iter().any(told) {
            return Ok(Standing::Rewound { binding });
        }
        let missed = history::messages_after(self.0.source(), thread, base, binding.told).await?;
        Ok(Standing::Bound { binding, missed })
    }

    /// The client that the run works for, where it is one that takes calls: what it can do.
    #[must_use]
    pub fn client(&self) -> Option<ClientProfile> {
        None
    }

    /// Asks the client that the run works for. Waits for one that is gone as long as [`crate::client::CONTROLLER_GONE`].
    ///
    /// # Errors
    /// What the client refuses with; [`CallError::gone`] where there is none.
    pub async fn call_client(&self, method: &str, params: Json) -> Result<Json, CallError> {
        let _ = (method, params);
        Err(CallError::gone())
    }

    /// The run's thread, for what happens in it outside of the run.
    #[must_use]
    pub fn thread_context(&self) -> ThreadContext {
        ThreadContext {
            services: Arc::clone(&self.0.services),
            thread: self.0.thread_key,
            id: self.0.thread.clone(),
            scope: self.0.scope.clone(),
            agent: self.0.agent.clone(),
        }
    }

    /// Notes that the agent knows a message of this run by another id. Stored with what is emitted next.
    pub fn alias(&self, message: &MessageId, alias: &MessageId) {
        let _ = (message, alias);
    }

    /// Whether the run was asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Returns when the run is asked to stop.
    pub async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let row = parts.row;
        Arc::new(Self {
            key: row.key,
            id: row.id,
            thread: row.thread_id,
            thread_key: row.thread,
            scope: Scope { tenant: row.tenant, owner: None },
            agent: row.agent,
            config: row.config,
            store: parts.store,
            services: parts.services,
            clock: parts.clock,
            owner: parts.owner,
            patience: parts.patience,
            outside: parts.outside,
            rules: row.rules,
            calls_back: row.callback.map_or((false, false), |one| (one.values, one.updates)),
            max_part_metadata: parts.max_part_metadata,
            filling: Mutex::default(),
            space: Notify::new(),
            dirty: Notify::new(),
            cancelled: AtomicBool::new(false),
            cancel: Notify::new(),
            stopped: AtomicBool::new(false),
            asks: Mutex::default(),
            base: Mutex::new(row.base),
        })
    }

    /// Passes when an event is within the limit of metadata and keeps the run's rules.
    fn check(&self, body: &Body) -> Result<(), Error> {
        if let Body::Message(MessageEvent::Part { part, .. }) = body
            && part.metadata.is_some()
        {
            check_metadata([part], self.max_part_metadata)?;
        }
        match &self.rules {
            None => Ok(()),
            Some(rules) => self.outside.check(rules, body),
        }
    }

    /// As [`Self::check`], for what is asked.
    pub(crate) fn check_interrupt(&self, interrupt: &Interrupt) -> Result<(), Error> {
        check_metadata(&interrupt.prompt, self.max_part_metadata)?;
        let Some(rules) = &self.rules else { return Ok(()) };
        let raised = InterruptEvent::Raised(Box::new(interrupt.clone()));
        self.outside.check(rules, &Body::Interrupt(raised))
    }

    fn source(&self) -> Source<'_> {
        Source { store: self.store.as_ref(), outside: &self.outside, scope: &self.scope }
    }

    /// Takes what was emitted, for the owner.
    pub(crate) fn take(&self) -> Progress {
        let mut filling = lock(&self.filling);
        filling.signalled = false;
        let progress = Progress {
            run: self.key,
            draft: std::mem::take(&mut filling.draft),
            messages: std::mem::take(&mut filling.messages),
            values: filling.values.take(),
            bound: filling.bound.clone(),
            told: std::mem::take(&mut filling.told),
        };
        drop(filling);
        self.space.notify_waiters();
        progress
    }

    /// Whether the owner should be told that there is something to take; says so once.
    pub(crate) fn wants_signal(&self) -> bool {
        let mut filling = lock(&self.filling);
        let wants = !filling.signalled && !filling.draft.is_empty();
        filling.signalled |= wants;
        wants
    }

    /// Returns when something was emitted.
    pub(crate) async fn emitted(&self) {
        self.dirty.notified().await;
    }

    /// Marks the run as stopped: whatever its agent does next is not heard.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        lock(&self.asks).clear();
        self.space.notify_waiters();
    }

    /// What a restored run had set as state before it waited.
    pub(crate) fn restore_values(&self, values: Json) {
        let mut filling = lock(&self.filling);
        filling.latest = Some(values.clone());
        filling.values = Some(values);
    }

    /// Asks the run to stop.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.cancel.notify_waiters();
    }

    /// Returns when the run is asked to stop.
    pub(crate) async fn cancelled(&self) {
        loop {
            let asked = self.cancel.notified();
            if self.cancelled.load(Ordering::Acquire) {
                return;
            }
            asked.await;
        }
    }

    pub(crate) fn deliver(&self, interrupt: &InterruptId, resolution: Resolution) {
        if let Some(ask) = lock(&self.asks).remove(interrupt) {
            // A task that gave up waiting has dropped its end; the log has the answer all the same.
            drop(ask.send(resolution));
        }
    }

    pub(crate) fn rebase(&self, base: Option<CheckpointKey>) {
        *lock(&self.base) = base;
    }

    pub(crate) fn base(&self) -> Option<CheckpointKey> {
        *lock(&self.base)
    }

    async fn tell(&self, request: Envelope) -> Result<(), Stopped> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(Stopped);
        }
        self.owner.send(request).await.map_err(|_| Stopped)
    }

    /// `false` when the draft is full.
    fn push(&self, body: &Body, original: Option<&Original>) -> Result<bool, EmitError> {
        if self.stopped.load(Ordering::Acquire) {
            return Err(EmitError::Stopped);
        }
        let mut filling = lock(&self.filling);
        let was_empty = filling.draft.is_empty();
        if filling.draft.is_full() {
            drop(filling);
            self.dirty.notify_one();
            return Ok(false);
        }
        filling.draft.push(self.clock.now(), body, original).map_err(EmitError::Refused)?;
        filling.note(body);
        if self.calls_back != (false, false) {
            filling.note_told(body, self.calls_back);
        }
        drop(filling);
        if was_empty {
            self.dirty.notify_one();
        }
        Ok(true)
    }

    /// Stores large content beside the log and names it instead.
    async fn store_content(&self, body: Body) -> Result<Body, EmitError> {
        let Body::Message(MessageEvent::Part { message, part }) = body else { return Ok(body) };
        let part =
            outline(self.store.as_ref(), &self.scope, part).await.map_err(EmitError::Refused)?;
        Ok(Body::Message(MessageEvent::Part { message, part }))
    }
}

// === impl Filling ===

impl Filling {
    /// Notes what the owner has to know beyond the events.
    fn note(&mut self, body: &Body) {
        match body {
            Body::Message(MessageEvent::Started { message, role, .. }) => {
                self.open.insert(message.clone(), role.clone());
            }
            Body::Message(MessageEvent::Completed { message }) => {
                if let Some(role) = self.open.remove(message) {
                    self.messages.push((message.clone(), role));
                }
            }
            Body::State(StateEvent::Values(values)) => {
                self.values = Some(values.clone());
                self.latest = Some(values.clone());
            }
            _ => {}
        }
    }

    /// Notes the event that was pushed last, where the run's client is called back about its kind.
    fn note_told(&mut self, body: &Body, (values, updates): (bool, bool)) {
        let place = self.draft.len() as u64;
        match body {
            Body::Message(MessageEvent::Thought { .. })
            | Body::Tool(_)
            | Body::State(StateEvent::Custom { .. } | StateEvent::Plan(_))
                if updates =>
            {
                self.told.updates.push(place);
            }
            Body::Message(MessageEvent::Thought { .. }) => {}
            Body::Message(_)
            | Body::State(StateEvent::Output(_))
            | Body::Run(RunEvent::Result(_))
                if values =>
            {
                self.told.output = place;
            }
            _ => {}
        }
    }
}

/// A poisoned lock only says that another task of the run panicked; what it guards is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
