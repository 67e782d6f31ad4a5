use serde::Serialize;
use trilogue_wire::agent_connect::{RunCreate, StreamModes};
use trilogue_wire::native::Json;

use super::{Client, IfNotExists, Object, OnDisconnect, StreamMode};
use crate::client::call::{RequestBuilder, json};
use crate::client::{ClientError, Method};

/// A new run: a stateless one, or one on a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewRun {
    /// The request.
    pub request: RunCreate,
    /// The thread of the run; `None` for a stateless run.
    pub thread: Option<String>,
    /// The `Idempotency-Key`. A Trilogue server creates the same run under the same key only once.
    pub idempotency_key: Option<String>,
    /// More header fields of the request. Names are in lower case.
    pub headers: Vec<(&'static str, String)>,
}

/// The kind of response, which is the end of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Create,
    Wait,
    Stream,
}

// === impl NewRun ===

impl NewRun {
    /// Returns a stateless run of the agent or configured instance with this id. The input fits the agent's schema; agents that take messages on Trilogue servers also accept a text.
    #[must_use]
    pub fn new(agent: impl Into<String>, input: impl Serialize) -> Self {
        let (agent_id, input) = (Some(agent.into()), json(&input));
        RunCreate { agent_id, input, ..RunCreate::default() }.into()
    }

    /// Sets the configuration.
    #[must_use]
    pub fn config(mut self, config: impl Serialize) -> Self {
        let configurable = json(&config).map(|config| config.into_string());
        self.request.config = configurable
            .and_then(|config| Json::parse(format!(r#"{{"configurable":{config}}}"#)).ok());
        self
    }

    /// Sets the metadata, by which the run can be found. A value that is not an object is left out.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Serialize) -> Self {
        self.request.metadata = json(&metadata).and_then(Object::new);
        self
    }

    /// Runs on this thread.
    #[must_use]
    pub fn on_thread(mut self, thread: impl Into<String>) -> Self {
        self.thread = Some(thread.into());
        self
    }

    /// Runs on this thread, and creates the thread if it does not exist.
    #[must_use]
    pub fn on_new_thread(mut self, thread: impl Into<String>) -> Self {
        self.request.if_not_exists = Some(IfNotExists::Create);
        self.on_thread(thread)
    }

    /// Sets the stream modes. If the list is empty, the server chooses.
    #[must_use]
    pub fn streaming(mut self, modes: impl IntoIterator<Item = StreamMode>) -> Self {
        let modes = StreamModes::new(modes);
        self.request.stream_mode = Some(modes).filter(|modes| !modes.as_slice().is_empty());
        self
    }

    /// Creates the run only once under this key of 1 to 256 ASCII characters, on Trilogue servers. A repeated request returns the existing run.
    ///
    /// With a key, a stream whose first response was lost sends its request again. Use a key only if the server supports it, or if a second run does no harm.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Adds header fields to the request, such as a `traceparent`. Names are in lower case.
    #[must_use]
    pub fn headers(mut self, headers: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Lets the run continue after a disconnect, because the stream reconnects. Keeps a choice that the caller has made.
    pub(super) fn for_stream(mut self) -> Self {
        self.request.on_disconnect.get_or_insert(OnDisconnect::Continue);
        self
    }

    pub(super) fn call(&self, client: &Client, mode: Mode) -> Result<RequestBuilder, ClientError> {
        let mut path = self.thread.as_deref().map_or_else(Vec::new, |it| vec!["threads", it]);
        path.push("runs");
        match mode {
            Mode::Create => {}
            Mode::Wait => path.push("wait"),
            Mode::Stream => path.push("stream"),
        }
        let call = client.call(Method::Post, &path).json(&self.request)?;
        let call = call.idempotency_key(self.idempotency_key.as_ref());
        Ok(self.headers.iter().fold(call, |call, (name, value)| call.header(name, value)))
    }
}

impl From<RunCreate> for NewRun {
    fn from(request: RunCreate) -> Self {
        Self { request, thread: None, idempotency_key: None, headers: Vec::new() }
    }
}
