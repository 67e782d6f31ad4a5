//! Clients over HTTP or another [`Transport`]: of the native API `/api/v1` here, and of two protocols in [`communication`] and [`connect`].
//!
//! Bodies are read up to a limit, and streams in chunks. A stream that breaks is resumed after the last received event.
//!
//! ```no_run
//! use trilogue_sdk::client::{Client, ClientError, HttpTransport, NewRun};
//!
//! async fn greet(token: &str) -> Result<(), ClientError> {
//!     let server = HttpTransport::to("http://127.0.0.1:7878")?.token(token);
//!     let mut events = Client::from_http(server).stream_run(NewRun::new("echo", "Hello")).await?;
//!     while let Some(item) = events.next().await? {
//!         print!("{}", item.text().unwrap_or_default());
//!     }
//!     Ok(())
//! }
//! ```

pub(crate) mod call;
pub mod communication;
pub mod connect;
mod error;
mod events;
mod http;
mod new_run;
mod options;
pub(crate) mod resumable;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use trilogue_wire::native::{
    Agent, AnswerCreate, CallbackKeys, CallbackTarget, Caller, Checkpoint, Delivery, Event,
    Interrupt, List, LoginApproval, LoginBegin, LoginBegun, LoginCode, LoginSecret, LoginState,
    LoginView, Message, Node, Problem, Run, RunMode, SignInLink, Status, Thread, ThreadCopy,
    ThreadCreate, ThreadPatch, Token, TokenCreate, TokenCreated,
};

pub use error::{ClientError, Refusal};
pub use events::{EventStream, StreamItem};
pub use http::{Credential, HttpTransport};
pub use new_run::NewRun;
pub use options::Options;
pub use transport::{
    Method, Request, Response, ResponseBody, Transport, TransportError, collect_body,
};

/// The objects of the API, as they are sent.
pub use trilogue_wire::native as wire;

use call::{Endpoint, RequestBuilder, impl_client, perhaps_elsewhere};
use events::EventScope;
use options::DEFAULT_BASE;

/// The longest wait that a client can request, in seconds.
const MAX_WAIT_SECONDS: u64 = 3_600;

/// A client of one server. Cheap to clone.
///
/// A call fails with the server's error. If an id does not exist, the error has the code of its kind, such as `thread_not_found`.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Arc<Endpoint>,
}

/// One page of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Continue after this cursor: `next` of the previous page.
    pub after: Option<String>,
    /// The maximum number of items.
    pub limit: Option<u32>,
}

/// Selects threads, runs or interrupts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Only items of this thread.
    pub thread: Option<String>,
    /// Only items of this run.
    pub run: Option<String>,
    /// Only items of this agent.
    pub agent: Option<String>,
    /// Only items with this status. For runs.
    pub status: Option<String>,
    /// Only items whose metadata has these members at the top level, as text. For threads and runs.
    pub metadata: Vec<(String, String)>,
    /// Also resolved interrupts. For interrupts.
    pub resolved: bool,
    /// Only items whose id this abbreviates; other conditions are then ignored. For threads, runs, interrupts and tokens.
    pub short_id: Option<String>,
}

// === impl Client ===

impl_client!(DEFAULT_BASE, "http://127.0.0.1:7878");

