//! What everything that serves one client shares.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Principal, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{Backend, ClientProfile, Runtime};
use trilogue_wire::agent_client::{ClientCapabilities, PromptCapabilities, Rules};
use trilogue_wire::jsonrpc::{
    ErrorObject, Id, Payload, write_error, write_notification, write_request, write_response,
};
use trilogue_wire::native::local::Control;

use super::lane::Lane;
use super::options::{ClientOptions, MessageIdFormat};
use super::outbox::{Batch, Outbox};
use super::pending::Pending;
use crate::shared::Shared;

/// The answer to a request: the JSON of its result, or why there is none.
pub(super) type Answer = Result<Vec<u8>, ErrorObject>;

/// What everything that serves one client shares.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) principal: Arc<Principal>,
    pub(super) agent: AgentName,
    /// Whether control lines are written, and extras taken.
    pub(super) numbered: bool,
    /// The client's name across connections.
    pub(super) client: Option<String>,
    pub(super) outbox: Outbox,
    pub(super) pending: Pending,
    /// What keeps the requests of each session in order.
    pub(super) lanes: Mutex<HashMap<ThreadId, Arc<Lane>>>,
    requests: Mutex<HashMap<Id<'static>, InFlight>>,
    met: Mutex<Option<Arc<Met>>>,
    /// Ends everything that is done for the client.
    pub(super) closed: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// What both sides said of themselves.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) profile: ClientProfile,
    pub(super) client: ClientCapabilities,
    /// What the agent takes in prompts.
    pub(super) prompt: PromptCapabilities,
    /// What the client was told.
    pub(super) result: Vec<u8>,
}

/// A request that is being worked on.
#[derive(Clone, Debug)]
pub(super) enum InFlight {
    /// A prompt: it is ended like its turn.
    Prompt(Arc<Lane>),
    /// Anything else.
    Other(CancellationToken),
}

// === impl Link ===

impl Link {
    pub(super) fn new(shared: Arc<Shared>, principal: Arc<Principal>, agent: AgentName) -> Self {
        let options = &shared.options.client;
        let outbox = Outbox::new(options.max_outbox_messages, options.max_outbox_bytes);
        Self {
            outbox,
            principal,
            agent,
            numbered: false,
            client: None,
            pending: Pending::default(),
            lanes: Mutex::default(),
            requests: Mutex::default(),
            met: Mutex::default(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            shared,
        }
    }

    pub(super) fn options(&self) -> &ClientOptions {
        &self.shared.options.client
    }

    pub(super) fn runtime(&self) -> &Runtime {
        self.shared.runtime()
    }

    pub(super) fn rules(&self) -> Rules {
        if self.options().strict { Rules::Strict } else { Rules::Lenient }
    }

    pub(super) fn id_format(&self) -> mapping::IdFormat {
        match self.options().message_id_format {
            MessageIdFormat::Any => mapping::IdFormat::Any,
            MessageIdFormat::Uuid => mapping::IdFormat::Uuid,
        }
    }

    /// # Errors
    /// `agent_not_found`.
    pub(super) fn backend(&self) -> Result<&Arc<dyn Backend>> {
        self.runtime().backend(&self.agent)
    }

    /// What both sides said of themselves; `None` before they did.
    pub(super) fn met(&self) -> Option<Arc<Met>> {
        lock(&self.met).clone()
    }

    pub(super) fn meet(&self, met: Met) {
        *lock(&self.met) = Some(Arc::new(met));
    }

    /// Notes that a request is worked on; `false` when there are too many.
    pub(super) fn begin(&self, id: &Id<'_>, work: InFlight) -> bool {
        let mut requests = lock(&self.requests);
        if requests.len() >= self.options().max_requests {
            return false;
        }
        requests.insert(id.clone().into_owned(), work);
        true
    }

    /// Notes what a request became.
    pub(super) fn rebind(&self, id: &Id<'static>, work: InFlight) {
        lock(&self.requests).insert(id.clone(), work);
    }

    /// The work on a request, where it is being worked on.
    pub(super) fn in_flight(&self, id: &Id<'_>) -> Option<InFlight> {
        lock(&self.requests).get(id).cloned()
    }

    /// Adds the answer to a request to lines that go out.
    pub(super) fn write_answer(&self, lines: &mut Lines, id: &Id<'static>, answer: &Answer) {
        lock(&self.requests).remove(id);
        match answer {
            Ok(result) => match serde_json::from_slice::<&RawValue>(result) {
                Ok(raw) => write_response(&mut lines.bytes, id, raw),
                Err(_) => write_response(&mut lines.bytes, id, &()),
            },
            Err(error) => write_error(&mut lines.bytes, id, error),
        }
        lines.end();
    }

    /// Answers a request.
    pub(super) async fn answer(&self, id: &Id<'static>, answer: Answer) {
        let mut lines = Lines::default();
        self.write_answer(&mut lines, id, &answer);
        self.send(lines, Control::Boundary).await;
    }

    /// Sends lines, and behind them what they mean for the client's position where it wants to know.
    pub(super) async fn send(&self, mut lines: Lines, position: Control<'_>) {
        if self.numbered {
            lines.control(&position);
        }
        self.outbox.push(Batch { lines: lines.bytes, messages: lines.messages }).await;
    }

    /// Does something for a session behind everything that was asked of it before.
    pub(super) fn in_order<W>(
        self: &Arc<Self>,
        session: &ThreadId,
        work: impl FnOnce(&Arc<Lane>) -> W,
    ) where
        W: Future<Output = ()> + Send + 'static,
    {
        let mut lanes = lock(&self.lanes);
        let lane = lanes.entry(session.clone()).or_insert_with(|| Arc::new(Lane::new(session)));
        let lane = Arc::clone(lane);
        let work = Box::pin(work(&lane));
        lane.push(self, work);
    }

    /// The lane of a session that something was asked of.
    pub(super) fn known_lane(&self, session: &ThreadId) -> Option<Arc<Lane>> {
        lock(&self.lanes).get(session).cloned()
    }

    /// How many sessions are open.
    pub(super) fn open_sessions(&self) -> usize {
        lock(&self.lanes).values().filter(|lane| lane.session().is_some()).count()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("agent", &self.agent)
            .field("numbered", &self.numbered)
            .finish_non_exhaustive()
    }
}

/// Lines that go out together, each with its end.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    /// How many of them are messages.
    pub(super) messages: usize,
}

// === impl Lines ===

impl Lines {
    pub(super) fn request<P: Payload + ?Sized>(&mut self, number: u64, method: &str, params: &P) {
        write_request(&mut self.bytes, &Id::number(number), method, params);
        self.end();
    }

    pub(super) fn notification<P: Payload + ?Sized>(&mut self, method: &str, params: &P) {
        write_notification(&mut self.bytes, method, params);
        self.end();
    }

    /// Adds a line that is for the program in between.
    pub(super) fn control(&mut self, control: &Control<'_>) {
        // Writing to memory cannot fail.
        let _ = writeln!(self.bytes, "{control}");
    }

    fn end(&mut self) {
        self.bytes.push(b'\n');
        self.messages += 1;
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
