//! A client of the Agent Communication Protocol, over HTTP or another [`Transport`].
//!
//! It works with every server of the protocol and uses a server's extensions if they exist. Streams continue after a break, also on other servers.
//!
//! ```no_run
//! use trilogue_sdk::client::ClientError;
//! use trilogue_sdk::client::communication::{Client, NewRun, Session};
//!
//! async fn greet() -> Result<(), ClientError> {
//!     let one = Client::at("http://127.0.0.1:7878/communication")?;
//!     let run = one.run_sync(NewRun::new("echo", "Howdy!")).await?;
//!     assert_eq!(run.text(), "Howdy!");
//!
//!     // A conversation that continues on another server.
//!     let other = Client::at("http://127.0.0.1:8000")?;
//!     let mut session = Session::new();
//!     session.run_sync(&one, NewRun::new("echo", "I am Ada.")).await?;
//!     session.run_sync(&other, NewRun::new("history_echo", "Who am I?")).await?;
//!     Ok(())
//! }
//! ```

mod input;
mod new_run;
mod resume;
mod session;
mod stream;

use std::sync::Arc;

use trilogue_wire::agent_communication as wire;
use trilogue_wire::agent_communication::{Read, Rules};

use crate::client::call::{Endpoint, RequestBuilder, impl_client};
use crate::client::{
    ClientError, HttpTransport, Method, Options, Refusal, Response, ResponseBody, Transport,
};

pub use input::InputMessages;
pub use new_run::NewRun;
pub use resume::Resume;
pub use session::Session;
pub use stream::{RunStream, StreamedEvent};
pub use wire::{
    AgentManifest, AgentsList, AwaitRequest, ErrorBody, ErrorCode, Event, EventKind, EventsList,
    Message, MessagePart, Role, Run, RunCreateRequest, RunMode, RunStatus, RunsList, Uuid,
};

/// A client of one server. Cheap to clone.
///
/// A call fails with the server's error: `not_found` if a name or id does not exist.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Arc<Endpoint>,
}

/// Selects runs. The filter and the list of runs are Trilogue extensions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Only runs of this agent.
    pub agent_name: Option<String>,
    /// Only runs of this session.
    pub session_id: Option<wire::Uuid>,
    /// Only runs with this status.
    pub status: Option<wire::RunStatus>,
    /// Continue after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// The maximum number of runs.
    pub limit: Option<u32>,
}

// === impl Client ===

impl_client!("", "http://127.0.0.1:7878/communication");

