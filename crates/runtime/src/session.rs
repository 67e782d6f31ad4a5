//! Agents that keep sessions of their own, and what happens in them outside of runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::event::Original;
use trilogue_domain::{AgentName, Body, Json, Scope, ThreadId, ThreadKey};
use trilogue_store::rows::BindingRow;

use crate::backend::Stopped;
use crate::client::{CallError, ClientProfile};
use crate::services::Services;

/// What a client of the agent's own dialect can do with it beyond runs.
#[async_trait]
pub trait Sessions: Send + Sync + fmt::Debug {
    /// The dialect that the agent speaks, and its version.
    fn dialect(&self) -> (&str, u32);

    /// What the agent says of itself to a client of this profile: the result of its first request, as it came. Starts the agent where none runs for such clients.
    ///
    /// # Errors
    /// What the agent refuses with, or why it could not be started.
    async fn meet(&self, client: &ClientProfile) -> Result<Json, CallError>;

    /// Opens the agent's session of a thread, or finds it open: a new one where the thread is not bound, else the one it is bound to. The result is the agent's own, as it came, without its session id.
    ///
    /// # Errors
    /// As [`Sessions::meet`].
    async fn open(&self, thread: &ThreadContext, opening: Opening) -> Result<Json, CallError>;

    /// Puts a client's request through to the agent: into the session of a thread, where `thread` names one.
    ///
    /// # Errors
    /// What the agent refuses with.
    async fn call(
        &self,
        thread: Option<&ThreadContext>,
        client: &ClientProfile,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError>;

    /// Puts a client's notification through to the agent. One that cannot be delivered is let go by.
    async fn notify(
        &self,
        thread: Option<&ThreadContext>,
        client: &ClientProfile,
        method: &str,
        params: Json,
    );

    /// Ends what the agent holds for a thread while nothing is going on in it. It can be opened again.
    async fn close(&self, thread: &ThreadId);

    /// Removes what was kept for a thread that is erased: its process, its captured output, its folder where we made it.
    async fn forget(&self, thread: &ThreadId);
}

/// How a session is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Whom it is opened for.
    pub client: ClientProfile,
    /// What the client gave, in the words of its dialect, session id cut out: working directory, servers for tools.
    pub params: Json,
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

    /// The agent's name in this server.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// Adds an event that belongs to the thread and to no run; durable when this returns. Allowed while a run is at work too.
    ///
    /// # Errors
    /// When the thread is gone, the event is too large, or it cannot be stored.
    pub async fn note(&self, body: Body, original: Option<Original>) -> Result<()> {
        let _ = (&self.services, self.thread, body, original);
        Ok(())
    }

    /// How the agent knows the thread.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn binding(&self) -> Result<Option<BindingRow>> {
        self.services.store.binding(&self.scope, &self.id, &self.agent).await
    }

    /// Binds the thread to a session at the other side; durable when this returns.
    ///
    /// # Errors
    /// [`Stopped`] where it could not be stored.
    pub async fn bind(&self, remote: &str, capabilities: Json) -> Result<(), Stopped> {
        let _ = (remote, capabilities);
        Ok(())
    }
}
