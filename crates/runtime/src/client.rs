//! Clients that take calls of agents: for example an editor with its files and terminals.
//!
//! Such calls are not events: they are live only, and go to the thread's controller, which is the client that prompted last.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Json, Principal, RequestSource, ThreadKey};

use trilogue_domain::lock;

/// How long a call waits for a new controller after the last one left.
pub const CONTROLLER_GONE: Duration = Duration::from_secs(30);
/// How many threads without clients are kept before a sweep removes those whose controllers are gone for good.
const REMEMBERED: usize = 4_096;

#[async_trait]
pub trait Client: Send + Sync + fmt::Debug {
    fn profile(&self) -> &ClientProfile;

    /// Returns the principal in whose name the client acts.
    fn principal(&self) -> &Principal;

    /// Returns the absolute path of the client's working directory, if it is known before a session opens. A hint only.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Calls the client. `params` is an object without the session id.
    /// Fails with the client's refusal; with [`CallError::not_connected`] if the client is gone.
    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError>;

    /// Sends a notification. A client that is gone does not get it.
    async fn notify(&self, method: &str, params: Json);
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientProfile {
    pub dialect: Arc<str>,
    pub version: u32,
    /// Its capabilities in the form of its dialect: an object.
    pub capabilities: Json,
    /// Its name and version in the form of its dialect.
    pub info: Option<Json>,
    /// Where its requests come from. Decides which folders it may choose, and whether its files are on another machine.
    pub source: RequestSource,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} ({code})")]
pub struct CallError {
    pub code: i32,
    pub message: String,
    pub data: Option<Json>,
}

/// The clients of each thread, and which of them is its controller. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controllers(Arc<Mutex<ThreadControllers>>);

/// The threads that have or had clients since the server's start.
#[derive(Debug, Default)]
struct ThreadControllers {
    clients: HashMap<ThreadKey, Clients>,
    /// How many threads have no client now.
    left: usize,
    /// How many threads the last sweep kept.
    kept: usize,
    last: u64,
}

#[derive(Debug)]
struct Clients {
    attached: Vec<AttachedClient>,
    control: watch::Sender<Control>,
}

#[derive(Clone, Debug)]
struct Control {
    client: Option<AttachedClient>,
    /// When the last controller left.
    left: Instant,
}

#[derive(Clone, Debug)]
struct AttachedClient {
    /// Unique since the server's start.
    number: u64,
    handle: Arc<dyn Client>,
    /// Cancelled when it detaches.
    gone: CancellationToken,
}

/// Keeps a client attached to a thread until it is dropped.
#[derive(Debug)]
pub struct AttachGuard {
    controllers: Controllers,
    thread: ThreadKey,
    client: AttachedClient,
}

/// Tells whether a client of a thread is its controller. Cheap to clone; it keeps nothing attached.
#[derive(Clone, Debug)]
pub struct ControlView {
    controllers: Controllers,
    thread: ThreadKey,
    number: u64,
}

// === impl Controllers ===

impl Controllers {
    /// Attaches a client. It becomes the controller of a thread without one.
    pub(crate) fn attach(&self, thread: ThreadKey, client: Arc<dyn Client>) -> AttachGuard {
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
        AttachGuard { controllers: self.clone(), thread, client }
    }

    pub(crate) fn profile(&self, thread: ThreadKey) -> Option<ClientProfile> {
        let threads = lock(&self.0);
        let control = threads.clients.get(&thread)?.control.borrow();
        Some(control.client.as_ref()?.handle.profile().clone())
    }

