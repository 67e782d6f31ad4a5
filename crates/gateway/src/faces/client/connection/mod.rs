//! One client's connection: the state that all code serving this client shares.

pub(crate) mod cancels;
pub(crate) mod children;
pub(crate) mod command;
mod elsewhere;
pub(crate) mod origin;
pub(crate) mod pending;
pub(crate) mod queue;
pub(crate) mod requests;
pub(crate) mod session;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::error::Result;
use trilogue_domain::lock;
use trilogue_domain::{AgentName, Principal, Right, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{AttachGuard, Backend, ClientProfile, Runtime};
use trilogue_store::Read;
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::{
    ClientCapabilities, McpCapabilities, PromptCapabilities, Rules, SystemPromptCapabilities,
};
use trilogue_wire::jsonrpc::Id;
use trilogue_wire::native::local::{AttachCapability, Control};

use self::children::AnnouncedChildren;
use self::origin::ClientOrigin;
use self::pending::PendingReplies;
use self::queue::SessionQueues;
use self::requests::OpenRequests;
use self::session::SessionPresence;
use super::options::{ClientOptions, MessageIdFormat};
use super::state::State;
use super::wire::lines::{MethodResult, OutgoingLines};
use super::wire::outbox::{Batch, Outbox, OutboxBudget};
use crate::core::connected_clients::ConnectedClientGuard;
use crate::core::not_found::no_thread;

/// How many sessions a client may be cancelling at once without having them open. Further cancellations are dropped.
const MAX_FOREIGN_CANCELS: usize = 16;

/// The open requests of a program on this machine may hold this many lines of the greatest length together. Those of a client of the network hold one.
const MAX_LOCAL_REQUEST_LINES: usize = 8;

#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) state: Arc<State>,
    /// Where the client is, and what it may do.
    pub(crate) origin: ClientOrigin,
    pub(crate) principal: Arc<Principal>,
    pub(crate) agent: AgentName,
    /// Whether the other end is our proxy, which reads control lines and sends extras.
    pub(crate) numbered: bool,
    /// The client's working directory, if it is known before a session is opened.
    pub(crate) folder: Option<PathBuf>,
    /// Identifies the client across its connections.
    pub(crate) client: Option<String>,
    /// How the client continues over the network, as `initialize` announces it.
    pub(crate) attach: Option<AttachCapability>,
    pub(crate) outbox: Outbox,
    pub(crate) pending: PendingReplies,
    pub(crate) queues: Arc<SessionQueues>,
    pub(crate) children: AnnouncedChildren,
    /// Permits for notifications that the agent has not received yet.
    pub(crate) notifications: Arc<Semaphore>,
    pub(crate) requests: OpenRequests,
    /// Whether the client has sent `initialize`.
    pub(crate) has_sent_initialize: AtomicBool,
    handshake: Mutex<Option<Arc<Handshake>>>,
    /// Its entry in the list of connected clients.
    pub(crate) listing: Option<ConnectedClientGuard>,
    /// Permits for cancelling sessions that the client does not have open.
    pub(crate) foreign_cancels: Arc<Semaphore>,
    /// Ends all work for the client.
    pub(crate) closed: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// What both sides declared in `initialize`.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) profile: ClientProfile,
    pub(crate) client: ClientCapabilities,
    /// What the agent accepts in prompts.
    pub(crate) prompt: PromptCapabilities,
    /// Which tool servers the agent can reach.
    pub(crate) servers: McpCapabilities,
    /// The system prompts that the agent takes, if any.
    pub(crate) system_prompt: Option<SystemPromptCapabilities>,
    /// Whether the agent itself has `session/options`.
    pub(crate) has_options: bool,
    /// The response that the client received.
    pub(crate) result: Vec<u8>,
}

// === impl ClientConnection ===

impl ClientConnection {
    pub(crate) fn new(state: Arc<State>, origin: ClientOrigin, agent: AgentName) -> Self {
        let options = &state.options;
        let (closed, tasks) = (CancellationToken::new(), TaskTracker::new());
        let lines = if origin.is_local() { MAX_LOCAL_REQUEST_LINES } else { 1 };
        let max_request_bytes = options.max_line_bytes.saturating_mul(lines);
        let outbox = Outbox::new(options.max_outbox_messages, options.max_outbox_bytes);
        let outbox = match origin.is_local() {
            true => outbox,
            false => outbox.with_budget(OutboxBudget {
                budget: Arc::clone(&state.response_budget),
                principal: Arc::clone(origin.principal()),
                closed: closed.clone(),
            }),
        };
        Self {
            outbox,
            principal: Arc::clone(origin.principal()),
            origin,
            agent,
            numbered: false,
            folder: None,
            client: None,
            attach: None,
            pending: PendingReplies::default(),
            queues: SessionQueues::new(tasks.clone(), closed.clone(), state.panics.clone()),
            children: AnnouncedChildren::default(),
            notifications: Arc::new(Semaphore::new(options.max_requests)),
            requests: OpenRequests::new(options.max_requests, max_request_bytes),
            has_sent_initialize: AtomicBool::new(false),
            handshake: Mutex::default(),
            listing: None,
            foreign_cancels: Arc::new(Semaphore::new(MAX_FOREIGN_CANCELS)),
            closed,
            tasks,
            state,
        }
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.state.options
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.state.runtime
    }

