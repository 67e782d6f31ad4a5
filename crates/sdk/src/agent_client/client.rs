use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use trilogue_wire::agent_client::{
    AgentCapabilities, AgentGate, AuthMethod, AuthenticateRequest, CloseSessionRequest,
    DeleteSessionRequest, Gate, Implementation, InitializeRequest, InitializeResponse,
    ListSessionsRequest, ListSessionsResponse, LogoutRequest, McpCapabilities, McpServer,
    NewSessionRequest, NewSessionResponse, PROTOCOL_VERSION, PromptCapabilities, RequestParams,
    ResumeSessionRequest, Rules, check_mcp_servers, is_absolute, read_checked,
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

/// A connection to an agent. Cheap to clone; it ends when the last clone, session and turn are dropped.
///
/// A call fails with what the agent refuses it with.
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientShared>,
}

/// How a client behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The limits of the connection.
    pub peer: peer::Options,
    /// Who this is, as the agent is told.
    pub info: Option<Implementation>,
    /// Whether prompts carry an id of their message: a new UUID where the caller gives none.
    pub sends_message_ids: bool,
    /// How long a cancelled turn may take to end before it is cancelled again, and as long after that before it is given up.
    pub cancel_grace: Duration,
    /// The most updates of a session that wait to be read outside of turns; the oldest goes.
    pub max_updates: usize,
    /// How much of a turn may wait to be read, in bytes. What comes beyond it is let go, and the turn fails with [`Error::Overflow`] once the rest was read. The connection never waits for a reader, so other calls go on.
    pub max_unread_bytes: usize,
    /// How long the agent may take to answer a call. Turns, replays and [`Client::authenticate`], which may wait for the user, have no limit.
    pub call_timeout: Duration,
    /// How long a launched agent may take to end when its input is closed, and as long after it was asked to by a signal.
    pub exit_grace: Duration,
    /// How long the agent may take to answer `initialize`.
    pub start_timeout: Duration,
}

