use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use trilogue_wire::agent_client::{
    AgentCapabilities, AgentGate, AuthMethod, AuthenticateRequest, CloseSessionRequest,
    ContentBlock, DeleteSessionRequest, Gate, Implementation, InitializeRequest,
    InitializeResponse, ListSessionsRequest, ListSessionsResponse, LogoutRequest, McpCapabilities,
    McpServer, NewSessionRequest, NewSessionResponse, PROTOCOL_VERSION, PromptCapabilities,
    RequestParams, ResumeSessionRequest, Rules, SystemPrompt, SystemPromptMode, check_mcp_servers,
    check_system_prompt, is_absolute, read_checked,
};
use trilogue_wire::jsonrpc::Payload;

use super::client_handler::ClientHandler;
use super::error::Error;
use super::launch::{Child, Command};
use super::peer::{self, Peer, RawJson};
use super::session::{Session, SessionReplay};
use super::session_router::SessionRouter;
use super::update_queue::UpdateQueue;
use super::user_messages::UserMessages;

/// A connection to an agent. Cheap to clone; the connection ends when the last clone, session and turn are dropped.
///
/// A call fails with the error that the agent returns.
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientShared>,
}

/// The options of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The limits of the connection.
    pub peer: peer::Options,
    /// The client's name and version, as sent to the agent.
    pub info: Option<Implementation>,
    /// Whether prompts carry a message id. If the caller sets none, a new UUID is sent.
    pub sends_message_ids: bool,
    /// How long a cancelled turn may take to end. Then it is cancelled again, and after the same time the client gives up on it.
    pub cancel_grace: Duration,
    /// The maximum number of unread updates of a session outside of turns. The oldest are dropped first.
    pub max_updates: usize,
    /// The maximum number of unread bytes of a turn. Updates above the limit are dropped, and the turn fails with [`Error::Overflow`] after you read the rest. The connection never waits for a reader, so other calls continue.
    pub max_unread_bytes: usize,
    /// How long the agent may take to answer a call. Turns, replays and [`Client::authenticate`] have no limit: the last one may wait for the user.
    pub call_timeout: Duration,
    /// How long a launched agent may take to exit after its input is closed, and again after a signal.
    pub exit_grace: Duration,
    /// How long the agent may take to answer `initialize`.
    pub start_timeout: Duration,
}

/// The options of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// The working directory, as an absolute path.
    pub cwd: String,
    /// More directories, as absolute paths.
    pub additional_directories: Vec<String>,
    /// The MCP servers that the agent uses.
    pub mcp_servers: Vec<McpServer>,
    /// Instructions for the agent.
    pub system_prompt: Option<SystemPrompt>,
    /// The user's earlier messages in this session, if this program knows them: see [`Session::user_messages`].
    pub user_messages: UserMessages,
}

struct ClientShared {
    peer: Peer,
    router: Arc<SessionRouter>,
    options: Options,
    agent: InitializeResponse,
    initialized: RawJson,
    child: Option<Child>,
}

// === impl Client ===

