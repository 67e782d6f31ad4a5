//! The request for a new run, with its idempotency key.

use trilogue_domain::RunId;
use trilogue_wire::native::{RunCreate, RunMode};

use super::Client;
use super::call::RequestBuilder;
use super::error::ClientError;
use super::resumable::EVENT_STREAM;
use super::transport::Method;

/// A new run. Made from a [`RunCreate`]; [`NewRun::idempotency_key`] adds an idempotency key.
#[derive(Clone, PartialEq, Debug)]
pub struct NewRun {
    /// The request.
    pub create: RunCreate,
    /// The `Idempotency-Key`. For 24 hours, the server creates the same run under the same key only once.
    pub idempotency_key: Option<String>,
}

// === impl NewRun ===

impl NewRun {
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
