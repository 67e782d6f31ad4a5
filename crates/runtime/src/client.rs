//! Clients that take calls of agents: an editor with its files and terminals.
//!
//! Such calls are no events: they are live only, and go to the thread's controller, the client that prompted last.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Json, ThreadKey};

use trilogue_domain::lock;

/// How long a call waits for a controller that is gone.
pub const CONTROLLER_GONE: Duration = Duration::from_secs(30);
/// ThreadControllers without clients are forgotten when there are more than this many of them, and their controllers are gone for good.
const REMEMBERED: usize = 4_096;

/// A client that takes calls.
#[async_trait]
pub trait Client: Send + Sync + fmt::Debug {
    /// How it is spoken to, and what it can do.
    fn profile(&self) -> &ClientProfile;

    /// Where it works, as far as that is known before it opens a session: an absolute path. Nobody may rely on it.
    fn folder(&self) -> Option<&Path> {
        None
    }

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

/// The clients of each thread, and which of them is its controller. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controllers(Arc<Mutex<ThreadControllers>>);

/// The threads that have or had clients in this life.
#[derive(Debug, Default)]
struct ThreadControllers {
    clients: HashMap<ThreadKey, Clients>,
    /// How many threads have no client now.
    left: usize,
    /// How many of them there were when they were looked through last.
    kept: usize,
    /// The last number that a client was given.
    last: u64,
}

/// The clients of one thread.
#[derive(Debug)]
struct Clients {
    attached: Vec<AttachedClient>,
    control: watch::Sender<Control>,
}

/// Who is in control.
#[derive(Clone, Debug)]
struct Control {
    client: Option<AttachedClient>,
    /// When the last one left.
    left: Instant,
}

/// An attached client.
#[derive(Clone, Debug)]
struct AttachedClient {
    /// Unique in this life.
    number: u64,
    handle: Arc<dyn Client>,
    /// Cancelled when it detaches.
    gone: CancellationToken,
}

/// Keeps a client attached to a thread until it is dropped.
#[derive(Debug)]
pub struct Attached {
    controllers: Controllers,
    thread: ThreadKey,
    client: AttachedClient,
}

// === impl Controllers ===

impl Controllers {
    /// Attaches a client. While the thread has no controller, it becomes it.
    pub(crate) fn attach(&self, thread: ThreadKey, client: Arc<dyn Client>) -> Attached {
        let mut threads = lock(&self.0);
        threads.last += 1;
        let client =
            AttachedClient { number: threads.last, handle: client, gone: CancellationToken::new() };
        let ThreadControllers { clients, left, .. } = &mut *threads;
        let clients = clients.entry(thread).or_insert_with(|| {
            *left += 1;
            Clients::new()
        });
        if clients.attached.is_empty() {
            *left -= 1;
        }
        clients.attached.push(client.clone());
        clients.control.send_if_modified(|control| {
            let is_free = control.client.is_none();
            if is_free {
                control.client = Some(client.clone());
            }
            is_free
        });
        drop(threads);
        Attached { controllers: self.clone(), thread, client }
    }

    /// What the thread's controller can do, where there is one now.
    pub(crate) fn profile(&self, thread: ThreadKey) -> Option<ClientProfile> {
        let threads = lock(&self.0);
        let control = threads.clients.get(&thread)?.control.borrow();
        Some(control.client.as_ref()?.handle.profile().clone())
    }

    /// Asks the thread's controller. Where it goes before it has answered, the next one is asked.
    ///
    /// # Errors
    /// What the client refuses with; [`CallError::gone`] where there was none in this life, or none for [`CONTROLLER_GONE`].
    pub(crate) async fn call(
        &self,
        thread: ThreadKey,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError> {
        let control = lock(&self.0).clients.get(&thread).map(|clients| clients.control.subscribe());
        let mut control = control.ok_or_else(CallError::gone)?;
        let mut asked = 0;
        loop {
            let client = next_in_control(&mut control, asked).await?;
            asked = client.number;
            let answer = tokio::select! {
                biased;
                answer = client.handle.call(method, params.clone()) => answer,
                () = client.gone.cancelled() => Err(CallError::gone()),
            };
            match answer {
                Err(error) if error == CallError::gone() => {}
                answer => return answer,
            }
        }
    }

    fn take_control(&self, thread: ThreadKey, client: &AttachedClient) {
        let threads = lock(&self.0);
        let Some(clients) = threads.clients.get(&thread) else { return };
        clients.control.send_if_modified(|control| {
            let is_new = control.client.as_ref().is_none_or(|held| held.number != client.number);
            if is_new {
                control.client = Some(client.clone());
            }
            is_new
        });
    }

    fn detach(&self, thread: ThreadKey, client: &AttachedClient) {
        client.gone.cancel();
        let mut threads = lock(&self.0);
        let ThreadControllers { clients, left, kept, .. } = &mut *threads;
        let Some(held) = clients.get_mut(&thread) else { return };
        held.attached.retain(|one| one.number != client.number);
        held.control.send_if_modified(|control| {
            let was_in_control =
                control.client.as_ref().is_some_and(|one| one.number == client.number);
            if was_in_control {
                *control = Control { client: None, left: Instant::now() };
            }
            was_in_control
        });
        if held.attached.is_empty() {
            *left += 1;
        }
        // Looking through them costs as much as the detaching since the last time.
        if *left > (*kept * 2).max(REMEMBERED) {
            clients.retain(|_, clients| !clients.are_gone_for_good());
            *left = clients.values().filter(|clients| clients.attached.is_empty()).count();
            *kept = *left;
        }
    }
}

/// Waits for a controller other than the one that was asked last.
async fn next_in_control(
    control: &mut watch::Receiver<Control>,
    asked: u64,
) -> Result<AttachedClient, CallError> {
    let until = {
        let now = control.borrow_and_update();
        // One that says it is gone and is still attached is about to leave.
        let left = if now.client.is_some() { Instant::now() } else { now.left };
        left + CONTROLLER_GONE
    };
    let is_other =
        |control: &Control| control.client.as_ref().is_some_and(|one| one.number != asked);
    let found = tokio::time::timeout_at(until, control.wait_for(is_other)).await;
    let Ok(Ok(found)) = found else { return Err(CallError::gone()) };
    found.client.clone().ok_or_else(CallError::gone)
}

// === impl Clients ===

impl Clients {
    fn new() -> Self {
        let control = Control { client: None, left: Instant::now() };
        Self { attached: Vec::new(), control: watch::Sender::new(control) }
    }

    /// Whether nobody is attached, and no call waits for somebody.
    fn are_gone_for_good(&self) -> bool {
        self.attached.is_empty() && self.control.borrow().left.elapsed() >= CONTROLLER_GONE
    }
}

// === impl Attached ===

impl Attached {
    /// Makes the client the thread's controller: it prompts.
    pub fn take_control(&self) {
        self.controllers.take_control(self.thread, &self.client);
    }

    /// Whether the client is the thread's controller.
    #[must_use]
    pub fn is_in_control(&self) -> bool {
        let threads = lock(&self.controllers.0);
        let clients = threads.clients.get(&self.thread);
        let control = clients.map(|clients| clients.control.borrow());
        control.is_some_and(|control| {
            control.client.as_ref().is_some_and(|client| client.number == self.client.number)
        })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.controllers.detach(self.thread, &self.client);
    }
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
