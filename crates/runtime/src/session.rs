//! Agents that keep sessions of their own, and what happens in them outside of runs.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, Original, StateEvent};
use trilogue_domain::{
    AgentName, Body, Json, MessageId, Role, RunId, Scope, TenantId, ThreadId, ThreadKey,
};
use trilogue_store::rows::{BindingRow, MessageRow};
use trilogue_store::{Draft, Frame, Range};

use crate::client::{CallError, Client, ClientProfile};
use crate::owner::{Envelope, stopped};
use crate::part::{check_part, outlined};
use crate::services::Services;
use crate::step::Command;
use crate::turn::Stopped;

/// How much of a log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// How much of a log is looked through for the states that it holds, in bytes.
const MAX_LOOKED_THROUGH_BYTES: usize = 64 * 1024 * 1024;
/// How many events are looked through at once for that, the newest first.
const LOOKED_THROUGH_EVENTS: u64 = 1_024;

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
        self.note_with(body, original, None).await
    }

    /// The same, of an event by which the agent says what it calls the thread, or that it calls it nothing any more. That is kept as [`crate::RunContext::title`] keeps it.
    ///
    /// # Errors
    /// As [`Self::note`].
    pub async fn note_title(
        &self,
        body: Body,
        original: Option<Original>,
        title: Option<&str>,
    ) -> Result<()> {
        let title = title.and_then(trilogue_domain::thread::title);
        self.note_with(body, original, Some(title)).await
    }

    async fn note_with(
        &self,
        body: Body,
        original: Option<Original>,
        title: Option<Option<String>>,
    ) -> Result<()> {
        let services = &self.services;
        let store = services.store.as_ref();
        check_part(&body, services.options.max_part_metadata_bytes)?;
        let body =
            if original.is_none() { outlined(store, &self.scope, body).await? } else { body };
        let mut draft = Draft::default();
        draft.push(services.clock.now(), &body, original.as_ref())?;
        self.change(Command::Note { draft, bound: None, title, begun: None }).await
    }

    /// Begins a message that the agent says outside of runs, behind what this run has said: it is found by its id from then on, as those of the run are. `false` where the thread has the message, or has no such run; then nothing is noted.
    ///
    /// # Errors
    /// As [`Self::note`].
    pub async fn begin_message(&self, id: &MessageId, behind: &RunId) -> Result<bool> {
        let services = &self.services;
        let store = services.store.as_ref();
        let thread = store.thread(&self.scope, &self.id).await?;
        let run = store.run(&self.scope, behind).await?;
        let (Some(thread), Some(run)) = (thread, run) else { return Ok(false) };
        let is_free = thread.key == self.thread
            && run.thread == self.thread
            && store.message_in(&thread, id).await?.is_none();
        if !is_free {
            return Ok(false);
        }
        let role = Role::NamedAgent(self.agent.as_str().into());
        let mut draft = Draft::default();
        let started =
            MessageEvent::Started { message: id.clone(), role: role.clone(), times: None };
        draft.push(services.clock.now(), &Body::Message(started), None)?;
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
        self.change(Command::Note { draft, bound: None, title: None, begun }).await?;
        Ok(true)
    }

    /// Whether the thread is there: one that was erased is not, also where another has its id now.
    ///
    /// # Errors
    /// As reading the store.
    pub async fn is_there(&self) -> Result<bool> {
        let found = self.services.store.thread(&self.scope, &self.id).await?;
        Ok(found.is_some_and(|row| row.key == self.thread))
    }

    /// Gives each state of these kinds that the newest 64 MiB of the thread's log hold, from the oldest to the newest: its kind, its data, and whether it is ours, where the others came from a peer.
    ///
    /// # Errors
    /// As reading the store.
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
        let finders: Vec<_> = kinds.iter().map(memchr::memmem::Finder::new).collect();
        let (mut found, mut looked) = (Vec::new(), 0);
        let mut until = *store.tail(row.key).committed.borrow();
        while until > 0 && looked < MAX_LOOKED_THROUGH_BYTES {
            let from = until.saturating_sub(LOOKED_THROUGH_EVENTS);
            let (mut after, mut part) = (from, Vec::new());
            while after < until {
                let range = Range { run: None, after, max_bytes: READ_BYTES };
                let frames = store.frames(&row, range).await?;
                let Some(last) = frames.last().map(|frame| frame.last()) else { break };
                looked += frames.iter().map(|frame| frame.bytes().len()).sum::<usize>();
                let may =
                    |frame: &&Arc<Frame>| finders.iter().any(|it| it.find(frame.bytes()).is_some());
                for frame in frames.iter().filter(may) {
                    for event in frame.events()? {
                        if event.number > after
                            && event.number <= until
                            && let Body::State(StateEvent::Custom { kind, data }) = &event.body
                            && kinds.contains(&kind.as_str())
                        {
                            part.push((kind.clone(), data.clone(), event.original.is_none()));
                        }
                    }
                }
                after = last;
            }
            found.push(part);
            until = from;
        }
        for (kind, data, is_ours) in found.iter().rev().flatten() {
            each(kind, data, *is_ours);
        }
        Ok(())
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
            last_seen: None,
        };
        let draft = Draft::default();
        let command = Command::Note { draft, bound: Some(row), title: None, begun: None };
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
