//! Opens new and existing sessions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use trilogue_domain::thread::SYSTEM_PROMPT_MEMBER;
use trilogue_domain::{Code, Error, Json, Right, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{NewThread, Sessions};
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::{
    InitialConfigOption, LoadSessionRequest, McpServer, NewSessionRequest, Read,
    ResumeSessionRequest, SystemPrompt, check_mcp_servers, check_system_prompt, is_absolute,
    splice, without_parameters,
};
use trilogue_wire::jsonrpc::ErrorObject;
use trilogue_wire::native::local::AttachParams;

use super::super::asking::agent_calls::{AgentCalls, error_object};
use super::super::connection::command::{OpenResponse, PumpCommand, ReplayStart};
use super::super::connection::queue::SessionQueue;
use super::super::connection::session::ClientSession;
use super::super::connection::{ClientConnection, Handshake};
use super::super::session::{agent_session, attach_session};
use super::super::thread_metadata::{ADDITIONAL_DIRECTORIES, AGENT, CWD, without_trailing_slash};
use super::super::wire::lines::DeferredResult;
use super::request::{IncomingRequest, backend_of, invalid_params, read, session_error, to_json};
use super::{initial_options, network_params, rights};
use crate::core::not_found::no_thread;

/// `session/new`: first the response, then the session's events.
pub(super) async fn new(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    request: IncomingRequest,
) -> DeferredResult {
    let (thread, result) = create(connection, handshake, &request).await?;
    respond_with_session(connection, request, thread, result);
    Ok(None)
}

/// Sends the response to a request that created a session: first the response, then the session's events.
pub(super) fn respond_with_session(
    connection: &Arc<ClientConnection>,
    request: IncomingRequest,
    thread: ThreadRow,
    result: Vec<u8>,
) {
    let id = thread.id.clone();
    let (worker, handshake) = (Arc::clone(connection), connection.handshake());
    // The client knows the session from the response, so its requests come after this.
    connection.queues.enqueue(&id, |queue| {
        let queue = Arc::clone(queue);
        async move {
            worker.respond(&request.id, Ok(result)).await;
            let Some(handshake) = handshake else { return };
            if queue.session().is_none() {
                let session = attach_session(&worker, &handshake, thread);
                queue.set_session(Some(Arc::clone(&session)));
                session.begin();
                session.command(PumpCommand::Replay(ReplayStart::live(0, 0))).await;
            }
        }
    });
}

/// Creates the thread, and a hosted agent's session.
async fn create(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    incoming: &IncomingRequest,
) -> Result<(ThreadRow, Vec<u8>), ErrorObject> {
    let params = incoming.params.as_str();
    let open = OpenParams::read(connection, params, |request: NewSessionRequest| OpenMembers {
        cwd: request.cwd,
        directories: request.additional_directories,
        servers: request.mcp_servers,
        system_prompt: request.system_prompt,
        options: request.config_options,
    })?;
    open.check(connection, handshake, &incoming.method).await?;
    check_session_limit(connection)?;
    let (thread, is_new) = create_thread(connection, incoming, &open).await?;
    let mut uncommitted = UncommittedSession {
        connection,
        thread: is_new.then(|| thread.id.clone()),
        is_named: incoming.extras.session.is_some(),
    };
    let opened = open_new(connection, handshake, &thread, &open).await;
    let uncommitted = uncommitted.thread.take();
    if opened.is_err()
        && let Some(thread) = uncommitted
    {
        erase(connection, &thread).await;
    }
    opened.map(|result| (thread, result))
}

/// A session whose agent has not opened it yet. Dropping it erases its thread.
pub(super) struct UncommittedSession<'a> {
    pub(super) connection: &'a Arc<ClientConnection>,
    pub(super) thread: Option<ThreadId>,
    /// Whether the client chose the session's id.
    pub(super) is_named: bool,
}

impl Drop for UncommittedSession<'_> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.is_named && self.connection.closed.is_cancelled() {
            // The client reconnects and requests this session again.
            return;
        }
        let connection = Arc::clone(self.connection);
        // Not one of the connection's tasks: the erasure must finish even if the client is gone. A stopping server erases nothing.
        if let Ok(handle) = Handle::try_current() {
            handle.spawn(async move { erase(&connection, &thread).await });
        }
    }
}

async fn erase(connection: &ClientConnection, thread: &ThreadId) {
    if let Err(error) = connection.runtime().erase_thread(&connection.principal, thread).await {
        tracing::warn!(%thread, %error, "uncommitted session not erased");
    }
}

