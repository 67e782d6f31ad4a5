mod ask_guard;
mod call;
mod permit;
mod shared;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use trilogue_domain::event::{Body, Event, Original};
use trilogue_domain::{
    AgentName, Code, Error, Interrupt, Json, Message, MessageId, ParentRun, PrincipalId,
    RequestSource, Resolution, Role, RunId, Survives, TenantId, ThreadId, ThreadKey,
};
use trilogue_store::rows::{BindingRow, CheckpointRow, Page, RunFilter};

use crate::client::{CallError, ClientProfile};
use crate::history::{self, NewestMessages};
use crate::owner::Envelope;
use crate::part::{has_large_content, outlined};
use crate::session::ThreadContext;
use crate::step::Command;
use crate::turn::{EmitError, Stopped};
use trilogue_domain::lock;

use call::follow_subagent;
pub use call::{CallRequest, ChildOutcome, ChildRun};

use ask_guard::AskGuard;

pub(crate) use shared::{SharedRun, SharedRunParts};

/// The context of a run's agent. Cheap to clone; several tasks of the run can use it.
#[derive(Clone, Debug)]
pub struct RunContext(pub(crate) Arc<SharedRun>);

/// How much an agent's own memory contains of a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemoryState {
    /// It does not know the thread.
    Unbound,
    /// It knows the thread up to a point on the path.
    Bound {
        binding: BindingRow,
        /// Messages that it has not seen: prime it with these.
        missed: NewestMessages,
    },
    /// It knows a path that the head has left, so it needs a new session.
    Rewound { binding: BindingRow },
}

// === impl RunContext ===

