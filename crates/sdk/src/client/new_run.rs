//! The request for a new run, with its idempotency key.

use serde::Serialize;
use trilogue_domain::RunId;
use trilogue_wire::native::{RunCreate, RunInput, RunMode};

use super::Client;
use super::call::{RequestBuilder, json};
use super::error::ClientError;
use super::resumable::EVENT_STREAM;
use super::transport::Method;

/// A new run. Other settings of its request are in [`NewRun::create`].
#[derive(Clone, PartialEq, Debug)]
pub struct NewRun {
    /// The request.
    pub create: RunCreate,
    /// The `Idempotency-Key`. For 24 hours, the server creates the same run under the same key only once.
    pub idempotency_key: Option<String>,
}

// === impl NewRun ===

impl NewRun {
    /// Returns a run of this agent with a text, messages or a value as its input. Without a thread, it gets one that is not listed.
    #[must_use]
    pub fn new(agent: impl Into<String>, input: impl Into<RunInput>) -> Self {
        RunCreate::new(agent, input).into()
    }

    /// Runs on this thread.
    #[must_use]
    pub fn on_thread(mut self, thread: impl Into<String>) -> Self {
        self.create.thread_id = Some(thread.into());
        self
    }

    /// Runs on this thread, and creates the thread if it does not exist.
    #[must_use]
    pub fn on_new_thread(mut self, thread: impl Into<String>) -> Self {
        self.create.create_thread = true;
        self.on_thread(thread)
    }

    /// Sets the agent's configuration.
    #[must_use]
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.create.config = json(&config);
        self
    }

    /// Creates the run only once under this key of 1 to 256 ASCII characters. A repeated request returns the existing run.
    ///
    /// The server compares whole requests, so the rest of the request must stay the same, including the mode. Another request under the same key fails with `idempotency_mismatch`.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), ..self }
    }

    pub(super) fn in_mode(mut self, mode: RunMode) -> Self {
        self.create.mode = mode;
        self
    }

    /// Makes sure that the run can be found again even if no event arrives. Sets an id, unless the run has one or has a key. With a key, the request must not change.
    pub(super) fn ensure_findable(&mut self) {
        if self.create.id.is_none() && self.idempotency_key.is_none() {
            self.create.id = Some(RunId::generate().as_str().to_owned());
        }
    }

    pub(super) fn call(&self, client: &Client) -> Result<RequestBuilder, ClientError> {
        let call = client.call(Method::Post, &["runs"]).json(&self.create)?;
        Ok(call.idempotency_key(self.idempotency_key.as_ref()))
    }

    /// Returns the request whose response is the run's event stream.
    pub(super) fn stream_call(&self, client: &Client) -> Result<RequestBuilder, ClientError> {
        Ok(self.call(client)?.header("accept", EVENT_STREAM))
    }
}

impl From<RunCreate> for NewRun {
    fn from(create: RunCreate) -> Self {
        Self { create, idempotency_key: None }
    }
}
