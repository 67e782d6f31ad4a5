//! Agents that keep sessions of their own, and what happens in them outside of runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::event::Original;
use trilogue_domain::{AgentName, Body, Json, Scope, TenantId, ThreadId, ThreadKey};
use trilogue_store::Draft;
use trilogue_store::rows::BindingRow;

use crate::backend::Stopped;
use crate::client::{CallError, Client, ClientProfile};
use crate::owner::Envelope;
use crate::part::{check_part, outlined};
use crate::services::Services;
use crate::step::Command;
use crate::submit::stopped;

/// What a client of the agent's own dialect can do with it beyond runs.
#[async_trait]
pub trait Sessions: Send + Sync + fmt::Debug {
    /// The dialect that the agent speaks, and its version.
    fn dialect(&self) -> (&str, u32);

    /// What the agent says of itself to such a client: the result of its first request, as it came. One that is remembered is given without a process; else the agent is started where none runs for such clients.
    ///
    /// While a call of `caller` is in flight, here and below, what the agent asks about that very call is asked of `caller`.
    ///
    /// # Errors
    /// What the agent refuses with, or why it could not be started.
    async fn meet(&self, caller: &Arc<dyn Client>) -> Result<Json, CallError>;

    /// Opens the agent's session of a thread, or finds it open as it is to be: a new one where the thread is not bound, else the one it is bound to. `params` is what the client gave in the words of its dialect, session id cut out: working directory, servers for tools. The result is the agent's own, as it came, without its session id.
    ///
    /// # Errors
    /// As [`Sessions::meet`].
    async fn open(
        &self,
        thread: &ThreadContext,
        caller: &Arc<dyn Client>,
        params: Json,
    ) -> Result<Json, CallError>;

    /// Puts a client's request through to the agent: into the session of a thread, where `thread` names one.
    ///
    /// # Errors
    /// What the agent refuses with.
    async fn call(
        &self,
        thread: Option<&ThreadContext>,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError>;

    /// Puts a client's notification through to the agent. One that cannot be delivered is let go by.
    async fn notify(
        &self,
        thread: Option<&ThreadContext>,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    );

    /// Ends what the agent holds for a thread while nothing is going on in it. It can be opened again.
    async fn close(&self, thread: &ThreadContext);

    /// Removes what was kept for a thread that is erased: its process, its captured output, its folder where we made it. Who erases waits for it, some seconds at most. The thread is gone already: nothing can be noted in it or read of it.
    async fn forget(&self, thread: &ThreadContext);
}

/// A thread, for an agent that tells or remembers something of it outside of runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ThreadContext {
    pub(crate) services: Arc<Services>,
    pub(crate) thread: ThreadKey,
    pub(crate) id: ThreadId,
    pub(crate) scope: Scope,
    pub(crate) agent: AgentName,
}

// === impl ThreadContext ===

impl ThreadContext {
    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.id
    }

    /// The thread's key, which is unique over all tenants.
    #[must_use]
    pub fn key(&self) -> ThreadKey {
        self.thread
    }

    /// Whose thread it is. Threads of two tenants may have the same id.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.scope.tenant
    }

    /// The agent's name in this server.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// The thread's controller, where there is one: what it can do.
    #[must_use]
    pub fn client(&self) -> Option<ClientProfile> {
        self.services.controllers.profile(self.thread)
    }

    /// Asks the thread's controller, as [`crate::RunContext::call_client`].
    ///
    /// # Errors
    /// What the client refuses with; [`CallError::gone`] where there is none.
    pub async fn call_client(&self, method: &str, params: Json) -> Result<Json, CallError> {
        self.services.controllers.call(self.thread, method, params).await
    }

    /// Adds an event that belongs to the thread and to no run; durable when this returns. Allowed while a run is at work too: it stands behind what that run has emitted so far.
    ///
    /// # Errors
    /// When the thread is gone, the event is too large, or it cannot be stored.
    pub async fn note(&self, body: Body, original: Option<Original>) -> Result<()> {
        let services = &self.services;
        let store = services.store.as_ref();
        check_part(&body, services.options.max_part_metadata_bytes)?;
        let body =
            if original.is_none() { outlined(store, &self.scope, body).await? } else { body };
        let mut draft = Draft::default();
        draft.push(services.clock.now(), &body, original.as_ref())?;
        self.change(Command::Note { draft, bound: None }).await
    }

    /// Whether the thread is there: one that was erased is not, also where another has its id now.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn is_there(&self) -> Result<bool> {
        let found = self.services.store.thread(&self.scope, &self.id).await?;
        Ok(found.is_some_and(|row| row.key == self.thread))
    }

    /// How the agent knows the thread.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn binding(&self) -> Result<Option<BindingRow>> {
        self.services.store.binding(&self.scope, &self.id, &self.agent).await
    }

    /// Binds the thread to a session at the other side; durable when this returns. A session that it is bound to already knows what it was told before; a new one knows nothing.
    ///
    /// # Errors
    /// [`Stopped`] where it could not be stored.
    pub async fn bind(&self, remote: &str, capabilities: Json) -> Result<(), Stopped> {
        // What it was told is for the thread's owner to say: a run may be about to note more.
        let row = BindingRow {
            thread: self.thread,
            agent: self.agent.clone(),
            remote: remote.to_owned(),
            capabilities,
            told: None,
        };
        let command = Command::Note { draft: Draft::default(), bound: Some(row) };
        self.change(command).await.map_err(|_| Stopped)
    }

    /// Has the thread's owner carry out a command.
    async fn change(&self, command: Command) -> Result<()> {
        let (reply, done) = oneshot::channel();
        let request = Envelope::Change { command: Box::new(command), reply };
        self.services.send(self.thread, request).await?;
        done.await.map_err(|_| stopped())?.map(drop)
    }
}