impl Client {
    /// Checks that the server is reachable.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let body = self.bytes(self.call(Method::Get, &["ping"])).await?;
        let read = serde_json::from_slice::<serde_json::Map<_, _>>(&body);
        read.map(drop).map_err(|error| ClientError::Unexpected(format!("no ping: {error}")))
    }

    /// Returns all agents.
    pub async fn agents(&self) -> Result<AgentsList, ClientError> {
        self.fetch(self.call(Method::Get, &["agents"])).await
    }

    /// Returns at most `limit` agents, starting at `offset`. A server without paging returns all agents.
    pub async fn agents_page(&self, limit: u32, offset: u32) -> Result<AgentsList, ClientError> {
        let call = self.call(Method::Get, &["agents"]);
        let call = call.query("limit", Some(&limit.to_string()));
        self.fetch(call.query("offset", Some(&offset.to_string()))).await
    }

    /// Returns one agent.
    pub async fn agent(&self, name: &str) -> Result<AgentManifest, ClientError> {
        self.fetch(self.call(Method::Get, &["agents", name])).await
    }

    /// Creates a run and waits until it has ended or awaits an answer.
    ///
    /// # Errors
    /// The server's error. A failed run is not an error.
    pub async fn run_sync(&self, new: impl Into<NewRun>) -> Result<Run, ClientError> {
        self.fetch(new.into().call(self, RunMode::Sync)?.without_time_limit()).await
    }

    /// Creates a run and returns its current state.
    pub async fn run_async(&self, new: impl Into<NewRun>) -> Result<Run, ClientError> {
        self.fetch(new.into().call(self, RunMode::Async)?).await
    }

    /// Creates a run and streams its events, from the first until the run has ended or awaits an answer.
    ///
    /// The stream continues after a break. If the run has an idempotency key, its request is sent again even if the first response was lost.
    pub async fn run_stream(&self, new: impl Into<NewRun>) -> Result<RunStream, ClientError> {
        RunStream::create(self.clone(), new.into()).await
    }

    /// Answers a run and waits until it has ended or awaits another answer.
    ///
    /// # Errors
    /// The server's error: if the run awaits no answer, or if the answer does not fit.
    pub async fn resume_sync(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
    ) -> Result<Run, ClientError> {
        self.fetch(answer.into().call(self, run, RunMode::Sync)?.without_time_limit()).await
    }

    /// Answers a run and returns its current state.
    pub async fn resume_async(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
    ) -> Result<Run, ClientError> {
        self.fetch(answer.into().call(self, run, RunMode::Async)?).await
    }

    /// Answers a run and streams its further events, until the run has ended or awaits another answer.
    ///
    /// First reads the number of existing events, so that the stream can continue after a break on every server. [`RunStream::resume`] already knows the number.
    pub async fn resume_stream(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
    ) -> Result<RunStream, ClientError> {
        RunStream::resumed(self.clone(), run, answer.into(), RunMode::Stream).await
    }

    /// Returns the events of a run as a stream that continues after a break: all events, or the events after this id.
    ///
    /// It ends with the run, or when the run awaits an answer.
    #[must_use]
    pub fn follow(&self, run: wire::Uuid, after: Option<&str>) -> RunStream {
        RunStream::follow(self.clone(), run, after)
    }

    /// Returns the events of a run that was started without a stream, like [`Client::follow`].
    ///
    /// If the server lists no events, the stream returns the run's state when the run has ended or awaits an answer.
    #[must_use]
    pub fn follow_run(&self, run: wire::Run) -> RunStream {
        RunStream::of_run(self.clone(), run)
    }

    /// Answers like [`Client::resume_stream`], in another mode, for a server without streaming.
    pub async fn resume_as(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
        mode: RunMode,
    ) -> Result<RunStream, ClientError> {
        RunStream::resumed(self.clone(), run, answer.into(), mode).await
    }

    /// Returns one run.
    pub async fn run(&self, run: wire::Uuid) -> Result<Run, ClientError> {
        self.fetch(self.call(Method::Get, &["runs", &run.to_string()])).await
    }

    /// Returns the events of a run so far.
    pub async fn events(&self, run: wire::Uuid) -> Result<EventsList, ClientError> {
        self.fetch(self.call(Method::Get, &["runs", &run.to_string(), "events"])).await
    }

    /// Returns the runs that match, newest first. Only Trilogue servers have this list.
    pub async fn runs(&self, filter: &Filter) -> Result<RunsList, ClientError> {
        let session = filter.session_id.map(|id| id.to_string());
        let limit = filter.limit.map(|limit| limit.to_string());
        let call = self
            .call(Method::Get, &["runs"])
            .query("agent_name", filter.agent_name.as_deref())
            .query("session_id", session.as_deref())
            .query("status", filter.status.map(wire::RunStatus::as_str))
            .query("after", filter.after.as_deref())
            .query("limit", limit.as_deref());
        self.fetch(call).await
    }

    /// Requests cancellation of a run.
    ///
    /// # Errors
    /// `not_found`; status 403 if the run has ended.
    pub async fn cancel(&self, run: wire::Uuid) -> Result<Run, ClientError> {
        self.fetch(self.call(Method::Post, &["runs", &run.to_string(), "cancel"])).await
    }

    /// Returns a session as the server has it.
    pub async fn session(&self, session: wire::Uuid) -> Result<wire::Session, ClientError> {
        self.fetch(self.call(Method::Get, &["sessions", &session.to_string()])).await
    }

    /// Returns a message of a history, by the id at the end of its address.
    pub async fn resource(&self, id: &str) -> Result<Message, ClientError> {
        self.fetch(self.call(Method::Get, &["resources", id])).await
    }

    /// Returns the content at a path of this server.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`] if the path is not on this server; `not_found`.
    pub async fn content(&self, path: &str) -> Result<ResponseBody, ClientError> {
        Ok(self.send(RequestBuilder::content(path)?).await?.body)
    }

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns `true` if both are clones of the same client. Then they use the same server.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.endpoint, &other.endpoint)
    }

    async fn fetch<T: Read>(&self, call: RequestBuilder) -> Result<T, ClientError> {
        read(&self.bytes(call.header("accept", "application/json")).await?)
    }

    async fn bytes(&self, call: RequestBuilder) -> Result<bytes::Bytes, ClientError> {
        self.endpoint.whole(self.send(call).await?).await
    }

    async fn send(&self, call: RequestBuilder) -> Result<Response, ClientError> {
        let refused = |status, body: &[u8]| {
            let refusal = match wire::read(body, Rules::Lenient) {
                Ok(body) => Refusal::new(Some(status), body),
                Err(_) => Refusal::foreign(status),
            };
            ClientError::Refused(Box::new(refusal))
        };
        self.endpoint.send(call, refused).await
    }
}

fn read<T: Read>(bytes: &[u8]) -> Result<T, ClientError> {
    wire::read(bytes, Rules::Lenient)
        .map_err(|violation| ClientError::Unexpected(violation.to_string()))
}