/// Where a session works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionOptions {
    /// The folder, as an absolute path.
    pub cwd: String,
    /// More folders, as absolute paths.
    pub additional_directories: Vec<String>,
    /// The tool servers that the agent uses.
    pub mcp_servers: Vec<McpServer>,
    /// What the user said in this session before, where that is known here: see [`Session::user_messages`].
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
    /// Begins a connection over two byte streams.
    ///
    /// # Errors
    /// [`Error::Version`]; what the agent refuses with; [`Error::Closed`] where it is gone, or says nothing for [`Options::start_timeout`].
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

    /// Starts a program that is an agent, and begins a connection over its standard input and output.
    ///
    /// The program gets a process group of its own. When the last clone of the client is dropped, all of the group is killed; [`Client::close`] lets the agent end by itself first.
    ///
    /// # Errors
    /// [`Error::Launch`]; else as [`Client::connect`].
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

    /// What the agent said of itself.
    #[must_use]
    pub fn agent(&self) -> &InitializeResponse {
        &self.shared.agent
    }

    /// The same as the agent wrote it.
    #[must_use]
    pub fn initialized(&self) -> &RawJson {
        &self.shared.initialized
    }

    /// What the agent takes in prompts, beside text and links.
    #[must_use]
    pub fn takes(&self) -> PromptCapabilities {
        let can = self.shared.agent.agent_capabilities.as_ref();
        can.and_then(|can| can.prompt.clone()).unwrap_or_default()
    }

    /// Whether the agent can do that.
    #[must_use]
    pub fn can(&self, gate: AgentGate) -> bool {
        let none = AgentCapabilities::new();
        gate.is_open(self.shared.agent.agent_capabilities.as_ref().unwrap_or(&none))
    }

    /// The ways in which the agent can be authenticated with. Those in a terminal run the agent's own program, and are not for [`Client::authenticate`].
    #[must_use]
    pub fn auth_methods(&self) -> &[AuthMethod] {
        &self.shared.agent.auth_methods
    }

    /// Authenticates in a way that the agent named.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another way, or one in a terminal; what the agent refuses with.
    pub async fn authenticate(&self, method: &str) -> Result<(), Error> {
        let is_named = self.auth_methods().iter().any(|known| match known {
            AuthMethod::Agent(agent) => agent.id == method,
            AuthMethod::Terminal(_) | AuthMethod::Other(_) => false,
        });
        if !is_named {
            let message = format!(
                "the agent names no way '{}' to authenticate by a request",
                method.escape_debug()
            );
            return Err(Error::Invalid(message));
        }
        // Whoever authenticates may take any time.
        ask(&self.shared.peer, &AuthenticateRequest::new(method), None).await.map(drop)
    }

    /// Lets the agent forget who is authenticated.
    ///
    /// # Errors
    /// [`Error::Lacks`]; what the agent refuses with.
    pub async fn logout(&self) -> Result<(), Error> {
        self.need(AgentGate::Logout, "logout")?;
        self.request(&LogoutRequest::new()).await.map(drop)
    }

    /// Opens a new session.
    ///
    /// # Errors
    /// [`Error::AuthRequired`]; [`Error::Lacks`]; [`Error::Invalid`]; what the agent refuses with.
    pub async fn new_session(&self, options: SessionOptions) -> Result<Session, Error> {
        self.check(&options)?;
        let request = NewSessionRequest {
            additional_directories: options.additional_directories,
            ..NewSessionRequest::new(options.cwd, options.mcp_servers)
        };
        // Some agents tell of a session before they have answered.
        let held = self.shared.router.pending_open();
        let (answer, original) = self.ask(&request, None).await?;
        let NewSessionResponse { session_id, modes, config_options, .. } = answer;
        let updates = self.updates(options.user_messages);
        self.shared.router.open(&session_id, &updates);
        drop(held);
        Ok(Session::new(self.clone(), session_id, updates, (modes, config_options), original))
    }

    /// Opens a session again and hears everything that was said in it.
    ///
    /// # Errors
    /// [`Error::Lacks`]; [`Error::Invalid`]; what the agent refuses with comes from the [`SessionReplay`], [`Error::SessionLost`] among it.
    pub async fn load_session(
        &self,
        session: &str,
        options: SessionOptions,
    ) -> Result<SessionReplay, Error> {
        self.need(AgentGate::LoadSession, "session/load")?;
        self.check(&options)?;
        SessionReplay::begin(self, session, options).await
    }

    /// Opens a session again and hears nothing of what was said in it.
    ///
    /// # Errors
    /// As [`Client::new_session`]; [`Error::SessionLost`].
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
            ..ResumeSessionRequest::new(session, options.cwd)
        };
        let updates = self.updates(options.user_messages);
        self.shared.router.open(session, &updates);
        let resumed = self.ask(&request, Some(session)).await;
        if resumed.is_err() {
            self.shared.router.retire(session, &updates);
        }
        let (answer, original) = resumed?;
        let state = (answer.modes, answer.config_options);
        Ok(Session::new(self.clone(), session.to_owned(), updates, state, original))
    }

    /// The sessions that the agent has, page by page: of one folder, behind the cursor of the page before.
    ///
    /// # Errors
    /// [`Error::Lacks`]; what the agent refuses with.
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

    /// Removes a session. One that is not there is removed already.
    ///
    /// # Errors
    /// [`Error::Lacks`]; what the agent refuses with.
    pub async fn delete_session(&self, session: &str) -> Result<(), Error> {
        self.need(AgentGate::Delete, "session/delete")?;
        gone(self.ask(&DeleteSessionRequest::new(session), Some(session)).await)
    }

    /// Asks the agent for something that the protocol has no word for.
    pub async fn extension<P>(&self, method: &str, params: &P) -> Result<RawJson, Error>
    where
        P: Payload + Sync + ?Sized,
    {
        let answer = self.shared.peer.call(method, params);
        let answer = within(self.shared.options.call_timeout, method, answer).await?;
        answer.map_err(|failed| Error::of(failed, None))
    }

    /// The connection below, for what is not here.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.shared.peer
    }

    /// How many notifications could not be read, or were of no session that is open here.
    #[must_use]
    pub fn stray_notifications(&self) -> u64 {
        self.shared.router.stray()
    }

    /// What a launched agent wrote to its standard error last, as it wrote it: control characters included. Nothing where it was not launched here.
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        self.shared.child.as_ref().map(Child::stderr_tail).unwrap_or_default()
    }

    /// Ends the connection. A launched agent is given time to end by itself, is asked to by a signal, and is killed with everything that it started.
    pub async fn close(self) {
        self.shared.peer.close();
        match &self.shared.child {
            Some(child) => child.end(self.shared.options.exit_grace).await,
            None => self.shared.peer.flushed().await,
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
        gone(self.ask(&CloseSessionRequest::new(session), Some(session)).await)
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

    /// Holds an opening to what the agent can do.
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
        let mcp: Option<&McpCapabilities> = can.and_then(|can| can.mcp.as_ref());
        check_mcp_servers(&options.mcp_servers, mcp).map_err(|why| Error::Invalid(why.to_string()))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("agent", &self.shared.agent).finish_non_exhaustive()
    }
}

/// What comes of a call, unless that takes too long.
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

/// Reads an answer. `null` is an empty object.
pub(super) fn read_answer<T: trilogue_wire::agent_client::Read>(
    answer: &RawJson,
) -> Result<T, Error> {
    let json = if answer.as_str() == "null" { "{}" } else { answer.as_str() };
    read_checked(json, Rules::Lenient).map_err(|why| Error::Unreadable(why.to_string()))
}

/// What is not there any more need not be ended.
fn gone<T>(answer: Result<T, Error>) -> Result<(), Error> {
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
    /// In this folder: an absolute path.
    #[must_use]
    pub fn at(cwd: impl Into<String>) -> Self {
        Self {
            cwd: cwd.into(),
            additional_directories: Vec::new(),
            mcp_servers: Vec::new(),
            user_messages: UserMessages::default(),
        }
    }

    /// In this folder too.
    #[must_use]
    pub fn and(mut self, directory: impl Into<String>) -> Self {
        self.additional_directories.push(directory.into());
        self
    }

    /// With this tool server.
    #[must_use]
    pub fn with(mut self, server: McpServer) -> Self {
        self.mcp_servers.push(server);
        self
    }

    /// With what the user said before.
    #[must_use]
    pub fn knowing(mut self, messages: UserMessages) -> Self {
        self.user_messages = messages;
        self
    }
}
