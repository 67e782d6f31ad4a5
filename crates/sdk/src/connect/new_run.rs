use serde::Serialize;
use trilogue_wire::agent_connect::{RunCreate, StreamModes};
use trilogue_wire::native::Json;

use super::{Client, IfNotExists, Object, OnDisconnect, StreamMode};
use crate::client::call::{RequestBuilder, json};
use crate::client::{ClientError, Method};

/// A run that is to be created: a stateless one, or one on a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewRun {
    /// What is asked for.
    pub request: RunCreate,
    /// The thread that it runs on; none for a stateless run.
    pub thread: Option<String>,
    /// The `Idempotency-Key`: on servers of ours, the same run under the same key is created once.
    pub idempotency_key: Option<String>,
    /// Further header fields of the request; names in lower case.
    pub headers: Vec<(&'static str, String)>,
}

/// How the answer is wanted: the end of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Create,
    Wait,
    Stream,
}

// === impl NewRun ===

impl NewRun {
    /// A stateless run of the agent, or the configured instance, with this id.
    #[must_use]
    pub fn of(agent: impl Into<String>) -> Self {
        RunCreate { agent_id: Some(agent.into()), ..RunCreate::default() }.into()
    }

    /// The same run with this input.
    #[must_use]
    pub fn input(mut self, input: impl Serialize) -> Self {
        self.request.input = json(&input);
        self
    }

    /// The same run with this configuration.
    #[must_use]
    pub fn config(mut self, config: impl Serialize) -> Self {
        let configurable = json(&config).map(|config| config.into_string());
        self.request.config = configurable
            .and_then(|config| Json::parse(format!(r#"{{"configurable":{config}}}"#)).ok());
        self
    }

    /// The same run with this metadata, by which it is found again. What is no object is left out.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Serialize) -> Self {
        self.request.metadata = json(&metadata).and_then(Object::new);
        self
    }

    /// The same run on this thread.
    #[must_use]
    pub fn on_thread(mut self, thread: impl Into<String>) -> Self {
        self.thread = Some(thread.into());
        self
    }

    /// The same run on this thread, which is made where there is none.
    #[must_use]
    pub fn on_new_thread(mut self, thread: impl Into<String>) -> Self {
        self.request.if_not_exists = Some(IfNotExists::Create);
        self.on_thread(thread)
    }

    /// The same run, streamed in these modes; where none is named the server chooses.
    #[must_use]
    pub fn streaming(mut self, modes: impl IntoIterator<Item = StreamMode>) -> Self {
        let modes = StreamModes::new(modes);
        self.request.stream_mode = Some(modes).filter(|modes| !modes.as_slice().is_empty());
        self
    }

    /// The same run, created once under this key of 1 to 256 characters of ASCII, on servers of ours: asked for again, it is the run that is there already.
    ///
    /// With a key, a stream whose first answer was lost is asked for again; give one only where the server knows what it means, or where a second run does no harm.
    #[must_use]
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// The same run, created by a request with these header fields too, such as a `traceparent`; names in lower case.
    #[must_use]
    pub fn headers(mut self, headers: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// A stream is asked for again after a break, so its break must not cancel the run, unless somebody wants that.
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
