//! A run that is to be created, and the key under which it is created once.

use trilogue_domain::RunId;
use trilogue_wire::native::{RunCreate, RunMode};

use super::Client;
use super::call::RequestBuilder;
use super::error::ClientError;
use super::resumable::EVENT_STREAM;
use super::transport::Method;

/// A run that is to be created. Made from a [`RunCreate`]; a key is added with [`NewRun::once`].
#[derive(Clone, PartialEq, Debug)]
pub struct NewRun {
    /// What is to be run.
    pub create: RunCreate,
    /// The `Idempotency-Key`: the same run under the same key is created once, for 24 hours.
    pub idempotency_key: Option<String>,
}

// === impl NewRun ===

impl NewRun {
    /// The same run, created once under this key of 1 to 256 characters of ASCII: asked for again, it is the run that is there already.
    ///
    /// The server compares whole requests, so everything else must stay the same too, the mode included. Another request under the key is refused with `idempotency_mismatch`.
    #[must_use]
    pub fn once(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), ..self }
    }

    pub(super) fn in_mode(mut self, mode: RunMode) -> Self {
        self.create.mode = mode;
        self
    }

    /// The id by which the run is found again when not even its first event was heard. A key does as much, and wants a request that never changes.
    pub(super) fn ensure_findable(&mut self) {
        if self.create.id.is_none() && self.idempotency_key.is_none() {
            self.create.id = Some(RunId::generate().as_str().to_owned());
        }
    }

    pub(super) fn call(&self, client: &Client) -> Result<RequestBuilder, ClientError> {
        let call = client.call(Method::Post, &["runs"]).json(&self.create)?;
        Ok(call.idempotency_key(self.idempotency_key.as_ref()))
    }

    /// The call whose answer is the run's event stream.
    pub(super) fn stream_call(&self, client: &Client) -> Result<RequestBuilder, ClientError> {
        Ok(self.call(client)?.header("accept", EVENT_STREAM))
    }
}

impl From<RunCreate> for NewRun {
    fn from(create: RunCreate) -> Self {
        Self { create, idempotency_key: None }
    }
}
