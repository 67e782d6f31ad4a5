//! A client of the Agent Communication Protocol, over HTTP or another [`Transport`].
//!
//! It talks to any server of the protocol and uses what a server can do beyond it where it is there: streams go on after a break, on other servers too.
//!
//! ```no_run
//! use trilogue_sdk::client::ClientError;
//! use trilogue_sdk::communication::{Client, NewRun, Session};
//!
//! async fn greet() -> Result<(), ClientError> {
//!     let one = Client::at("http://127.0.0.1:7878/communication")?;
//!     let run = one.run_sync(NewRun::new("echo", "Howdy!")).await?;
//!     assert_eq!(run.output[0].plain_text(), "Howdy!");
//!
//!     // A conversation that goes on elsewhere.
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

use trilogue_wire::agent_communication::{
    self as wire, AgentManifest, AgentsList, EventsList, Message, Read, Rules, Run, RunMode,
    RunsList,
};

use crate::client::call::{Endpoint, RequestBuilder, impl_client};
use crate::client::{
    ClientError, HttpTransport, Method, Options, Refusal, Response, ResponseBody, Transport,
};

pub use input::InputMessages;
pub use new_run::NewRun;
pub use resume::Resume;
pub use session::Session;
pub use stream::{RunStream, StreamedEvent};

/// A client of one server. Cheap to clone.
///
/// A call fails with what the server refuses: with `not_found` where it names something that is not there.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Arc<Endpoint>,
}

/// Which runs: an extension of ours, like the listing itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Only of this agent.
    pub agent_name: Option<String>,
    /// Only of this session.
    pub session_id: Option<wire::Uuid>,
    /// Only with this status.
    pub status: Option<wire::RunStatus>,
    /// Continue after this: `next` of the page before.
    pub after: Option<String>,
    /// The most runs.
    pub limit: Option<u32>,
}

// === impl Client ===

impl_client!("", "http://127.0.0.1:7878/communication");

impl Client {
    /// Whether the server is there.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let body = self.bytes(self.call(Method::Get, &["ping"])).await?;
        let read = serde_json::from_slice::<serde_json::Map<_, _>>(&body);
        read.map(drop).map_err(|error| ClientError::Unexpected(format!("no ping: {error}")))
    }

    /// All agents.
    pub async fn agents(&self) -> Result<AgentsList, ClientError> {
        self.fetch(self.call(Method::Get, &["agents"])).await
    }

    /// At most `limit` agents, from the one at `offset` on. A server that does not page gives all.
    pub async fn agents_page(&self, limit: u32, offset: u32) -> Result<AgentsList, ClientError> {
        let call = self.call(Method::Get, &["agents"]);
        let call = call.query("limit", Some(&limit.to_string()));
        self.fetch(call.query("offset", Some(&offset.to_string()))).await
    }

    /// One agent.
    pub async fn agent(&self, name: &str) -> Result<AgentManifest, ClientError> {
        self.fetch(self.call(Method::Get, &["agents", name])).await
    }

    /// Creates a run and waits until it has ended or awaits an answer.
    ///
    /// # Errors
    /// What the server refuses; a run that failed is no error.
    pub async fn run_sync(&self, new: impl Into<NewRun>) -> Result<Run, ClientError> {
        self.fetch(new.into().call(self, RunMode::Sync)?.waiting()).await
    }

    /// Creates a run and gives it as it is then.
    pub async fn run_async(&self, new: impl Into<NewRun>) -> Result<Run, ClientError> {
        self.fetch(new.into().call(self, RunMode::Async)?).await
    }

    /// Creates a run and streams its events, from the first until it has ended or awaits an answer.
    ///
    /// The stream goes on after a break. A run with an idempotency key is asked for again even when the server's answer was lost.
    pub async fn run_stream(&self, new: impl Into<NewRun>) -> Result<RunStream, ClientError> {
        RunStream::create(self.clone(), new.into()).await
    }

    /// Answers a run and waits until it has ended or awaits another answer.
    ///
    /// # Errors
    /// What the server refuses: a run that awaits nothing, an answer that does not fit.
    pub async fn resume_sync(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
    ) -> Result<Run, ClientError> {
        self.fetch(answer.into().call(self, run, RunMode::Sync)?.waiting()).await
    }

    /// Answers a run and gives it as it is then.
    pub async fn resume_async(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
    ) -> Result<Run, ClientError> {
        self.fetch(answer.into().call(self, run, RunMode::Async)?).await
    }

    /// Answers a run and streams what it does then, until it has ended or awaits another answer.
    ///
    /// Asks before how many events there are, so that the stream can go on after a break on every server; [`RunStream::resume`] knows that already.
    pub async fn resume_stream(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
    ) -> Result<RunStream, ClientError> {
        RunStream::resumed(self.clone(), run, answer.into(), RunMode::Stream).await
    }

    /// The events of a run as a stream that goes on after a break: all of them, or those after the event with this id.
    ///
    /// It ends with the run, or when the run awaits an answer.
    #[must_use]
    pub fn follow(&self, run: wire::Uuid, after: Option<&str>) -> RunStream {
        RunStream::follow(self.clone(), run, after)
    }

    /// The events of a run that was begun without a stream, as [`Client::follow`] gives them.
    ///
    /// Of a server that lists no events, it is what the server says of the run once it stands still.
    #[must_use]
    pub fn follow_run(&self, run: wire::Run) -> RunStream {
        RunStream::of_run(self.clone(), run)
    }

    /// As [`Client::resume_stream`], in another mode: of a server that does not stream.
    pub async fn resume_as(
        &self,
        run: wire::Uuid,
        answer: impl Into<Resume>,
        mode: RunMode,
    ) -> Result<RunStream, ClientError> {
        RunStream::resumed(self.clone(), run, answer.into(), mode).await
    }

    /// One run.
    pub async fn run(&self, run: wire::Uuid) -> Result<Run, ClientError> {
        self.fetch(self.call(Method::Get, &["runs", &run.to_string()])).await
    }

    /// The events of a run so far.
    pub async fn events(&self, run: wire::Uuid) -> Result<EventsList, ClientError> {
        self.fetch(self.call(Method::Get, &["runs", &run.to_string(), "events"])).await
    }

    /// The runs that match, newest first. Only servers of ours have this listing.
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

    /// Asks a run to stop.
    ///
    /// # Errors
    /// `not_found`; a refusal with status 403 when it has ended.
    pub async fn cancel(&self, run: wire::Uuid) -> Result<Run, ClientError> {
        self.fetch(self.call(Method::Post, &["runs", &run.to_string(), "cancel"])).await
    }

    /// A session as the server has it.
    pub async fn session(&self, session: wire::Uuid) -> Result<wire::Session, ClientError> {
        self.fetch(self.call(Method::Get, &["sessions", &session.to_string()])).await
    }

    /// A message of a history, by the id at the end of its address.
    pub async fn resource(&self, id: &str) -> Result<Message, ClientError> {
        self.fetch(self.call(Method::Get, &["resources", id])).await
    }

    /// The bytes of content at a path of this server.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`] for what is no path on this server; `not_found`.
    pub async fn content(&self, path: &str) -> Result<ResponseBody, ClientError> {
        Ok(self.send(RequestBuilder::content(path)?).await?.body)
    }

    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether both are the same client: of the same server, for all that is known.
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
