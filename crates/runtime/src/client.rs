//! Clients that take calls of agents: an editor with its files and terminals.
//!
//! Such calls are no events: they are live only, and go to the thread's controller, the client that prompted last.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use trilogue_domain::{Json, ThreadKey};

/// How long a call waits for a controller that is gone.
pub const CONTROLLER_GONE: Duration = Duration::from_secs(30);

/// A client that takes calls.
#[async_trait]
pub trait Client: Send + Sync + fmt::Debug {
    /// How it is spoken to, and what it can do.
    fn profile(&self) -> &ClientProfile;

    /// Asks the client for something. `params` is an object whose session id was cut out.
    ///
    /// # Errors
    /// What the client refuses with; [`CallError::gone`] when it is not there any more.
    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError>;

    /// Tells the client something that needs no answer. A client that is gone is not told.
    async fn notify(&self, method: &str, params: Json);
}

/// How a client is spoken to, and what it can do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientProfile {
    /// The dialect, as an original has it.
    pub dialect: Arc<str>,
    /// The dialect's version.
    pub version: u32,
    /// What it can do, in the words of its dialect: an object.
    pub capabilities: Json,
    /// Who it is, in the words of its dialect.
    pub info: Option<Json>,
}

/// Why a call was refused, in the words of the other side.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} ({code})")]
pub struct CallError {
    /// The dialect's number for it.
    pub code: i32,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub data: Option<Json>,
}

/// The clients of each thread, and which of them is its controller.
#[derive(Debug, Default)]
pub(crate) struct Controllers {
    threads: Mutex<HashMap<ThreadKey, ()>>,
}

/// Keeps a client attached to a thread until it is dropped.
#[derive(Debug)]
pub struct Attached {
    _private: (),
}

// === impl Controllers ===

impl Controllers {
    pub(crate) fn attach(&self, thread: ThreadKey, client: Arc<dyn Client>) -> Attached {
        let _ = (&self.threads, thread, client);
        Attached { _private: () }
    }
}

// === impl Attached ===

impl Attached {
    /// Makes the client the thread's controller: it prompts.
    pub fn take_control(&self) {}
}

// === impl CallError ===

impl CallError {
    /// The dialect has no such method, or the other side does not answer it.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// What was given does not fit.
    pub const INVALID_PARAMS: i32 = -32602;
    /// Something went wrong inside.
    pub const INTERNAL: i32 = -32603;

    /// An error of this number.
    #[must_use]
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The client that was asked is not there any more, or there was none.
    #[must_use]
    pub fn gone() -> Self {
        Self::new(Self::INTERNAL, "the client is not connected")
    }
}
