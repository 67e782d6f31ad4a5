//! A client of the Agent Connect Protocol, over HTTP or another [`Transport`].
//!
//! It works with every server of the protocol, including the reference server with its gaps, and uses a server's extensions if they exist. Streams continue after a break, and their last event always says how the run ended.
//!
//! ```no_run
//! use trilogue_sdk::client::ClientError;
//! use trilogue_sdk::client::connect::{Client, NewRun};
//! use trilogue_sdk::json;
//!
//! async fn greet() -> Result<(), ClientError> {
//!     let client = Client::at("http://127.0.0.1:7878/connect")?;
//!     let new = NewRun::new("echo", json!({ "message": "Howdy!" }));
//!     println!("{}", client.run_and_wait(new.clone()).await?.text());
//!
//!     let mut stream = client.run_stream(new).await?;
//!     while let Some(event) = stream.next().await? {
//!         println!("so far: {}", event.text().unwrap_or_default());
//!     }
//!     Ok(())
//! }
//! ```

mod agents;
mod configurations;
mod fault;
mod new_run;
mod resume;
mod runs;
mod seen_events;
mod stream;
mod threads;

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trilogue_wire::agent_connect as wire;

use crate::client::call::{Endpoint, RequestBuilder, impl_client};
use crate::client::{
    ClientError, HttpTransport, Method, Options, Response, ResponseBody, Transport,
};

pub use fault::Fault;
pub use new_run::NewRun;
pub use resume::Resume;
pub use runs::RunAt;
pub use stream::{RunStream, StreamedEvent};
pub use wire::{
    Agent, AgentCapabilities, AgentErrors, AgentSchemas, AgentSearchRequest, Authentication,
    CallbackEvent, CallbackTo, CancelAction, Configuration, ConfigurationCreate,
    ConfigurationPatch, ConfigurationSearchRequest, Descriptor, ErrorDefinition, IfExists,
    IfNotExists, Limit, Message, MultitaskStrategy, Object, Offset, OnCompletion, OnDisconnect,
    Run, RunCreate, RunError, RunInterrupt, RunOutput, RunResult, RunSearchRequest, RunStatus,
    RunWaitResponse, StreamMode, StreamModes, StreamPayload, Thread, ThreadCheckpoint,
    ThreadCreate, ThreadPatch, ThreadSearchRequest, ThreadState, ThreadStatus,
};

/// A client of one server. Cheap to clone.
///
/// A call fails with the server's error. If an id does not exist, the error has the code of its kind, such as `thread_not_found`.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Arc<Endpoint>,
}

// === impl Client ===

impl_client!("", "http://127.0.0.1:7878/connect");

impl Client {
    /// Returns the content at a path of this server.
    ///
    /// # Errors
    /// [`ClientError::Unexpected`] if the path is not on this server; `not_found`.
    pub async fn content(&self, path: &str) -> Result<ResponseBody, ClientError> {
        Ok(self.send(RequestBuilder::content(path)?).await?.body)
    }

    async fn get<T: DeserializeOwned>(&self, segments: &[&str]) -> Result<T, ClientError> {
        self.fetch(self.call(Method::Get, segments)).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.fetch(self.call(Method::Post, segments).json(body)?).await
    }

    async fn patch<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.fetch(self.call(Method::Patch, segments).json(body)?).await
    }

    /// Ignores the body of the response: some servers send `null` although the protocol requires an empty body.
    async fn delete(&self, segments: &[&str]) -> Result<(), ClientError> {
        self.send(self.call(Method::Delete, segments)).await.map(drop)
    }

    async fn fetch<T: DeserializeOwned>(&self, call: RequestBuilder) -> Result<T, ClientError> {
        read(&self.bytes(call).await?)
    }

    async fn list<T: DeserializeOwned>(&self, call: RequestBuilder) -> Result<Vec<T>, ClientError> {
        wire::decode_list(&self.bytes(call).await?).map_err(unreadable)
    }

    async fn search<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        body: &impl Serialize,
    ) -> Result<Vec<T>, ClientError> {
        self.list(self.call(Method::Post, segments).json(body)?).await
    }

    async fn bytes(&self, call: RequestBuilder) -> Result<Bytes, ClientError> {
        let call = call.header("accept", "application/json");
        self.endpoint.whole(self.send(call).await?).await
    }

    async fn send(&self, call: RequestBuilder) -> Result<Response, ClientError> {
        let refused = |status, body: &[u8]| ClientError::Fault(Box::new(Fault::read(status, body)));
        self.endpoint.send(call, refused).await
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ClientError> {
    wire::decode(bytes).map_err(unreadable)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unreadable(violation: wire::Violation) -> ClientError {
    ClientError::Unexpected(violation.to_string())
}

fn fault(error: &ClientError) -> Option<&Fault> {
    match error {
        ClientError::Fault(fault) => Some(fault),
        _ => None,
    }
}