impl RunContext {
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.0.id
    }

    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.0.thread
    }

    /// Returns the thread's key, which is unique over all tenants.
    #[must_use]
    pub fn key(&self) -> ThreadKey {
        self.0.thread_key
    }

    /// Returns the tenant. Threads of two tenants can have the same id.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.0.scope.tenant
    }

    /// Returns the creator of the run.
    #[must_use]
    pub fn principal(&self) -> &PrincipalId {
        &self.0.principal
    }

    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.0.agent
    }

    #[must_use]
    pub fn config(&self) -> Option<&Json> {
        self.0.config.as_ref()
    }

    /// The name of the rules that its mount holds its agent's output to.
    #[must_use]
    pub fn rules(&self) -> Option<&str> {
        self.0.rules.as_deref()
    }

    /// Returns what sent the request for the run.
    #[must_use]
    pub fn source(&self) -> RequestSource {
        self.0.source
    }

    /// Whether the agent started the run, by working while no prompt was open. The next run on the thread completes it at once.
    #[must_use]
    pub fn is_started_by_agent(&self) -> bool {
        self.0.is_started_by_agent()
    }

    /// Notes that the agent has answered and that the run only waits for late output. The next run on the thread completes it at once.
    /// The log must have the answer as a custom event of the kind [`trilogue_domain::event::TURN_RESULT`], so that a restart completes it too.
    pub fn set_answered(&self) {
        self.0.set_answered();
    }

    /// Resolves when a sub-agent asks something after [`Self::set_answered`]: who waits for this run waits for no question.
    pub async fn late_output_over(&self) {
        self.0.late_output_over.cancelled().await;
    }

    /// Whether the run accepts no more events.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// Waits until a client that takes the agent's calls is connected again. Returns its profile; `None` after the time limit, and at once if the thread never
    /// had one since the server's start.
    pub async fn wait_for_client(&self, limit: Duration) -> Option<ClientProfile> {
        self.0.services.controllers.wait(self.0.thread_key, limit).await
    }

    /// Returns how long an agent has to stop when its run is cancelled.
    #[must_use]
    pub fn cancel_grace(&self) -> Duration {
        self.0.services.options.cancel_grace
    }

    /// Whether the creator of the run can answer its questions, and so can keep the agent from asking.
    #[must_use]
    pub fn can_answer(&self) -> bool {
        self.0.can_answer()
    }

    /// Adds an event to the run if the draft has room for it now and none of its content must be stored as a blob.
    /// Returns `false` otherwise: call [`Self::emit`] then.
    /// Errors: [`EmitError`] if the run was stopped, the event is larger than the log accepts, or it breaks the run's rules.
    pub fn try_emit(&self, body: &Body, original: Option<&Original>) -> Result<bool, EmitError> {
        self.0.check(body)?;
        if has_large_content(body) {
            return Ok(false);
        }
        self.0.push(body, original)
    }

    /// Adds an event to the run. Returns when it is in the draft; waits while the draft is full.
    /// Content above [`limits::INLINE_CONTENT_BYTES`] is first stored as a blob.
    /// Errors: [`EmitError`] if the run was stopped, the event is larger than the log accepts, it breaks the run's rules, or content could not be stored.
    pub async fn emit(&self, body: Body, original: Option<Original>) -> Result<(), EmitError> {
        self.0.check(&body)?;
        let body = if has_large_content(&body) {
            outlined(self.0.store.as_ref(), &self.0.scope, body).await?
        } else {
            body
        };
        loop {
            let space = self.0.space.notified();
            if self.0.push(&body, original.as_ref())? {
                self.0.audit(&body);
                return Ok(());
            }
            space.await;
        }
    }

    /// Checks whether a turn of a remote agent may continue: the other server must not decide how much is stored here, or how long it keeps this server at work. `unlogged` are the events that emitted nothing.
    ///
    /// # Errors
    /// `remote_output_too_large`.
    pub fn check_remote_output(&self, unlogged: u64) -> Result<(), Error> {
        let options = &self.0.services.options;
        let (emitted, events, bytes) =
            (self.0.emitted_output(), options.max_remote_events, options.max_remote_bytes);
        let (what, setting) = if emitted.events.saturating_add(unlogged) > events {
            (format!("{events} events"), "max_remote_events")
        } else if emitted.bytes > bytes as u64 {
            (format!("{bytes} bytes"), "max_remote_output")
        } else {
            return Ok(());
        };
        let message = format!("the agent's server sends more than {what} in one turn");
        Err(Error::new(Code::RemoteOutputTooLarge, message)
            .hint(format!("an operator may raise `runtime.{setting}`")))
    }

    /// Waits until everything emitted so far is durable.
    /// Errors: [`Stopped`] if the run was stopped or could not be stored.
    pub async fn commit(&self) -> Result<(), Stopped> {
        let (reply, done) = oneshot::channel();
        self.0.send_to_owner(Envelope::Flush { run: self.0.key, reply: Some(reply) }).await?;
        done.await.map_err(|_| Stopped)?.map_err(|_| Stopped)
    }

    /// Raises an interrupt that lives as long as this task, and waits for its end.
    /// Without its own patience it gets the server's default. Dropping the future withdraws the interrupt.
    /// Errors: [`EmitError`] if the run was stopped, or the interrupt was refused.
    pub async fn ask(&self, interrupt: Interrupt) -> Result<Resolution, EmitError> {
        self.ask_as(interrupt, false).await
    }

    /// Like [`Self::ask`]. `is_of_subagent` says whether a sub-agent of the run's agent asks: then the run does not wait for the answer.
    async fn ask_as(
        &self,
        mut interrupt: Interrupt,
        is_of_subagent: bool,
    ) -> Result<Resolution, EmitError> {
        interrupt.survives = Survives::Process;
        interrupt.patience.get_or_insert(self.0.patience);
        self.0.check_interrupt(&interrupt)?;
        let (answered, question) = AskGuard::ask(&self.0, interrupt.id.clone(), is_of_subagent)?;
        let (reply, raised) = oneshot::channel();
        let request = Envelope::Raise { run: self.0.key, interrupt: Box::new(interrupt), reply };
        let outcome = match self.0.send_to_owner(request).await {
            Ok(()) => raised.await.map_err(|_| EmitError::Stopped)?,
            Err(Stopped) => return Err(EmitError::Stopped),
        };
        if let Err(error) = outcome {
            question.disarm();
            return Err(EmitError::Refused(error));
        }
        let wait = self.0.wait_for_answer();
        let resolution = answered.await.map_err(|_| EmitError::Stopped)?;
        wait.resume().await;
        Ok(resolution)
    }

    /// Returns the thread's messages on the path to this run's base, oldest first, without this run's own. Fails if the store cannot be read.
    pub async fn history(&self) -> Result<Vec<Message>, Error> {
        history::messages(self.0.source(), &self.0.thread, self.0.base()).await
    }

    /// Returns the newest messages of [`Self::history`] that have at most `max_bytes` together. Fails if the store cannot be read.
    pub async fn newest_history(&self, max_bytes: usize) -> Result<NewestMessages, Error> {
        let (source, base) = (self.0.source(), self.0.base());
        history::newest_messages(source, &self.0.thread, base, None, max_bytes).await
    }

    /// Returns the thread's state as this run last set it, otherwise the state at this run's base. Fails if the store cannot be read.
    pub async fn load_state(&self) -> Result<Option<Json>, Error> {
        if let Some(values) = lock(&self.0.open_draft).latest.clone() {
            return Ok(Some(values));
        }
        history::values(self.0.source(), &self.0.thread, self.0.base()).await
    }

    /// Returns the thread's metadata. Fails if the store cannot be read.
    pub async fn thread_metadata(&self) -> Result<Json, Error> {
        let row = self.0.store.thread_of(&self.0.scope, self.0.thread_key).await?;
        Ok(row.map_or_else(Json::empty_object, |row| row.metadata))
    }

    /// Returns the remote session of this agent for the thread, if the agent has its own memory. Fails if the store cannot be read.
    pub async fn binding(&self) -> Result<Option<BindingRow>, Error> {
        if let Some(bound) = self.0.bound() {
            return Ok(Some(bound));
        }
        let stored = self.0.store.binding(&self.0.scope, &self.0.thread, &self.0.agent).await?;
        if stored.is_some() {
            self.0.bind(stored.clone());
        }
        Ok(stored)
    }

    /// Binds the thread to a remote session; durable when this returns, so that the binding precedes the first prompt. An already bound session keeps what it has seen; a new one has seen nothing until the run has completed.
    /// Errors: [`Stopped`] as [`Self::commit`].
    pub async fn bind(&self, remote: &str, capabilities: Json) -> Result<(), Stopped> {
        let known = self.binding().await.map_err(|_| Stopped)?;
        let told = known.filter(|row| row.remote == remote).and_then(|row| row.last_seen);
        let row = BindingRow {
            thread: self.0.thread_key,
            agent: self.0.agent.clone(),
            remote: remote.to_owned(),
            capabilities,
            last_seen: told,
        };
        self.0.bind(Some(row));
        tokio::select! {
            biased;
            done = self.commit() => done,
            // The code that ends the run may itself wait for this binding.
            () = self.0.wait_until_stopped() => Err(Stopped),
        }
    }

    /// Compares this agent's own memory of the thread with this run's base. Contains the newest missed messages that have at most `max_bytes` together. Fails if the store cannot be read.
    pub async fn memory_state(&self, max_bytes: usize) -> Result<MemoryState, Error> {
        let Some(binding) = self.binding().await? else { return Ok(MemoryState::Unbound) };
        let store = self.0.store.as_ref();
        let (scope, thread) = (&self.0.scope, &self.0.thread);
        let base = self.0.base();
        if binding.last_seen == base {
            // The usual case: the session was never replaced.
            return Ok(MemoryState::Bound { binding, missed: NewestMessages::default() });
        }
        let path = history::path(store, scope, thread, base).await?;
        let told = |row: &CheckpointRow| Some(row.key) == binding.last_seen;
        if binding.last_seen.is_some() && !path.iter().any(told) {
            return Ok(MemoryState::Rewound { binding });
        }
        let seen = binding.last_seen;
        let missed =
            history::newest_messages(self.0.source(), thread, base, seen, max_bytes).await?;
        Ok(MemoryState::Bound { binding, missed })
    }

    #[must_use]
    pub fn client(&self) -> Option<ClientProfile> {
        self.0.services.controllers.profile(self.0.thread_key)
    }

    /// Calls the controlling client. Waits up to [`crate::CONTROLLER_GONE`] for a new one if it is gone, and calls that one again.
    /// Fails with the client's refusal; [`CallError::not_connected`] without a client.
    pub async fn call_client(&self, method: &str, params: Json) -> Result<Json, CallError> {
        self.0.services.controllers.call(self.0.thread_key, method, params).await
    }

    #[must_use]
    pub fn thread_context(&self) -> ThreadContext {
        ThreadContext {
            services: Arc::clone(&self.0.services),
            thread: self.0.thread_key,
            id: self.0.thread.clone(),
            scope: self.0.scope.clone(),
            agent: self.0.agent.clone(),
            parent: None,
        }
    }

    /// Starts a run for the work of a sub-agent of this run's agent, as [`ThreadContext::start_agent_run`]. This run asks its questions too, and cancels it when it is cancelled itself. The end of this run does not end it.
    /// Fails as [`ThreadContext::start_agent_run`].
    pub async fn start_subagent_run(&self, thread: &ThreadContext) -> Result<RunId, Error> {
        let parent = ParentRun { run: self.0.id.clone(), thread: self.0.thread.clone() };
        let port = self.0.services.call_chains.port()?;
        let row = port.start_agent_run(thread, Some(parent)).await?;
        let id = row.id.clone();
        tokio::spawn(follow_subagent(Arc::clone(&self.0), row));
        Ok(id)
    }

    /// Cancels this run, because its agent reports that it was cancelled there. Returns when that is durable. Fails if the run has ended.
    pub async fn cancel(&self) -> Result<(), Stopped> {
        let (reply, done) = oneshot::channel();
        let command = Command::Cancel { run: self.0.key, reason: None, roll_back: false };
        let command = Box::new(command);
        self.0.send_to_owner(Envelope::Change { command, reply }).await?;
        done.await.map_err(|_| Stopped)?.map(drop).map_err(|_| Stopped)
    }

    /// Records another id that the agent has for a message of this run. Stored with the next event.
    pub fn alias(&self, message: &MessageId, alias: &MessageId) {
        self.0.alias(message, alias);
    }

    /// Sets or clears the agent's title of the thread. Stored with the next event, as one line of at most [`trilogue_domain::limits::MAX_TITLE_CHARS`] characters.
    pub fn title(&self, title: Option<&str>) {
        self.0.title(title);
    }

    /// Whether the server stops: the run of an agent that is active elsewhere is then left as it is.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.services.draining.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Keeps what the agent needs to find this run again, where it is active, after a restart of the server: then it gets [`crate::Turn::Rejoin`]. Stored soon; a run whose agent kept nothing ends as lost.
    pub fn keep(&self, saved: Json) {
        self.0.keep(saved);
    }

    /// Like [`Self::keep`], but stored with the next event, which needs no append of its own. [`Self::store_kept`] stores it before.
    pub fn keep_with_next_event(&self, saved: Json) {
        self.0.keep_with_next_event(saved);
    }

    /// Stores soon what [`Self::keep_with_next_event`] has kept, unless an event did.
    pub fn store_kept(&self) {
        self.0.store_kept();
    }

    /// Continues an unfinished message that this run began before a restart.
    pub fn continue_message(&self, message: &MessageId, role: &Role) {
        self.0.continue_message(message.clone(), role.clone());
    }

    /// Calls `each` with every logged event of this run, in order. Fails if the store cannot be read.
    pub async fn each_event(&self, each: impl FnMut(&Event) + Send) -> Result<(), Error> {
        history::each_event(self.0.store.as_ref(), self.0.thread_key, self.0.key, each).await
    }

    /// Whether a message of the thread has this id or alias. This run's own messages can be missing until they are stored. Fails if the store cannot be read.
    pub async fn has_message(&self, id: &MessageId) -> Result<bool, Error> {
        let Some(row) = self.0.thread_row().await? else { return Ok(false) };
        Ok(self.0.store.message_in(row.key, id).await?.is_some())
    }

    /// Whether an id belongs to a message that is not from this run's agent: of another run, or of this run's input. Fails if the store cannot be read.
    pub async fn is_taken(&self, id: &MessageId) -> Result<bool, Error> {
        let Some(row) = self.0.thread_row().await? else { return Ok(false) };
        let found = self.0.store.message_in(row.key, id).await?;
        Ok(found.is_some_and(|found| found.run != self.0.key || found.role.is_user()))
    }

    /// Whether the thread has no other run. Fails if the store cannot be read.
    pub async fn is_first(&self) -> Result<bool, Error> {
        let filter = RunFilter { thread: Some(self.0.thread.clone()), ..RunFilter::default() };
        let page = Page { limit: 2, ..Page::default() };
        Ok(self.0.store.runs(&self.0.scope, &filter, &page).await?.rows.len() < 2)
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the run is asked to stop.
    pub async fn cancelled(&self) {
        self.0.wait_until_cancelled().await;
    }
}
