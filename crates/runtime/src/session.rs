//! Agents that keep sessions of their own, and their work outside of runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, Original, StateEvent};
use trilogue_domain::{
    AgentName, Body, Event, Json, MessageId, Role, RunId, Scope, TenantId, ThreadId, ThreadKey,
};
use trilogue_store::Draft;
use trilogue_store::rows::{BindingRow, MessageRow};
use uuid::Uuid;

use crate::client::{CallError, Client, ClientProfile};
use crate::log_search::newest_events;
use crate::owner::{Envelope, stopped_error};
use crate::part::{check_part, outlined};
use crate::services::Services;
use crate::step::Command;
use crate::turn::Stopped;

/// The operations of a client of the agent's own dialect beyond runs.
#[async_trait]
pub trait Sessions: Send + Sync + fmt::Debug {
    fn dialect(&self) -> (&str, u32);

    /// Whether sessions work in the folder that their client or their run names.
    fn takes_folder(&self) -> bool {
        false
    }

    /// Returns the agent's unchanged response to such a client's first request. A cached response needs no process; otherwise the agent is started if none runs for such clients.
    ///
    /// During a call for `caller`, here and below, the agent's requests about that call go to `caller`.
    /// Fails with the agent's refusal, or the reason why it could not be started.
    async fn greet(&self, caller: &Arc<dyn Client>) -> Result<Json, CallError>;

    /// Opens the agent's session of a thread, or reuses an open one: the bound session, or a new one if the thread is not bound. `params` are the client's in its dialect without session id: working directory, tool servers. The result is the agent's own, without its session id.
    /// Fails as [`Sessions::greet`].
    async fn open(
        &self,
        thread: &ThreadContext,
        caller: &Arc<dyn Client>,
        params: Json,
    ) -> Result<Json, CallError>;

    /// Forwards a client's request to the agent: into the session of a thread, if `thread` names one.
    /// Fails with the agent's refusal.
    async fn call(
        &self,
        thread: Option<&ThreadContext>,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError>;

    /// Forwards a client's notification to the agent. Drops a notification that cannot be delivered.
    async fn notify(
        &self,
        thread: Option<&ThreadContext>,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    );

    /// Releases what the agent holds for a thread while no turn runs in it. The session can be opened again.
    async fn close(&self, thread: &ThreadContext);

    /// Removes everything kept for an erased thread: its process, its captured output, the folder that the server created. The erasure waits a few seconds at most. The thread is already removed: nothing of it can be read or logged.
    async fn forget(&self, thread: &ThreadContext);
}

/// A thread, for events of an agent outside of runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ThreadContext {
    pub(crate) services: Arc<Services>,
    pub(crate) thread: ThreadKey,
    pub(crate) id: ThreadId,
    pub(crate) scope: Scope,
    pub(crate) agent: AgentName,
    /// The thread of the parent, if this is a sub-agent's.
    pub(crate) parent: Option<Arc<ThreadContext>>,
}

/// What is known of a sub-agent when its thread is created.
#[derive(Clone, Debug)]
pub struct NewSubagent {
    /// What tells it apart from the parent's other sub-agents: the same for the same sub-agent, so that a restart finds its thread again.
    pub key: Uuid,
    pub title: Option<String>,
    /// The run in which its agent announced it.
    pub run: Option<RunId>,
}

/// The thread of a sub-agent.
#[derive(Clone, Debug)]
pub struct SubagentThread {
    pub context: ThreadContext,
    /// Whether this call created it.
    pub is_new: bool,
}

// === impl ThreadContext ===

