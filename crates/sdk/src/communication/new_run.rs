use serde::Serialize;
use trilogue_wire::agent_communication::{RunCreateRequest, RunMode, Session, Uuid};

use super::{Client, InputMessages};
use crate::client::call::{self, RequestBuilder};
use crate::client::{ClientError, Method};

/// A run that is to be created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewRun {
    /// What is asked for. Its mode is set by the call that sends it.
    pub request: RunCreateRequest,
    /// The `Idempotency-Key`: on servers of ours, the same run under the same key is created once.
    pub idempotency_key: Option<String>,
    /// Further header fields of the request; names in lower case.
    pub headers: Vec<(&'static str, String)>,
}

// === impl NewRun ===

impl NewRun {
    /// A run of this agent, in a session of its own.
    #[must_use]
    pub fn new(agent: impl Into<String>, input: impl Into<InputMessages>) -> Self {
        RunCreateRequest::new(agent, input.into().0, RunMode::Sync).into()
    }

    /// The same run in this session, which the server knows or makes.
    #[must_use]
    pub fn in_session(mut self, session: Uuid) -> Self {
        (self.request.session_id, self.request.session) = (Some(session), None);
        self
    }

    /// The same run in a session that is brought along: it replaces what the server knows of it.
    #[must_use]
    pub fn with_session(mut self, session: Session) -> Self {
        (self.request.session_id, self.request.session) = (None, Some(session));
        self
    }

    /// The same run with settings of the agent. Only servers of ours look at them.
    #[must_use]
    pub fn config(mut self, config: impl Serialize) -> Self {
        self.request.config = call::json(&config);
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