    pub(crate) fn read(&self) -> &Arc<dyn Read> {
        &self.state.read
    }

    pub(crate) fn rules(&self) -> Rules {
        if self.options().strict { Rules::Strict } else { Rules::Lenient }
    }

    pub(crate) fn id_format(&self) -> mapping::IdFormat {
        match self.options().message_id_format {
            MessageIdFormat::Any => mapping::IdFormat::Any,
            MessageIdFormat::Uuid => mapping::IdFormat::Uuid,
        }
    }

    /// Whether the client has this right. Without `run` it observes; without `answer` it is asked nothing.
    pub(crate) fn may(&self, right: Right) -> bool {
        self.principal.require(right).is_ok()
    }

    /// Returns what the client counts for while it has a session of this thread open. `attached` is absent for a client that the agent does not call there.
    pub(crate) fn presence(
        &self,
        thread: &ThreadRow,
        attached: Option<&AttachGuard>,
    ) -> SessionPresence {
        let answering = || self.runtime().active(thread.key);
        let open = || self.state.open_sessions.open(thread.key);
        let listed = |client: &ConnectedClientGuard| {
            client.add_session(thread.key, thread.id.clone(), attached.map(AttachGuard::view))
        };
        SessionPresence::new(
            self.may(Right::Answer).then(answering),
            self.may(Right::Run).then(open),
            self.listing.as_ref().map(listed),
        )
    }

    /// Returns the folders of this machine that the client may choose although it is elsewhere.
    pub(crate) fn opened_folders(&self) -> Vec<PathBuf> {
        self.origin.folders(&self.state.opened_folders)
    }

    /// Returns the agent's backend. Errors: `agent_not_found`.
    pub(crate) fn backend(&self) -> Result<&Arc<dyn Backend>> {
        self.runtime().backend(&self.agent)
    }

    /// Whether the agent speaks this protocol itself and has sessions of its own.
    pub(crate) fn is_hosted(&self) -> bool {
        self.backend().is_ok_and(|backend| backend.sessions().is_some())
    }

    /// Returns the handshake, or `None` before `initialize`.
    pub(crate) fn handshake(&self) -> Option<Arc<Handshake>> {
        lock(&self.handshake).clone()
    }

    pub(crate) fn set_handshake(&self, handshake: Handshake) {
        *lock(&self.handshake) = Some(Arc::new(handshake));
    }

    /// Returns the thread of a session id if the client can see it.
    /// Errors: `thread_not_found`.
    pub(crate) async fn thread(&self, session: &str) -> Result<ThreadRow> {
        let Ok(id) = ThreadId::parse(session) else { return Err(no_thread(session)) };
        let found = self.read().named_thread(&self.principal.scope(), &id).await?;
        found.filter(|row| !row.ephemeral).ok_or_else(|| no_thread(session))
    }

    /// Returns the number of the last committed event of a thread. Fails if the store cannot be read.
    pub(crate) async fn last_event(&self, thread: &ThreadRow) -> Result<u64> {
        self.read().last_number(thread.key).await
    }

    /// Adds the response to an open request to lines that are about to be sent. Only the first response counts.
    pub(crate) fn write_response(
        &self,
        lines: &mut OutgoingLines,
        id: &Id<'static>,
        result: &MethodResult,
    ) {
        if self.requests.close(id) {
            lines.response(id, result);
        }
    }

    /// Responds to an open request. Only the first response counts.
    pub(crate) async fn respond(&self, id: &Id<'static>, result: MethodResult) {
        let mut lines = OutgoingLines::default();
        self.write_response(&mut lines, id, &result);
        if !lines.bytes.is_empty() {
            self.send(lines, Control::Boundary).await;
        }
    }

    /// Responds to a request that was not admitted.
    pub(crate) async fn respond_unadmitted(&self, id: &Id<'static>, result: MethodResult) {
        let mut lines = OutgoingLines::default();
        lines.response(id, &result);
        self.send(lines, Control::Boundary).await;
    }

    /// Tells the proxy that a prompt's turn is stored, so the turn survives a disconnect.
    pub(crate) async fn confirm_prompt(&self, prompt: &Id<'static>) {
        if self.numbered {
            let mut lines = OutgoingLines::default();
            lines.control(&Control::Accepted { request: prompt.as_str().into() });
            // Only a client that sends nothing more waits for this line.
            self.outbox.push_lazily(Batch::new(lines.bytes, 0)).await;
        }
    }

    /// Sends lines, followed by the position that the proxy has reached with them.
    pub(crate) async fn send(&self, mut lines: OutgoingLines, position: Control<'_>) {
        if self.numbered {
            lines.control(&position);
        }
        self.outbox.push(Batch::new(lines.bytes, lines.messages)).await;
    }
}