impl Client {
    /// Returns the agents.
    pub async fn agents(&self, page: &Page) -> Result<List<Agent>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["agents"]), page)).await
    }

    /// Returns one agent.
    ///
    /// # Errors
    /// `agent_not_found`, with the name of the most similar agent.
    pub async fn agent(&self, name: &str) -> Result<Agent, ClientError> {
        self.fetch(self.call(Method::Get, &["agents", name])).await
    }

    /// Returns the threads, newest first.
    pub async fn threads(&self, page: &Page) -> Result<List<Thread>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["threads"]), page)).await
    }

    /// Returns the threads that match, newest first.
    pub async fn find_threads(
        &self,
        filter: &Filter,
        page: &Page,
    ) -> Result<List<Thread>, ClientError> {
        self.fetch(paged(filtered(self.call(Method::Get, &["threads"]), filter), page)).await
    }

    /// Returns one thread.
    pub async fn thread(&self, id: &str) -> Result<Thread, ClientError> {
        self.fetch(self.call(Method::Get, &["threads", id])).await
    }

    /// Creates a thread.
    ///
    /// # Errors
    /// `already_exists`.
    pub async fn create_thread(&self, new: &ThreadCreate) -> Result<Thread, ClientError> {
        self.fetch(self.call(Method::Post, &["threads"]).json(new)?).await
    }

    /// Changes a thread.
    pub async fn patch_thread(&self, id: &str, patch: &ThreadPatch) -> Result<Thread, ClientError> {
        self.fetch(self.call(Method::Patch, &["threads", id]).json(patch)?).await
    }

    /// Copies a thread.
    pub async fn copy_thread(&self, id: &str, copy: &ThreadCopy) -> Result<Thread, ClientError> {
        self.fetch(self.call(Method::Post, &["threads", id, "copy"]).json(copy)?).await
    }

    /// Erases a thread with all its data.
    pub async fn erase_thread(&self, id: &str) -> Result<(), ClientError> {
        self.act(self.call(Method::Delete, &["threads", id])).await
    }

    /// Returns the first page of the messages of a thread's history, newest first.
    ///
    /// To read a whole conversation, use [`Client::messages_page`] and reverse the order.
    pub async fn messages(&self, thread: &str) -> Result<List<Message>, ClientError> {
        self.messages_page(thread, &Page::default()).await
    }

    /// Returns one page of the messages of a thread's history, newest first; `next` leads to earlier ones. A page holds whole runs, so it may have more messages than its limit.
    ///
    /// # Errors
    /// `thread_not_found`, `invalid_cursor`.
    pub async fn messages_page(
        &self,
        thread: &str,
        page: &Page,
    ) -> Result<List<Message>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["threads", thread, "messages"]), page)).await
    }

    /// Returns the checkpoints of a thread's history, newest first.
    pub async fn checkpoints(
        &self,
        thread: &str,
        page: &Page,
    ) -> Result<List<Checkpoint>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["threads", thread, "checkpoints"]), page)).await
    }

    /// Creates a run and waits until it has ended or waits for an answer.
    ///
    /// # Errors
    /// The server's error. A failed run is not an error.
    pub async fn run_and_wait(&self, new: impl Into<NewRun>) -> Result<Run, ClientError> {
        self.fetch(new.into().in_mode(RunMode::Wait).call(self)?.without_time_limit()).await
    }

    /// Creates a run and returns as soon as it is durable.
    pub async fn start_run(&self, new: impl Into<NewRun>) -> Result<Run, ClientError> {
        self.fetch(new.into().in_mode(RunMode::Async).call(self)?).await
    }

    /// Creates a run and streams its events, starting with the first.
    ///
    /// The stream recovers even if the first connection breaks before its first event: the client chooses the run's id, or it sends the request again if the request has an idempotency key and no id.
    pub async fn stream_run(&self, new: impl Into<NewRun>) -> Result<EventStream, ClientError> {
        let mut new = new.into().in_mode(RunMode::Stream);
        new.ensure_findable();
        let response = self.send(new.stream_call(self)?).await?;
        let scope = match &new.create.id {
            Some(id) => EventScope::Run(id.clone()),
            None => EventScope::New(Box::new(new)),
        };
        EventStream::from_response(self.clone(), scope, response)
    }

    /// Returns one run, with its output and its pending interrupts.
    pub async fn run(&self, id: &str) -> Result<Run, ClientError> {
        self.fetch(self.call(Method::Get, &["runs", id])).await
    }

    /// Waits until a run has ended or waits for an answer, and returns it. Returns the run unchanged after one hour.
    pub async fn wait_for_run(&self, id: &str) -> Result<Run, ClientError> {
        self.fetch(self.call(Method::Get, &["runs", id, "wait"]).without_time_limit()).await
    }

    /// Waits like [`Client::wait_for_run`], at most for this duration.
    ///
    /// The duration is rounded up to whole seconds. The server waits at most 3600 seconds.
    pub async fn wait_for_run_within(&self, id: &str, limit: Duration) -> Result<Run, ClientError> {
        let rounded = limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0));
        let seconds = rounded.min(MAX_WAIT_SECONDS).to_string();
        let call = self.call(Method::Get, &["runs", id, "wait"]).without_time_limit();
        self.fetch(call.query("timeout_seconds", Some(&seconds))).await
    }

    /// Returns the runs that match, newest first.
    pub async fn runs(&self, filter: &Filter, page: &Page) -> Result<List<Run>, ClientError> {
        self.fetch(paged(filtered(self.call(Method::Get, &["runs"]), filter), page)).await
    }

    /// Requests cancellation of a run.
    ///
    /// # Errors
    /// `run_not_found`, `run_ended`.
    pub async fn cancel_run(&self, id: &str) -> Result<Run, ClientError> {
        self.fetch(self.call(Method::Post, &["runs", id, "cancel"])).await
    }

    /// Removes an ended run with its events.
    ///
    /// # Errors
    /// `run_not_found`, `run_not_ended`.
    pub async fn remove_run(&self, id: &str) -> Result<(), ClientError> {
        self.act(self.call(Method::Delete, &["runs", id])).await
    }

    /// Returns the events of a run after this cursor, as a stream that resumes by itself.
    #[must_use]
    pub fn run_events(&self, run: &str, after: Option<&str>) -> EventStream {
        EventStream::new(self.clone(), EventScope::Run(run.to_owned()), after.map(str::to_owned))
    }

    /// Returns the events of a thread after this cursor, as a stream that resumes by itself.
    #[must_use]
    pub fn thread_events(&self, thread: &str, after: Option<&str>) -> EventStream {
        EventStream::new(
            self.clone(),
            EventScope::Thread(thread.to_owned()),
            after.map(str::to_owned),
        )
    }

    /// Returns one page of a run's existing events.
    ///
    /// # Errors
    /// `run_not_found`, `invalid_cursor`.
    pub async fn run_events_page(
        &self,
        run: &str,
        page: &Page,
    ) -> Result<List<Event>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["runs", run, "events"]), page)).await
    }

    /// Returns one page of a thread's existing events.
    ///
    /// # Errors
    /// `thread_not_found`, `invalid_cursor`.
    pub async fn thread_events_page(
        &self,
        thread: &str,
        page: &Page,
    ) -> Result<List<Event>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["threads", thread, "events"]), page)).await
    }

    /// Returns one page of a thread's existing events, starting with the first event of a message.
    ///
    /// # Errors
    /// `thread_not_found`; `not_found` if the thread has no message with this id.
    pub async fn thread_events_from(
        &self,
        thread: &str,
        message: &str,
        limit: Option<u32>,
    ) -> Result<List<Event>, ClientError> {
        let call = self.call(Method::Get, &["threads", thread, "events"]);
        let page = Page { after: None, limit };
        self.fetch(paged(call.query("from_message", Some(message)), &page)).await
    }

    /// Returns the interrupts that match, newest first. Without [`Filter::resolved`], only pending ones.
    pub async fn interrupts(
        &self,
        filter: &Filter,
        page: &Page,
    ) -> Result<List<Interrupt>, ClientError> {
        let call = filtered(self.call(Method::Get, &["interrupts"]), filter);
        let call = call.query("pending", (!filter.resolved).then_some("true"));
        self.fetch(paged(call, page)).await
    }

    /// Returns one interrupt.
    pub async fn interrupt(&self, id: &str) -> Result<Interrupt, ClientError> {
        self.fetch(self.call(Method::Get, &["interrupts", id])).await
    }

    /// Answers an interrupt.
    ///
    /// # Errors
    /// `interrupt_not_found`, `interrupt_resolved`, `answer_invalid`.
    pub async fn answer(&self, id: &str, answer: &AnswerCreate) -> Result<Interrupt, ClientError> {
        self.fetch(self.call(Method::Post, &["interrupts", id, "answer"]).json(answer)?).await
    }

    /// Answers a run: the interrupt that the answer names, otherwise the one that was last shown to this client's principal.
    ///
    /// # Errors
    /// `run_not_found`, `interrupt_mismatch`, `interrupt_resolved`, `answer_invalid`.
    pub async fn answer_run(
        &self,
        run: &str,
        answer: &AnswerCreate,
    ) -> Result<Interrupt, ClientError> {
        self.fetch(self.call(Method::Post, &["runs", run, "answer"]).json(answer)?).await
    }

    /// Returns the keys that verify the callbacks to this address. The server sends these callbacks for this client's principal.
    ///
    /// # Errors
    /// `invalid_request` if the address is not an HTTP or HTTPS URL.
    pub async fn callback_keys(
        &self,
        target: &CallbackTarget,
    ) -> Result<CallbackKeys, ClientError> {
        self.fetch(self.call(Method::Post, &["callback-keys"]).json(target)?).await
    }

    /// Returns the callback deliveries that have failed for good, newest first.
    pub async fn deliveries(&self, page: &Page) -> Result<List<Delivery>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["deliveries"]), page)).await
    }

    /// Retries a failed callback delivery.
    pub async fn redeliver(&self, id: &str) -> Result<(), ClientError> {
        self.act(self.call(Method::Post, &["deliveries", id, "redeliver"])).await
    }

    /// Who the caller is, and what it may do. Every token with the right `read` gets this.
    pub async fn caller(&self) -> Result<Caller, ClientError> {
        self.fetch(self.call(Method::Get, &["caller"])).await
    }

    /// Returns the status of the server.
    ///
    /// # Errors
    /// `forbidden` without the right `server`.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.fetch(self.call(Method::Get, &["status"])).await
    }

    /// Returns the servers that share the store; empty if only one server uses it.
    ///
    /// # Errors
    /// `forbidden` without the right `server`.
    pub async fn nodes(&self) -> Result<List<Node>, ClientError> {
        self.fetch(self.call(Method::Get, &["nodes"])).await
    }

    /// Starts draining a server: it hands its threads over and takes no others.
    ///
    /// # Errors
    /// `not_found`; `peer_unavailable` if the server sends no heartbeat; `forbidden` without the right `server`.
    pub async fn drain_node(&self, name: &str) -> Result<Node, ClientError> {
        self.fetch(self.call(Method::Post, &["nodes", name, "drain"])).await
    }

    /// Ends draining a server: it takes threads again.
    ///
    /// # Errors
    /// Like [`Self::drain_node`].
    pub async fn undrain_node(&self, name: &str) -> Result<Node, ClientError> {
        self.fetch(self.call(Method::Delete, &["nodes", name, "drain"])).await
    }

    /// Returns the tokens, without their secrets.
    ///
    /// # Errors
    /// `forbidden` without the right `admin`.
    pub async fn tokens(&self, page: &Page) -> Result<List<Token>, ClientError> {
        self.fetch(paged(self.call(Method::Get, &["tokens"]), page)).await
    }

    /// Returns the tokens that match, without their secrets.
    ///
    /// # Errors
    /// `forbidden` without the right `admin`.
    pub async fn find_tokens(&self, filter: &Filter) -> Result<List<Token>, ClientError> {
        self.fetch(filtered(self.call(Method::Get, &["tokens"]), filter)).await
    }

    /// Creates a token. The response is the only place where its secret is shown.
    ///
    /// # Errors
    /// `forbidden` without the right `admin`.
    pub async fn create_token(&self, new: &TokenCreate) -> Result<TokenCreated, ClientError> {
        self.fetch(self.call(Method::Post, &["tokens"]).json(new)?).await
    }

    /// Begins to log in from another machine. Needs no token.
    ///
    /// # Errors
    /// `overloaded`.
    pub async fn begin_login(&self, new: &LoginBegin) -> Result<LoginBegun, ClientError> {
        self.fetch(self.call(Method::Post, &["logins"]).json(new)?).await
    }

    /// Asks for the token of a login. Needs no token.
    ///
    /// # Errors
    /// `unauthenticated` if the login has ended.
    pub async fn collect_login(&self, secret: &str) -> Result<LoginState, ClientError> {
        let secret = LoginSecret { secret: secret.to_owned() };
        self.fetch(self.call(Method::Post, &["logins", "collect"]).json(&secret)?).await
    }

    /// Returns what asks for a token with this code.
    ///
    /// # Errors
    /// `not_found`, `overloaded`.
    pub async fn login(&self, code: &str) -> Result<LoginView, ClientError> {
        let code = LoginCode { code: code.to_owned() };
        self.fetch(self.call(Method::Post, &["logins", "look-up"]).json(&code)?).await
    }

    /// Approves a login. Only its program gets the secret of the token.
    ///
    /// # Errors
    /// `not_found`, `overloaded`, and those of [`Client::create_token`].
    pub async fn approve_login(&self, approval: &LoginApproval) -> Result<Token, ClientError> {
        self.fetch(self.call(Method::Post, &["logins", "approve"]).json(approval)?).await
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// `not_found`; `forbidden` without the right `admin`.
    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        self.act(self.call(Method::Delete, &["tokens", id])).await
    }

    /// Creates a link that signs a browser in once, with the rights of this client.
    ///
    /// # Errors
    /// `not_found` if the server has no inspector.
    pub async fn create_sign_in_link(&self) -> Result<SignInLink, ClientError> {
        self.fetch(self.call(Method::Post, &["sign-in-links"])).await
    }

    /// Returns all data of a thread, as the server streams it.
    pub async fn export_thread(&self, id: &str) -> Result<ResponseBody, ClientError> {
        self.bytes(self.call(Method::Get, &["threads", id, "export"])).await
    }

    /// Returns a snapshot of the store, as the server streams it.
    ///
    /// # Errors
    /// `forbidden` without the right `server`.
    pub async fn backup(&self) -> Result<ResponseBody, ClientError> {
        self.bytes(self.call(Method::Post, &["backup"]).without_time_limit()).await
    }

    /// Returns the bytes of large content, by the path in a part's blob link.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`] if the path is not on this server; `not_found`.
    pub async fn blob(&self, path: &str) -> Result<ResponseBody, ClientError> {
        self.bytes(RequestBuilder::content(path)?).await
    }

    async fn fetch<T: DeserializeOwned>(&self, call: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(call.header("accept", "application/json")).await?;
        let body = self.endpoint.whole(response).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Unexpected(error.to_string()))
    }

    async fn act(&self, call: RequestBuilder) -> Result<(), ClientError> {
        self.send(call).await.map(drop)
    }

    async fn bytes(&self, call: RequestBuilder) -> Result<ResponseBody, ClientError> {
        Ok(self.send(call).await?.body)
    }

    async fn send(&self, call: RequestBuilder) -> Result<Response, ClientError> {
        let refused = |status, body: &[u8]| match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => ClientError::Problem(Box::new(problem)),
            Err(_) => ClientError::Unexpected(format!(
                "status {status} without a problem{}",
                perhaps_elsewhere(status)
            )),
        };
        self.endpoint.send(call, refused).await
    }
}

fn paged(call: RequestBuilder, page: &Page) -> RequestBuilder {
    let limit = page.limit.map(|limit| limit.to_string());
    call.query("after", page.after.as_deref()).query("limit", limit.as_deref())
}

fn filtered(call: RequestBuilder, filter: &Filter) -> RequestBuilder {
    let call = call
        .query("thread_id", filter.thread.as_deref())
        .query("run_id", filter.run.as_deref())
        .query("agent", filter.agent.as_deref())
        .query("status", filter.status.as_deref())
        .query("short_id", filter.short_id.as_deref());
    filter
        .metadata
        .iter()
        .fold(call, |call, (key, value)| call.query(&format!("metadata.{key}"), Some(value)))
}