/// Creates the thread of a new session. If the client chose an id that exists, returns that thread and `false`.
async fn create_thread(
    connection: &ClientConnection,
    incoming: &IncomingRequest,
    open: &OpenParams<'_>,
) -> Result<(ThreadRow, bool), ErrorObject> {
    let id = incoming.extras.session.as_deref().map(ThreadId::parse).transpose();
    let id = id.map_err(|error| mapping::error_object(&error))?;
    let mut metadata = open.metadata();
    metadata.retain(|_, value| !value.is_null());
    metadata.insert(AGENT.to_owned(), connection.agent.as_str().into());
    let metadata = Some(Json::from_value(&Value::Object(metadata)));
    let new = NewThread { id: id.clone(), metadata, has_checked_settings: true };
    match (connection.runtime().create_thread(&connection.principal, new).await, id) {
        (Ok(row), _) => Ok((row, true)),
        (Err(error), Some(id)) if error.code() == Code::AlreadyExists => {
            let found = connection.thread(id.as_str()).await;
            found.map(|row| (row, false)).map_err(|error| mapping::error_object(&error))
        }
        (Err(error), _) => Err(mapping::error_object(&error)),
    }
}

/// Returns the result of `session/new`: a hosted agent's own, with our session id.
pub(super) async fn open_new(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    thread: &ThreadRow,
    open: &OpenParams<'_>,
) -> Result<Vec<u8>, ErrorObject> {
    let backend = backend_of(connection)?;
    let options = &open.members.options;
    let result = match backend.sessions() {
        None => {
            let config = initial_options::set_native(connection, thread, options).await;
            let options = agent_session::options_of(connection, backend.card(), config.as_ref());
            agent_session::native_result(&options)
        }
        Some(sessions) => {
            let params = to_json(&without_parameters(&open.params))?;
            let opened =
                open_agent_session(connection, handshake, sessions, thread, params).await?;
            let set = initial_options::set(connection, handshake, sessions, thread, options).await;
            let set = set.and_then(|options| {
                splice::set(opened.as_str(), &["configOptions"], &options.to_string())
            });
            agent_session::for_client(connection, set.as_deref().unwrap_or(opened.as_str()))
        }
    };
    let text = std::str::from_utf8(&result).unwrap_or("{}");
    let text = splice::set_text(text, &["sessionId"], thread.id.as_str());
    Ok(text.unwrap_or_else(|| format!("{{\"sessionId\":\"{}\"}}", thread.id)).into_bytes())
}

/// Opens a hosted agent's session, and stores its response for clients that open the session later.
async fn open_agent_session(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    sessions: &dyn Sessions,
    thread: &ThreadRow,
    params: Json,
) -> Result<Json, ErrorObject> {
    let context = connection.runtime().thread_context(thread, &connection.agent);
    let caller = AgentCalls::of_request(connection, handshake);
    let opened = sessions.open(&context, &caller, params).await;
    let opened = opened.map_err(|error| error_object(&error))?;
    if let Err(error) = agent_session::store_opened(&context, &opened).await {
        tracing::warn!(thread = %thread.id, %error, "the agent's session response is not stored");
    }
    Ok(opened)
}

/// `session/load`: the history, then the response.
pub(super) async fn load(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    incoming: &IncomingRequest,
) -> DeferredResult {
    let open = OpenParams::read(connection, &incoming.params, |request: LoadSessionRequest| {
        OpenMembers {
            cwd: request.cwd,
            directories: request.additional_directories,
            servers: request.mcp_servers,
            system_prompt: request.system_prompt,
            options: request.config_options,
        }
    })?;
    let open = open.check_unless_observer(connection, handshake, incoming).await?;
    let mode = OpenMode::Load { after: incoming.extras.after.unwrap_or(0) };
    reopen(connection, handshake, queue, incoming, open, mode).await
}

/// `session/resume`: the response, then events from that point on.
pub(super) async fn resume(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    incoming: &IncomingRequest,
) -> DeferredResult {
    let open = OpenParams::of_resume(connection, &incoming.params)?;
    let open = open.check_unless_observer(connection, handshake, incoming).await?;
    reopen(connection, handshake, queue, incoming, open, OpenMode::Resume).await
}

/// Our proxy's request after a reconnect: sends the events since it left. The request repeats the parameters with which its client opened the session.
pub(super) async fn attach(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    incoming: &IncomingRequest,
) -> DeferredResult {
    let params: AttachParams = serde_json::from_str(&incoming.params)
        .map_err(|error| invalid_params("", format!("does not fit: {error}")))?;
    let children = Arc::new(params.after_of_children);
    let mode = OpenMode::Attach { after: params.after, children };
    let params = splice::remove(&incoming.params, &["after"]);
    let params = splice::remove(&params, &["afterOfChildren"]);
    // Parameters that were accepted before are not checked again, except for those that the server must not believe.
    let open = OpenParams::of_resume(connection, &params).ok();
    let open = open.filter(|open| is_absolute(&open.members.cwd) && connection.may(Right::Run));
    let open = match open {
        Some(mut open) => {
            // The client may have changed the options since it opened the session.
            open.members.options.clear();
            open.check_origin(connection, &incoming.method).await?;
            Some(open)
        }
        None => None,
    };
    reopen(connection, handshake, queue, incoming, open, mode).await
}