    /// Calls the thread's controller. If it leaves before it has answered, calls the next one.
    /// Fails with the client's refusal; [`CallError::not_connected`] if no client was ever attached, or none for [`CONTROLLER_GONE`].
    pub(crate) async fn call(
        &self,
        thread: ThreadKey,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError> {
        let control = lock(&self.0).clients.get(&thread).map(|clients| clients.control.subscribe());
        let mut control = control.ok_or_else(CallError::not_connected)?;
        let mut asked = 0;
        loop {
            let client = next_in_control(&mut control, asked).await?;
            asked = client.number;
            let answer = tokio::select! {
                biased;
                answer = client.handle.call(method, params.clone()) => answer,
                () = client.gone.cancelled() => Err(CallError::not_connected()),
            };
            match answer {
                Err(error) if error == CallError::not_connected() => {}
                answer => return answer,
            }
        }
    }

    /// Waits until the thread has a controller again. Returns its profile; `None` after the time limit, and at once if the thread never had a client.
    pub(crate) async fn wait(&self, thread: ThreadKey, limit: Duration) -> Option<ClientProfile> {
        let control = lock(&self.0).clients.get(&thread).map(|clients| clients.control.subscribe());
        let mut control = control?;
        let found = tokio::time::timeout(limit, control.wait_for(|now| now.client.is_some()));
        let found = found.await.ok()?.ok()?;
        Some(found.client.as_ref()?.handle.profile().clone())
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
        // First, so that a call that waits for this client continues with the next one.
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
        // Amortised: a sweep costs as much as the detaching since the last one.
        if *left > (*kept * 2).max(REMEMBERED) {
            clients.retain(|_, clients| !clients.are_gone_for_good());
            *left = clients.values().filter(|clients| clients.attached.is_empty()).count();
            *kept = *left;
        }
    }
}

/// Waits for a controller other than the last called one.
async fn next_in_control(
    control: &mut watch::Receiver<Control>,
    asked: u64,
) -> Result<AttachedClient, CallError> {
    let until = {
        let now = control.borrow_and_update();
        // A client that reports itself gone and is still attached is about to detach.
        let left = if now.client.is_some() { Instant::now() } else { now.left };
        left + CONTROLLER_GONE
    };
    let is_other =
        |control: &Control| control.client.as_ref().is_some_and(|one| one.number != asked);
    let found = tokio::time::timeout_at(until, control.wait_for(is_other)).await;
    let Ok(Ok(found)) = found else { return Err(CallError::not_connected()) };
    found.client.clone().ok_or_else(CallError::not_connected)
}

// === impl Clients ===

impl Clients {
    fn new() -> Self {
        let control = Control { client: None, left: Instant::now() };
        Self { attached: Vec::new(), control: watch::Sender::new(control) }
    }

    /// Whether no client is attached, and no call waits for one.
    fn are_gone_for_good(&self) -> bool {
        self.attached.is_empty()
            && self.control.receiver_count() == 0
            && self.control.borrow().left.elapsed() >= CONTROLLER_GONE
    }
}

// === impl AttachGuard ===

impl AttachGuard {
    pub fn take_control(&self) {
        self.controllers.take_control(self.thread, &self.client);
    }

    #[must_use]
    pub fn is_in_control(&self) -> bool {
        self.view().is_in_control()
    }

    #[must_use]
    pub fn view(&self) -> ControlView {
        let (controllers, number) = (self.controllers.clone(), self.client.number);
        ControlView { controllers, thread: self.thread, number }
    }
}

// === impl ControlView ===

impl ControlView {
    #[must_use]
    pub fn is_in_control(&self) -> bool {
        let threads = lock(&self.controllers.0);
        let clients = threads.clients.get(&self.thread);
        let control = clients.map(|clients| clients.control.borrow());
        control.is_some_and(|control| {
            control.client.as_ref().is_some_and(|client| client.number == self.number)
        })
    }
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        self.controllers.detach(self.thread, &self.client);
    }
}

// === impl CallError ===

impl CallError {
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL: i32 = -32603;

    #[must_use]
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Returns the error for a called client that is gone, or never existed.
    #[must_use]
    pub fn not_connected() -> Self {
        Self::new(Self::INTERNAL, "the client is not connected")
    }
}
