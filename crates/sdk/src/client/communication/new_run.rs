use serde::Serialize;
use trilogue_wire::agent_communication::{RunCreateRequest, RunMode, Session, Uuid};

use super::{Client, InputMessages};
use crate::client::call::{self, RequestBuilder};
use crate::client::{ClientError, Method};

/// A new run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewRun {
    /// The request. The call that sends it sets its mode.
    pub request: RunCreateRequest,
    /// The `Idempotency-Key`. A Trilogue server creates the same run under the same key only once.
    pub idempotency_key: Option<String>,
    /// More header fields of the request. Names are in lower case.
    pub headers: Vec<(&'static str, String)>,
}

// === impl NewRun ===

impl NewRun {
    /// Returns a run of this agent in a new session.
    #[must_use]
    pub fn new(agent: impl Into<String>, input: impl Into<InputMessages>) -> Self {
        RunCreateRequest::new(agent, input.into().0, RunMode::Sync).into()
    }

    /// Runs in this session. The server creates the session if it does not exist.
    #[must_use]
    pub fn in_session(mut self, session: Uuid) -> Self {
        (self.request.session_id, self.request.session) = (Some(session), None);
        self
    }

    /// Sends a session with the run. It replaces the server's version of the session.
    #[must_use]
    pub fn with_session(mut self, session: Session) -> Self {
        (self.request.session_id, self.request.session) = (None, Some(session));
        self
    }

    /// Sets the agent's configuration. Only Trilogue servers use it.
    #[must_use]
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.request.config = call::json(&config);
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

    pub(super) fn call(
        &self,
        client: &Client,
        mode: RunMode,
    ) -> Result<RequestBuilder, ClientError> {
        let request = RunCreateRequest { mode, ..self.request.clone() };
        let call = client.call(Method::Post, &["runs"]).json(&request)?;
        let call = call.idempotency_key(self.idempotency_key.as_ref());
        Ok(self.headers.iter().fold(call, |call, (name, value)| call.header(name, value)))
    }
}

impl From<RunCreateRequest> for NewRun {
    fn from(request: RunCreateRequest) -> Self {
        Self { request, idempotency_key: None, headers: Vec::new() }
    }
}