/// How an existing session is opened.
enum OpenMode {
    /// The client receives the history after event `after`, with its own messages.
    Load { after: u64 },
    /// The client receives no history.
    Resume,
    /// The client continues after event `after`, and after these events of sub-agents.
    Attach { after: u64, children: Arc<BTreeMap<String, u64>> },
}

/// The members that all requests that open a session share.
pub(super) struct OpenMembers {
    pub(super) cwd: String,
    pub(super) directories: Vec<String>,
    pub(super) servers: Vec<McpServer>,
    pub(super) system_prompt: Option<SystemPrompt>,
    /// Initial values of options.
    pub(super) options: Vec<InitialConfigOption>,
}

/// The parameters with which a client opens a session.
pub(super) struct OpenParams<'a> {
    pub(super) members: OpenMembers,
    /// Whether the agent has sessions of its own.
    pub(super) is_hosted: bool,
    /// All parameters that the client may send, as JSON.
    params: Cow<'a, str>,
}

// === impl OpenParams ===

impl<'a> OpenParams<'a> {
    /// Reads the parameters from a request that contains them as these members.
    pub(super) fn read<T: Read>(
        connection: &ClientConnection,
        params: &'a str,
        members: impl FnOnce(T) -> OpenMembers,
    ) -> Result<Self, ErrorObject> {
        let params = network_params::checkable(connection, params);
        let members = members(read(connection, &params)?);
        Ok(Self { members, is_hosted: connection.is_hosted(), params })
    }

    fn of_resume(connection: &ClientConnection, params: &'a str) -> Result<Self, ErrorObject> {
        Self::read(connection, params, |request: ResumeSessionRequest| OpenMembers {
            cwd: request.cwd,
            directories: request.additional_directories,
            servers: request.mcp_servers,
            system_prompt: request.system_prompt,
            options: request.config_options,
        })
    }

    /// Checks everything. `method` is that of the request.
    pub(super) async fn check(
        &self,
        connection: &ClientConnection,
        handshake: &Handshake,
        method: &str,
    ) -> Result<(), ErrorObject> {
        self.check_form(handshake)?;
        self.check_origin(connection, method).await
    }

    /// As [`Self::check`], for a request that opens an existing session. A client without the right to prompt changes nothing of it: its parameters have no effect.
    async fn check_unless_observer(
        self,
        connection: &ClientConnection,
        handshake: &Handshake,
        incoming: &IncomingRequest,
    ) -> Result<Option<Self>, ErrorObject> {
        self.check_form(handshake)?;
        if !connection.may(Right::Run) {
            return Ok(None);
        }
        self.check_origin(connection, &incoming.method).await?;
        Ok(Some(self))
    }

    /// Checks what the client may choose from where it is, and with its rights.
    async fn check_origin(
        &self,
        connection: &ClientConnection,
        method: &str,
    ) -> Result<(), ErrorObject> {
        if !self.members.options.is_empty() {
            // As for requests that set an option later.
            rights::require(connection, Right::Answer, method)?;
        }
        network_params::check_servers(connection, method, &self.params)?;
        let OpenMembers { cwd, directories, .. } = &self.members;
        network_params::check_folders(connection, method, cwd, directories).await
    }

    fn check_form(&self, handshake: &Handshake) -> Result<(), ErrorObject> {
        const RELATIVE: &str = "must be an absolute path";
        let OpenMembers { cwd, directories, servers, system_prompt, options } = &self.members;
        if !is_absolute(cwd) {
            return Err(invalid_params("/cwd", RELATIVE));
        }
        if let Some(prompt) = system_prompt {
            let checked = check_system_prompt(prompt, handshake.system_prompt.as_ref());
            checked.map_err(|violation| violation.error())?;
        }
        initial_options::check(options)?;
        let relative = directories.iter().position(|directory| !is_absolute(directory));
        if let Some(index) = relative {
            return Err(invalid_params(&format!("/additionalDirectories/{index}"), RELATIVE));
        }
        let checked = check_mcp_servers(servers, Some(&handshake.servers));
        checked.map_err(|violation| violation.error())
    }

    /// Returns the directories as thread metadata.
    pub(super) fn metadata(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        metadata.insert(CWD.to_owned(), without_trailing_slash(&self.members.cwd).into());
        let directories = match self.members.directories.as_slice() {
            [] => Value::Null,
            some => some.to_vec().into(),
        };
        metadata.insert(ADDITIONAL_DIRECTORIES.to_owned(), directories);
        // A hosted agent gets it itself, and keeps what it needs of it.
        if let Some(prompt) = self.members.system_prompt.as_ref().filter(|_| !self.is_hosted) {
            let prompt = mapping::system_prompt_metadata(&mapping::system_prompt(prompt));
            metadata.insert(SYSTEM_PROMPT_MEMBER.to_owned(), prompt);
        }
        metadata
    }