impl ThreadContext {
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.id
    }

    /// Returns the thread's key, which is unique over all tenants.
    #[must_use]
    pub fn key(&self) -> ThreadKey {
        self.thread
    }

    /// Returns the tenant. Threads of two tenants can have the same id.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.scope.tenant
    }

    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// Returns the epoch under which this node owns the thread; it grows with each further owner. Loads the thread if necessary.
    /// Errors: `thread_elsewhere` while another node owns it, and those of loading it.
    pub async fn epoch(&self) -> Result<u64> {
        if let Some(epoch) = self.services.epoch(self.thread) {
            return Ok(epoch);
        }
        self.services.load(self.thread).await?;
        self.services.epoch(self.thread).ok_or_else(stopped_error)
    }

    #[must_use]
    pub fn client(&self) -> Option<ClientProfile> {
        self.services.controllers.profile(self.thread)
    }

    /// Calls the thread's controller, like [`crate::RunContext::call_client`].
    /// Fails with the client's refusal; [`CallError::not_connected`] without a client.
    pub async fn call_client(&self, method: &str, params: Json) -> Result<Json, CallError> {
        self.services.controllers.call(self.thread, method, params).await
    }

    /// Starts a run for what the agent does while no prompt is open, and returns its id. The agent's backend gets the run like any other, with an empty input.
    /// Errors: `thread_busy` while another run has the turn or waits for it; `invalid_request` on a thread that exists for one run only; `thread_not_found`, `overloaded`, `shutting_down`, and what storing can fail with.
    pub async fn start_agent_run(&self) -> Result<RunId> {
        Ok(self.services.call_chains.port()?.start_agent_run(self, None).await?.id)
    }

    /// Adds an event that belongs to the thread and to no run; durable when this returns. While a run is active, the event follows that run's events so far.
    /// Fails if the thread was removed, the event is too large, or it cannot be stored.
    pub async fn append_event(&self, body: Body, original: Option<Original>) -> Result<()> {
        self.append_event_with(body, original, None).await
    }

    /// Like [`Self::append_event`], for an event by which the agent sets or clears its title of the thread, which is kept as in [`crate::RunContext::title`].
    pub async fn append_title_event(
        &self,
        body: Body,
        original: Option<Original>,
        title: Option<&str>,
    ) -> Result<()> {
        let title = title.and_then(trilogue_domain::thread::title);
        self.append_event_with(body, original, Some(title)).await
    }

    async fn append_event_with(
        &self,
        body: Body,
        original: Option<Original>,
        title: Option<Option<String>>,
    ) -> Result<()> {
        let services = &self.services;
        let store = services.store.as_ref();
        check_part(&body, services.options.max_part_metadata_bytes)?;
        let body = outlined(store, &self.scope, body).await?;
        let mut draft = Draft::default();
        draft.push(services.clock.now(), &body, original.as_ref())?;
        self.change(Command::AppendOutsideRun { draft, bound: None, title, begun: None }).await
    }

    /// Begins a message that the agent writes outside of runs, after this run's messages. Its id can be looked up from then on. Returns `false` and changes nothing if the thread has the message, or no such run.
    /// Fails as [`Self::append_event`].
    pub async fn begin_message(&self, id: &MessageId, behind: &RunId) -> Result<bool> {
        let role = Role::NamedAgent(self.agent.as_str().into());
        let started =
            MessageEvent::Started { message: id.clone(), role: role.clone(), times: None };
        let mut draft = Draft::default();
        draft.push(self.services.clock.now(), &Body::Message(started), None)?;
        self.begin(id, behind, role, draft).await
    }

    /// Like [`Self::begin_message`], for a thought, of which only the pieces are events.
    pub async fn begin_thought(&self, id: &MessageId, behind: &RunId) -> Result<bool> {
        let role = Role::NamedAgent(self.agent.as_str().into());
        self.begin(id, behind, role, Draft::default()).await
    }

    async fn begin(
        &self,
        id: &MessageId,
        behind: &RunId,
        role: Role,
        draft: Draft,
    ) -> Result<bool> {
        let store = self.services.store.as_ref();
        let thread = store.thread(&self.scope, &self.id).await?;
        let run = store.run(&self.scope, behind).await?;
        let (Some(thread), Some(run)) = (thread, run) else { return Ok(false) };
        let is_free = thread.key == self.thread
            && run.thread == self.thread
            && store.message_in(thread.key, id).await?.is_none();
        if !is_free {
            return Ok(false);
        }
        let row = MessageRow {
            id: id.clone(),
            tenant: self.scope.tenant.clone(),
            thread: self.thread,
            run: run.key,
            role,
            position: 0,
            alias: None,
        };
        let begun = Some(Box::new(row));
        self.change(Command::AppendOutsideRun { draft, bound: None, title: None, begun }).await?;
        Ok(true)
    }

    /// Whether the thread exists. An erased one does not, even if a new thread has its id. Fails if the store cannot be read.
    pub async fn exists(&self) -> Result<bool> {
        let found = self.services.store.thread(&self.scope, &self.id).await?;
        Ok(found.is_some_and(|row| row.key == self.thread))
    }

    /// Whether another run can start on the thread: it exists, and the server does not stop.
    pub async fn can_run(&self) -> bool {
        let is_stopping = self.services.draining.load(Ordering::Acquire);
        !is_stopping && matches!(self.exists().await, Ok(true))
    }

    /// Calls `each` with each state of these kinds in the newest 64 MiB of the thread's log, oldest first: its kind, its data, and whether it is ours and not a peer's.
    /// Fails if the store cannot be read.
    pub async fn each_state(
        &self,
        kinds: &[&str],
        mut each: impl FnMut(&str, &Json, bool) + Send,
    ) -> Result<()> {
        let store = &self.services.store;
        let Some(row) = store.thread(&self.scope, &self.id).await? else { return Ok(()) };
        if row.key != self.thread {
            return Ok(());
        }
        let pick = |event: &Event| match &event.body {
            Body::State(StateEvent::Custom { kind, data }) if kinds.contains(&kind.as_str()) => {
                Some((kind.clone(), data.clone(), event.original.is_none()))
            }
            _ => None,
        };
        let found = newest_events(store.as_ref(), row.key, kinds, pick, |_| false).await?;
        for (kind, data, is_ours) in &found {
            each(kind, data, *is_ours);
        }
        Ok(())
    }

    /// Returns the agent's session for the thread. Fails if the store cannot be read.
    pub async fn binding(&self) -> Result<Option<BindingRow>> {
        self.services.store.binding(&self.scope, &self.id, &self.agent).await
    }

    /// Binds the thread to a remote session; durable when this returns. An already bound session keeps what it has seen; a new one has seen nothing. Fails with [`Stopped`] if the binding could not be stored.
    pub async fn bind(&self, remote: &str, capabilities: Json) -> Result<(), Stopped> {
        // The owner adds what the agent has seen, because a run may be about to change it.
        let row = BindingRow {
            thread: self.thread,
            agent: self.agent.clone(),
            remote: remote.to_owned(),
            capabilities,
            last_seen: None,
        };
        let draft = Draft::default();
        let command =
            Command::AppendOutsideRun { draft, bound: Some(row), title: None, begun: None };
        self.change(command).await.map_err(|_| Stopped)
    }

    pub(crate) async fn change(&self, command: Command) -> Result<()> {
        let (reply, done) = oneshot::channel();
        let request = Envelope::Change { command: Box::new(command), reply };
        self.services.send(self.thread, request).await?;
        done.await.map_err(|_| stopped_error())?.map(drop)
    }
}