impl Client {
    /// Connects over two byte streams.
    ///
    /// # Errors
    /// [`Error::Version`]; the error that the agent returns; [`Error::Closed`] if the connection ends, or if the agent does not answer within [`Options::start_timeout`].
    pub async fn connect<R, W>(
        read: R,
        write: W,
        answers: impl ClientHandler,
        options: Options,
    ) -> Result<Self, Error>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let router = Arc::new(SessionRouter::new(Arc::new(answers)));
        let handler = Arc::clone(&router);
        let peer = Peer::start(read, write, handler, options.peer.clone());
        Self::begin(peer, router, None, options).await
    }

    /// Connects to an agent behind a server.
    ///
    /// # Errors
    /// [`Error::Connect`]; otherwise like [`Client::connect`].
    #[cfg(any(feature = "ws", feature = "http"))]
    pub async fn open(
        agent: &super::network::AgentUrl,
        answers: impl ClientHandler,
        options: Options,
    ) -> Result<Self, Error> {
        let limits = super::network::ConnectionOptions {
            connect_timeout: options.start_timeout,
            max_message_bytes: options.peer.max_line_bytes,
            ..super::network::ConnectionOptions::default()
        };
        let connection = agent.connect(&limits).await?;
        Self::connect(connection.read, connection.write, answers, options).await
    }

    /// Launches an agent program, and connects over its standard input and output.
    ///
    /// The program gets a separate process group. When the last clone of the client is dropped, the whole group is killed. [`Client::close`] lets the agent exit by itself first.
    ///
    /// # Errors
    /// [`Error::Launch`]; otherwise like [`Client::connect`].
    pub async fn launch(
        command: Command,
        answers: impl ClientHandler,
        options: Options,
    ) -> Result<Self, Error> {
        let (child, read, write) = Child::start(command)?;
        let router = Arc::new(SessionRouter::new(Arc::new(answers)));
        let handler = Arc::clone(&router);
        let peer = Peer::start(read, write, handler, options.peer.clone());
        Self::begin(peer, router, Some(child), options).await
    }

    async fn begin(
        peer: Peer,
        router: Arc<SessionRouter>,
        child: Option<Child>,
        options: Options,
    ) -> Result<Self, Error> {
        let hello = InitializeRequest {
            client_capabilities: Some(router.offered().clone()),
            client_info: options.info.clone(),
            ..InitializeRequest::new(PROTOCOL_VERSION)
        };
        let answer = ask(&peer, &hello, None);
        let answer = tokio::time::timeout(options.start_timeout, answer).await;
        let checked = answer.unwrap_or(Err(Error::Closed)).and_then(|(agent, initialized)| {
            match agent.protocol_version {
                PROTOCOL_VERSION => Ok((agent, initialized)),
                other => Err(Error::Version(other)),
            }
        });
        match checked {
            Ok((agent, initialized)) => {
                let shared = ClientShared { peer, router, options, agent, initialized, child };
                Ok(Self { shared: Arc::new(shared) })
            }
            Err(error) => {
                peer.abort();
                Err(error)
            }
        }
    }

    /// Returns the agent's response to `initialize`.
    #[must_use]
    pub fn agent(&self) -> &InitializeResponse {
        &self.shared.agent
    }

    /// Returns the same response as the agent wrote it.
    #[must_use]
    pub fn initialized(&self) -> &RawJson {
        &self.shared.initialized
    }

    /// Returns the agent's prompt capabilities: the content that it supports in addition to text and links.
    #[must_use]
    pub fn takes(&self) -> PromptCapabilities {
        let can = self.shared.agent.agent_capabilities.as_ref();
        can.and_then(|can| can.prompt.clone()).unwrap_or_default()
    }

    /// Returns `true` if the agent has the capability of this gate.
    #[must_use]
    pub fn can(&self, gate: AgentGate) -> bool {
        let none = AgentCapabilities::new();
        gate.is_open(self.shared.agent.agent_capabilities.as_ref().unwrap_or(&none))
    }

    /// Returns the agent's authentication methods. A terminal method runs the agent's own program, so it does not work with [`Client::authenticate`].
    #[must_use]
    pub fn auth_methods(&self) -> &[AuthMethod] {
        &self.shared.agent.auth_methods
    }

    /// Authenticates with a method that the agent offers.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the agent does not offer the method, or if it is a terminal method; the error that the agent returns.
    pub async fn authenticate(&self, method: &str) -> Result<(), Error> {
        let is_named = self.auth_methods().iter().any(|known| match known {
            AuthMethod::Agent(agent) => agent.id == method,
            AuthMethod::Terminal(_) | AuthMethod::Other(_) => false,
        });
        if !is_named {
            let message = format!(
                "authentication method '{}' not found among those for requests",
                method.escape_debug()
            );
            return Err(Error::Invalid(message));
        }
        // The user may take any time to authenticate.
        ask(&self.shared.peer, &AuthenticateRequest::new(method), None).await.map(drop)
    }

    /// Logs out at the agent.
    ///
    /// # Errors
    /// [`Error::Lacks`]; the error that the agent returns.
    pub async fn logout(&self) -> Result<(), Error> {
        self.need(AgentGate::Logout, "logout")?;
        self.request(&LogoutRequest::new()).await.map(drop)
    }

    /// Opens a new session.
    ///
    /// # Errors
    /// [`Error::AuthRequired`]; [`Error::Lacks`]; [`Error::Invalid`]; the error that the agent returns.
    pub async fn new_session(&self, options: SessionOptions) -> Result<Session, Error> {
        self.check(&options)?;
        let request = NewSessionRequest {
            additional_directories: options.additional_directories,
            system_prompt: options.system_prompt,
            ..NewSessionRequest::new(options.cwd, options.mcp_servers)
        };
        // Some agents send updates of a session before they return its id.
        let held = self.shared.router.pending_open();
        let (answer, original) = self.ask(&request, None).await?;
        let NewSessionResponse { session_id, modes, config_options, .. } = answer;
        let updates = self.updates(options.user_messages);
        self.shared.router.open(&session_id, &updates);
        // After `open`: until then, updates of this session are kept for it.
        drop(held);
        Ok(Session::new(self.clone(), session_id, updates, (modes, config_options), original))
    }

    /// Loads a session and replays its history.
    ///
    /// # Errors
    /// [`Error::Lacks`]; [`Error::Invalid`]. The [`SessionReplay`] returns the agent's errors, including [`Error::SessionLost`].
    pub async fn load_session(
        &self,
        session: &str,
        options: SessionOptions,
    ) -> Result<SessionReplay, Error> {
        self.need(AgentGate::LoadSession, "session/load")?;
        self.check(&options)?;
        SessionReplay::begin(self, session, options).await
    }

    /// Resumes a session without its history.
    ///
    /// # Errors
    /// Like [`Client::new_session`]; [`Error::SessionLost`].
    pub async fn resume_session(
        &self,
        session: &str,
        options: SessionOptions,
    ) -> Result<Session, Error> {
        self.need(AgentGate::Resume, "session/resume")?;
        self.check(&options)?;
        let request = ResumeSessionRequest {
            mcp_servers: options.mcp_servers,
            additional_directories: options.additional_directories,
            system_prompt: options.system_prompt,
            ..ResumeSessionRequest::new(session, options.cwd)
        };
        let updates = self.updates(options.user_messages);
        // The queue is opened before the request, because the agent may send updates before its response.
        self.shared.router.open(session, &updates);
        let resumed = self.ask(&request, Some(session)).await;
        if resumed.is_err() {
            self.shared.router.retire(session, &updates);
        }
        let (answer, original) = resumed?;
        let state = (answer.modes, answer.config_options);
        Ok(Session::new(self.clone(), session.to_owned(), updates, state, original))
    }

    /// Returns one page of the agent's sessions. `cwd` selects the sessions of one directory; `cursor` comes from the previous page.
    ///
    /// # Errors
    /// [`Error::Lacks`]; the error that the agent returns.
    pub async fn list_sessions(
        &self,
        cwd: Option<&str>,
        cursor: Option<&str>,
    ) -> Result<ListSessionsResponse, Error> {
        self.need(AgentGate::List, "session/list")?;
        let (cwd, cursor) = (cwd.map(str::to_owned), cursor.map(str::to_owned));
        let request = ListSessionsRequest { cwd, cursor, ..ListSessionsRequest::new() };
        self.request(&request).await
    }

    /// Deletes a session. Succeeds if the session does not exist.
    ///
    /// # Errors
    /// [`Error::Lacks`]; the error that the agent returns.
    pub async fn delete_session(&self, session: &str) -> Result<(), Error> {
        self.need(AgentGate::Delete, "session/delete")?;
        ignore_lost_session(self.ask(&DeleteSessionRequest::new(session), Some(session)).await)
    }

    /// Calls an extension method, which the protocol does not define.
    pub async fn extension<P>(&self, method: &str, params: &P) -> Result<RawJson, Error>
    where
        P: Payload + Sync + ?Sized,
    {
        let answer = self.shared.peer.call(method, params);
        let answer = within(self.shared.options.call_timeout, method, answer).await?;
        answer.map_err(|failed| Error::of(failed, None))
    }

    /// Returns the underlying connection, for everything that the client does not offer.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// Returns the number of notifications that could not be read, or that belong to no open session.
    #[must_use]
    pub fn stray_notifications(&self) -> u64 {
        self.shared.router.stray()
    }

    /// Returns the end of a launched agent's standard error, including control characters. Empty if this client did not launch the agent.
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        self.shared.child.as_ref().map(Child::stderr_tail).unwrap_or_default()
    }

    /// Closes the connection. A launched agent gets time to exit by itself, then a signal; then its process group is killed.
    pub async fn close(self) {
        self.shared.peer.close();
        match &self.shared.child {
            Some(child) => child.end(self.shared.options.exit_grace).await,
            None => self.shared.peer.wait_for_flush().await,
        }
        self.shared.peer.abort();
    }

    pub(super) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(super) fn router(&self) -> &SessionRouter {
        &self.shared.router
    }

    pub(super) fn updates(&self, users: UserMessages) -> Arc<UpdateQueue> {
        let Options { max_updates, max_unread_bytes, .. } = self.shared.options;
        Arc::new(UpdateQueue::new(max_updates, max_unread_bytes, users))
    }

    pub(super) async fn request<P>(&self, params: &P) -> Result<P::Response, Error>
    where
        P: RequestParams + Sync,
    {
        self.ask(params, None).await.map(|(answer, _)| answer)
    }

    pub(super) async fn request_of<P>(
        &self,
        session: &str,
        params: &P,
    ) -> Result<P::Response, Error>
    where
        P: RequestParams + Sync,
    {
        self.ask(params, Some(session)).await.map(|(answer, _)| answer)
    }

    pub(super) async fn close_session(&self, session: &str) -> Result<(), Error> {
        self.need(AgentGate::Close, "session/close")?;
        ignore_lost_session(self.ask(&CloseSessionRequest::new(session), Some(session)).await)
    }

    async fn ask<P>(
        &self,
        params: &P,
        session: Option<&str>,
    ) -> Result<(P::Response, RawJson), Error>
    where
        P: RequestParams + Sync,
    {
        let answer = ask(&self.shared.peer, params, session);
        within(self.shared.options.call_timeout, P::METHOD, answer).await?
    }

    fn need(&self, gate: AgentGate, what: &str) -> Result<(), Error> {
        if self.can(gate) {
            return Ok(());
        }
        let capability = Gate::Agent(gate).capability().unwrap_or_default();
        Err(Error::Lacks { capability, what: what.to_owned() })
    }

    /// Checks the options against the agent's capabilities.
    fn check(&self, options: &SessionOptions) -> Result<(), Error> {
        let folders = std::iter::once(&options.cwd).chain(&options.additional_directories);
        if let Some(folder) = folders.into_iter().find(|folder| !is_absolute(folder)) {
            return Err(Error::Invalid(format!(
                "the folder '{}' is not an absolute path",
                folder.escape_debug()
            )));
        }
        let can = self.shared.agent.agent_capabilities.as_ref();
        let session = can.and_then(|can| can.session.as_ref());
        let takes_more = session.is_some_and(|session| session.additional_directories.is_some());
        if !options.additional_directories.is_empty() && !takes_more {
            return Err(Error::Lacks {
                capability: "agentCapabilities.sessionCapabilities.additionalDirectories",
                what: "a session with additional directories".to_owned(),
            });
        }
        if let Some(prompt) = &options.system_prompt {
            let takes = session.and_then(|session| session.system_prompt.as_ref());
            if takes.is_none() {
                return Err(Error::Lacks {
                    capability: "agentCapabilities.sessionCapabilities.systemPrompt",
                    what: "a session with a system prompt".to_owned(),
                });
            }
            let checked = check_system_prompt(prompt, takes);
            checked.map_err(|why| Error::Invalid(why.to_string()))?;
        }
        let mcp: Option<&McpCapabilities> = can.and_then(|can| can.mcp.as_ref());
        check_mcp_servers(&options.mcp_servers, mcp).map_err(|why| Error::Invalid(why.to_string()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("agent", &self.shared.agent).finish_non_exhaustive()
    }
}

/// Waits for the result of a call, within the limit.
async fn within<T>(
    limit: Duration,
    method: &str,
    answer: impl Future<Output = T>,
) -> Result<T, Error> {
    let answer = tokio::time::timeout(limit, answer).await;
    answer.map_err(|_| Error::TimedOut { method: method.to_owned(), limit })
}

async fn ask<P>(
    peer: &Peer,
    params: &P,
    session: Option<&str>,
) -> Result<(P::Response, RawJson), Error>
where
    P: RequestParams + Sync,
{
    let answer = peer.call(P::METHOD, params).await;
    let answer = answer.map_err(|failed| Error::of(failed, session))?;
    Ok((read_answer(&answer)?, answer))
}

/// Reads a result. Treats `null` as an empty object.
pub(super) fn read_answer<T: trilogue_wire::agent_client::Read>(
    answer: &RawJson,
) -> Result<T, Error> {
    let json = if answer.as_str() == "null" { "{}" } else { answer.as_str() };
    read_checked(json, Rules::Lenient).map_err(|why| Error::Unreadable(why.to_string()))
}

/// Treats a lost session as success: it is already closed.
fn ignore_lost_session<T>(answer: Result<T, Error>) -> Result<(), Error> {
    match answer {
        Ok(_) | Err(Error::SessionLost { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

// === impl ClientShared ===

impl Drop for ClientShared {
    fn drop(&mut self) {
        self.peer.abort();
    }
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            peer: peer::Options::client(),
            info: None,
            sends_message_ids: true,
            cancel_grace: Duration::from_secs(10),
            max_updates: 1_024,
            max_unread_bytes: 16 * 1024 * 1024,
            call_timeout: Duration::from_secs(300),
            exit_grace: Duration::from_secs(2),
            start_timeout: Duration::from_secs(60),
        }
    }
}

// === impl SessionOptions ===

impl SessionOptions {
    /// Returns options with this working directory, an absolute path.
    #[must_use]
    pub fn new(cwd: impl Into<String>) -> Self {
        Self {
            cwd: cwd.into(),
            additional_directories: Vec::new(),
            mcp_servers: Vec::new(),
            system_prompt: None,
            user_messages: UserMessages::default(),
        }
    }

    /// Adds a directory.
    #[must_use]
    pub fn additional_directory(mut self, directory: impl Into<String>) -> Self {
        self.additional_directories.push(directory.into());
        self
    }

    /// Adds an MCP server.
    #[must_use]
    pub fn mcp_server(mut self, server: McpServer) -> Self {
        self.mcp_servers.push(server);
        self
    }

    /// Adds instructions to the agent's own.
    #[must_use]
    pub fn append_system_prompt(mut self, text: impl Into<String>) -> Self {
        let content = vec![ContentBlock::text(text)];
        self.system_prompt = Some(SystemPrompt::new(SystemPromptMode::Append, content));
        self
    }

    /// Sets the user's earlier messages.
    #[must_use]
    pub fn user_messages(mut self, messages: UserMessages) -> Self {
        self.user_messages = messages;
        self
    }
}
