//! What everything that serves one client shares.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::error::Result;
pub(super) use trilogue_domain::lock;
use trilogue_domain::{AgentName, Principal, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{Backend, ClientProfile, Runtime};
use trilogue_store::Read;
use trilogue_wire::agent_client::{ClientCapabilities, McpCapabilities, PromptCapabilities, Rules};
use trilogue_wire::jsonrpc::{
    ErrorObject, Id, Payload, write_error, write_notification, write_request, write_response,
};
use trilogue_wire::native::local::Control;

use super::cancel::MAX_STRANGERS;
use super::lane::Lane;
use super::options::{ClientOptions, MessageIdFormat};
use super::outbox::{Batch, Outbox};
use super::pending::Pending;
use super::state::State;

/// How many lines of the longest kind the requests can carry together that are worked on.
const MAX_REQUEST_LINES: usize = 8;

/// The answer to a request: the JSON of its result, or why there is none.
pub(super) type Answer = Result<Vec<u8>, ErrorObject>;

/// What everything that serves one client shares.
pub(super) struct Link {
    pub(super) state: Arc<State>,
    pub(super) principal: Arc<Principal>,
    pub(super) agent: AgentName,
    /// Whether control lines are written, and extras taken.
    pub(super) numbered: bool,
    /// Where the client works, as far as it is known before it opens a session.
    pub(super) folder: Option<PathBuf>,
    /// The client's name across connections.
    pub(super) client: Option<String>,
    pub(super) outbox: Outbox,
    pub(super) pending: Pending,
    /// What keeps the requests of each session in order.
    pub(super) lanes: Mutex<HashMap<ThreadId, Arc<Lane>>>,
    /// Keeps what the client tells of no session in order.
    pub(super) nameless: Arc<Lane>,
    /// How much more the client may tell before its agent has heard what it told.
    pub(super) told: Arc<Semaphore>,
    requests: Mutex<Requests>,
    /// Told when one more request can be worked on.
    pub(super) has_room: Notify,
    met: Mutex<Option<Arc<Met>>>,
    /// How many more sessions the client may be ending that it has not open.
    pub(super) strangers: Arc<Semaphore>,
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
    /// Which tool servers the agent can reach.
    pub(super) servers: McpCapabilities,
    /// What the client was told.
    pub(super) result: Vec<u8>,
}

/// What became of a request that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    /// It is worked on.
    Yes,
    /// Too many others are.
    TooMany,
    /// Another of the same id is.
    Twice,
}

/// The requests that are worked on.
#[derive(Debug, Default)]
struct Requests {
    by_id: HashMap<Id<'static>, (InFlight, usize)>,
    /// How much they carry together, in bytes.
    bytes: usize,
}

/// A request that is being worked on.
#[derive(Clone, Debug)]
pub(super) enum InFlight {
    /// A prompt: its turn is ended, and it is answered like any whose turn was.
    Prompt { lane: Arc<Lane>, cancelled: CancellationToken },
    /// Anything else.
    Other(CancellationToken),
}

// === impl Link ===

impl Link {
    pub(super) fn new(state: Arc<State>, principal: Arc<Principal>, agent: AgentName) -> Self {
        let options = &state.options;
        let outbox = Outbox::new(options.max_outbox_messages, options.max_outbox_bytes);
        Self {
            outbox,
            principal,
            agent,
            numbered: false,
            folder: None,
            client: None,
            pending: Pending::default(),
            lanes: Mutex::default(),
            nameless: Arc::new(Lane::new(&ThreadId::generate())),
            told: Arc::new(Semaphore::new(options.max_requests)),
            requests: Mutex::default(),
            has_room: Notify::new(),
            met: Mutex::default(),
            strangers: Arc::new(Semaphore::new(MAX_STRANGERS)),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            state,
        }
    }

    pub(super) fn options(&self) -> &ClientOptions {
        &self.state.options
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.state.runtime
    }

    pub(super) fn read(&self) -> &Arc<dyn Read> {
        &self.state.read
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

    /// Notes that a request which carries so many bytes is worked on, where it can be.
    pub(super) fn begin(&self, id: &Id<'_>, bytes: usize, work: InFlight) -> Begun {
        let mut requests = lock(&self.requests);
        if requests.by_id.contains_key(id) {
            return Begun::Twice;
        }
        let room = MAX_REQUEST_LINES.saturating_mul(self.options().max_line_bytes);
        let has_room = requests.bytes.saturating_add(bytes) <= room;
        if !has_room || requests.by_id.len() >= self.options().max_requests {
            return Begun::TooMany;
        }
        requests.bytes += bytes;
        requests.by_id.insert(id.clone().into_owned(), (work, bytes));
        Begun::Yes
    }

    /// Notes what a request became that is worked on.
    pub(super) fn rebind(&self, id: &Id<'static>, work: InFlight) {
        if let Some((known, _)) = lock(&self.requests).by_id.get_mut(id) {
            *known = work;
        }
    }

    /// The work on a request, where it is being worked on.
    pub(super) fn in_flight(&self, id: &Id<'_>) -> Option<InFlight> {
        lock(&self.requests).by_id.get(id).map(|(work, _)| work.clone())
    }

    /// Adds the answer to a request that is worked on to lines that go out. Only the first one counts.
    pub(super) fn write_answer(&self, lines: &mut Lines, id: &Id<'static>, answer: &Answer) {
        let is_first = {
            let mut requests = lock(&self.requests);
            let known = requests.by_id.remove(id);
            requests.bytes -= known.as_ref().map_or(0, |(_, bytes)| *bytes);
            known.is_some()
        };
        if is_first {
            lines.answer(id, answer);
            self.has_room.notify_one();
        }
    }

    /// Answers a request that is worked on. Only the first answer counts.
    pub(super) async fn answer(&self, id: &Id<'static>, answer: Answer) {
        let mut lines = Lines::default();
        self.write_answer(&mut lines, id, &answer);
        if !lines.bytes.is_empty() {
            self.send(lines, Control::Boundary).await;
        }
    }

    /// Answers a request that nobody works on.
    pub(super) async fn answer_at_once(&self, id: &Id<'static>, answer: Answer) {
        let mut lines = Lines::default();
        lines.answer(id, &answer);
        self.send(lines, Control::Boundary).await;
    }

    /// Says that a prompt's turn goes on whatever becomes of the connection, to whoever takes it.
    pub(super) async fn confirm(&self, prompt: &Id<'static>) {
        if self.numbered {
            let mut lines = Lines::default();
            lines.control(&Control::Accepted { request: prompt.as_str().into() });
            // Only a client that says nothing more waits for this.
            self.outbox.push_lazily(Batch { lines: lines.bytes, messages: 0 }).await;
        }
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
    fn answer(&mut self, id: &Id<'static>, answer: &Answer) {
        match answer {
            Ok(result) => match serde_json::from_slice::<&RawValue>(result) {
                Ok(raw) => write_response(&mut self.bytes, id, raw),
                Err(_) => write_response(&mut self.bytes, id, &()),
            },
            Err(error) => write_error(&mut self.bytes, id, error),
        }
        self.end();
    }

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