    /// Stores the directories that differ from the thread's.
    async fn store(
        &self,
        connection: &ClientConnection,
        session: &ClientSession,
    ) -> Result<(), Error> {
        let row = connection.thread(session.id()).await?;
        let known = row.metadata.to_value();
        let mut metadata = self.metadata();
        metadata.retain(|key, value| known.get(key).unwrap_or(&Value::Null) != value);
        if metadata.is_empty() {
            return Ok(());
        }
        let metadata = Json::from_value(&Value::Object(metadata));
        connection.patch_metadata(&row.id, metadata).await
    }
}

/// Opens an existing session. The agent's own session is opened with `open` before its next use.
async fn reopen(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    incoming: &IncomingRequest,
    open_params: Option<OpenParams<'_>>,
    mode: OpenMode,
) -> DeferredResult {
    let session = open(connection, handshake, queue).await?;
    if let Some(open) = open_params {
        let params = without_parameters(&open.params);
        let cut = splice::cut_session(&params).map(|(cut, _)| cut);
        if connection.is_hosted()
            && let Ok(params) = to_json(cut.as_deref().unwrap_or(&params))
        {
            session.state().open_params = Some(params);
        }
        let stored = open.store(connection, &session).await;
        stored.map_err(|error| session_error(&error, &queue.id))?;
        if !open.members.options.is_empty() {
            // Before the end of the history is read: it then contains the new values.
            let options = &open.members.options;
            initial_options::set_in_session(connection, handshake, &session, options).await?;
        }
    }
    let until = connection.last_event(&session.thread).await;
    let until = until.map_err(|error| session_error(&error, &queue.id))?;
    let (is_replay, knows_questions) =
        (matches!(mode, OpenMode::Load { .. }), !matches!(mode, OpenMode::Resume));
    let (from, response, children) = match mode {
        OpenMode::Load { after } => (Some(after.min(until)), OpenResponse::FromLog, None),
        OpenMode::Resume => (None, OpenResponse::FromLog, None),
        OpenMode::Attach { after, children } => {
            let response = OpenResponse::Ready(Ok(b"{}".to_vec()));
            (Some(after.min(until)), response, Some(children))
        }
    };
    let request = Some((incoming.id.clone(), response));
    let start =
        ReplayStart { from, until, is_replay, knows_questions, request, parent: None, children };
    session.begin();
    if session.command(PumpCommand::Replay(start)).await {
        return Ok(None);
    }
    Err(session_error(&no_thread(session.id()), &queue.id))
}

/// Returns the session of a queue. Opens it if it is not open.
pub(super) async fn open(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
) -> Result<Arc<ClientSession>, ErrorObject> {
    let thread = connection.thread(queue.id.as_str()).await;
    let thread = thread.map_err(|error| session_error(&error, &queue.id))?;
    let is_usable =
        |session: &Arc<ClientSession>| session.thread.key == thread.key && !session.state().is_over;
    if let Some(session) = queue.session().filter(is_usable) {
        return Ok(session);
    }
    check_session_limit(connection)?;
    connection.children.forget(&thread.id);
    let session = attach_session(connection, handshake, thread);
    if let Some(before) = queue.set_session(Some(Arc::clone(&session))) {
        before.stop.cancel();
    }
    Ok(session)
}

/// Starts rendering at the present end of the log, if the session's pump has not begun.
pub(super) async fn begin_live(connection: &ClientConnection, session: &Arc<ClientSession>) {
    if session.begin() {
        // If the log cannot be read, the pump meets and reports the error.
        let last = connection.last_event(&session.thread).await.unwrap_or(0);
        session.command(PumpCommand::Replay(ReplayStart::live(last, last))).await;
    }
}

/// Opens a hosted agent's session if opening was deferred until its use.
pub(super) async fn open_agent_session_if_needed(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    session: &ClientSession,
) -> Result<(), ErrorObject> {
    let Some(params) = session.state().open_params.clone() else { return Ok(()) };
    let backend = backend_of(connection)?;
    if let Some(sessions) = backend.sessions() {
        open_agent_session(connection, handshake, sessions, &session.thread, params).await?;
    }
    session.state().open_params = None;
    Ok(())
}

pub(super) fn check_session_limit(connection: &ClientConnection) -> Result<(), ErrorObject> {
    let most = connection.options().max_sessions;
    if connection.queues.open_sessions().len() < most {
        return Ok(());
    }
    let error =
        Error::new(Code::Overloaded, format!("{most} sessions are open, which is the most"))
            .hint("close one first");
    Err(mapping::error_object(&error))
}
