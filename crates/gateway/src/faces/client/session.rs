//! A session that a client has open.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{Interrupt, Json, MessageId, Outcome, RunId, RunKey, Scope};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{Attached, Client, Presence};
use trilogue_store::rows::ThreadRow;
use trilogue_wire::jsonrpc::Id;

use super::calls::SessionClient;
use super::lane::Lane;
use super::link::{Answer, Link, Met, lock};
use super::open_sessions::Counted;
use super::pump::{Order, Pump};
use super::said::Said;
use super::voice::Voice;
use crate::core::not_found::no_thread;

/// The most orders that wait for a pump.
const MAX_ORDERS: usize = 64;
/// The key of a thread's metadata under which its agent stands.
pub(super) const AGENT: &str = "trilogue.agent";
/// Likewise where its agent works.
pub(super) const CWD: &str = "trilogue.cwd";
/// Likewise where its agent may work too.
pub(super) const ADDITIONAL_DIRECTORIES: &str = "trilogue.additional_directories";
/// Likewise the options that its runs are given.
pub(super) const CONFIG: &str = "trilogue.config";

/// The key of a run's metadata under which the client stands that prompted it, where it comes back after a connection has broken.
pub(super) const CLIENT: &str = "trilogue.client";
/// Likewise what makes a prompt that comes again the same, where that is asked for.
pub(super) const DIGEST: &str = "trilogue.prompt_digest";

/// A session that a client has open: a thread whose log a pump shows it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) thread: ThreadRow,
    state: Mutex<State>,
    pub(super) orders: mpsc::Sender<Order>,
    /// Ends the pump.
    pub(super) stop: CancellationToken,
    attached: Attached,
    /// Woken when prompts were answered.
    pub(super) settled: Notify,
    /// Whether the pump was told where to begin.
    has_begun: AtomicBool,
    _presence: Presence,
    _counted: Counted,
}

/// What changes while a session is open.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The prompts that wait for the end of a run.
    pub(super) prompts: Vec<OpenPrompt>,
    /// How many prompts are being accepted: what ends meanwhile is remembered.
    pub(super) accepting: usize,
    /// Runs that ended while prompts were being accepted.
    pub(super) ended: HashMap<RunKey, Ended>,
    /// Likewise those that were removed, with their ends.
    pub(super) removed: HashSet<RunId>,
    /// Whether the session cannot be shown any more: nobody else answers what is prompted in it.
    pub(super) is_over: bool,
    /// Messages that this client prompted.
    pub(super) mine: HashSet<MessageId>,
    /// The question that the last turn ended with: the next prompt is its answer.
    pub(super) asked: Option<Interrupt>,
    /// Whether the client has been told everything that was asked when it opened the session.
    pub(super) knows_asked: bool,
    /// Counts this client among those who are asked it.
    pub(super) voice: Option<Voice>,
    /// What this client has set, until the log tells of it: the others are told.
    pub(super) set: Vec<serde_json::Value>,
    /// What the agent's own session is to be opened with before it is used.
    pub(super) opening: Option<Json>,
    /// Whether the client may say again what it said on a connection that has broken since.
    pub(super) may_repeat: bool,
    /// What was said on such a connection in answer to questions, once it was looked for.
    pub(super) said_before: Option<Arc<Vec<Said>>>,
}

/// A prompt that waits for the end of its run.
#[derive(Clone, Debug)]
pub(super) struct OpenPrompt {
    pub(super) request: Id<'static>,
    pub(super) run: RunKey,
    pub(super) run_id: RunId,
    /// What the client is told of its message's id.
    pub(super) user_message_id: Option<String>,
    /// The message.
    pub(super) message: Option<MessageId>,
    /// Where the run had ended before: the number that the client must have been told up to, and how.
    pub(super) ended_at: Option<(u64, Ended)>,
    /// Whether the client has ended it since it came.
    pub(super) since: Cancelled,
}

/// What tells whether the client has ended a prompt's turn since the prompt came.
#[derive(Clone, Debug)]
pub(super) struct Cancelled {
    /// It holds the session, which holds this.
    pub(super) lane: Weak<Lane>,
    /// How often the session's work had been cancelled when the prompt came.
    pub(super) cancels: u64,
    /// Cancelled when this prompt alone is.
    pub(super) cancelled: CancellationToken,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// What the agent itself answered, where it is one of this protocol.
    pub(super) result: Option<String>,
}

// === impl Session ===

impl Session {
    /// Attaches the client to a thread that it may see. Its pump starts when it is told where.
    pub(super) fn open(link: &Arc<Link>, met: &Met, thread: ThreadRow) -> Arc<Self> {
        let (orders, taken) = mpsc::channel(MAX_ORDERS);
        let client: Arc<dyn Client> = Arc::new(SessionClient::new(link, met, &thread.id));
        let runtime = link.runtime();
        let session = Arc::new(Self {
            attached: runtime.attach(&thread, client),
            _presence: runtime.present(&thread),
            _counted: link.state.open_sessions.open(thread.key),
            settled: Notify::new(),
            has_begun: AtomicBool::new(false),
            state: Mutex::default(),
            orders,
            stop: CancellationToken::new(),
            thread,
        });
        let pump = Pump::new(Arc::clone(link), Arc::clone(&session), met);
        link.tasks.spawn(pump.run(taken));
        session
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn id(&self) -> &str {
        self.thread.id.as_str()
    }

    /// Whether the pump is still to be told where to begin; whoever asks tells it.
    pub(super) fn begin(&self) -> bool {
        !self.has_begun.swap(true, Ordering::AcqRel)
    }

    /// Makes the client the one that the agent's calls go to.
    pub(super) fn take_control(&self) {
        self.attached.take_control();
    }

    /// Has the pump do something. `false` after its end: nothing is done.
    pub(super) async fn order(&self, order: Order) -> bool {
        self.orders.send(order).await.is_ok()
    }

    /// The thread as it is now.
    ///
    /// # Errors
    /// `thread_not_found`.
    pub(super) async fn row(&self, link: &Link) -> Result<ThreadRow> {
        thread_of(link, self.id()).await
    }
}

/// The thread that a session id names, where this client may see it.
///
/// # Errors
/// `thread_not_found`.
pub(super) async fn thread_of(link: &Link, session: &str) -> Result<ThreadRow> {
    let Ok(id) = trilogue_domain::ThreadId::parse(session) else { return Err(no_thread(session)) };
    let found = link.read().thread(&link.principal.scope(), &id).await?;
    found.filter(|row| !row.ephemeral).ok_or_else(|| no_thread(session))
}

/// Everything of the thread's tenant: for what belongs to a thread that was looked up.
pub(super) fn scope_of(thread: &ThreadRow) -> Scope {
    Scope { tenant: thread.tenant.clone(), owner: None }
}

/// The options that a thread's runs are given.
pub(super) fn config_of(thread: &ThreadRow) -> Option<Json> {
    config_in(&thread.metadata)
}

/// The same, of a thread with these metadata.
pub(super) fn config_in(metadata: &Json) -> Option<Json> {
    let metadata = metadata.to_value();
    let config = metadata.get(CONFIG).filter(|config| config.is_object());
    config.map(Json::from_value)
}

// === impl Cancelled ===

impl Cancelled {
    /// Whether the client has.
    pub(super) fn is_so(&self) -> bool {
        let is_later = |lane: Arc<Lane>| lane.cancels() != self.cancels;
        self.cancelled.is_cancelled() || self.lane.upgrade().is_some_and(is_later)
    }
}

// === impl OpenPrompt ===

impl OpenPrompt {
    /// How the prompt is answered. Whoever has ended the turn is told so, whatever went wrong with it then.
    pub(super) fn answer(&self, ended: &Ended, told: Option<&str>) -> Answer {
        match &ended.outcome {
            Outcome::Failed(_) if self.since.is_so() => {
                mapping::prompt_result(&Outcome::Cancelled { reason: None }, None, told)
            }
            outcome => mapping::prompt_result(outcome, ended.result.as_deref(), told),
        }
    }
}

// === impl Ended ===

impl Ended {
    /// Of a run that was removed: nobody knows any more.
    pub(super) const fn removed() -> Self {
        Self { outcome: Outcome::Cancelled { reason: None }, result: None }
    }
}

// === impl State ===

impl State {
    /// Whether this client has set this; it counts once.
    pub(super) fn take_set(&mut self, set: &serde_json::Value) -> bool {
        let place = self.set.iter().position(|mine| mine == set);
        place.map(|place| self.set.remove(place)).is_some()
    }

    /// The prompts that wait for this run; they wait no more.
    pub(super) fn take_prompts(&mut self, run: RunKey) -> Vec<OpenPrompt> {
        self.prompts.extract_if(.., |prompt| prompt.run == run).collect()
    }

    /// The prompts that wait for a run that was removed; where there are none, it is remembered for those that are being accepted.
    pub(super) fn claim_removed(&mut self, run: &RunId) -> Vec<OpenPrompt> {
        let mut prompts: Vec<_> =
            self.prompts.extract_if(.., |prompt| prompt.run_id == *run).collect();
        if prompts.is_empty() && self.accepting > 0 {
            self.removed.insert(run.clone());
        }
        // The message has gone with it.
        prompts.iter_mut().for_each(|prompt| prompt.user_message_id = None);
        prompts
    }

    /// How the run of a prompt that is being accepted has ended, where it has.
    pub(super) fn how_ended(&self, prompt: &OpenPrompt) -> Option<Ended> {
        let known = self.ended.get(&prompt.run).cloned();
        let is_removed = self.is_over || self.removed.contains(&prompt.run_id);
        known.or_else(|| is_removed.then(Ended::removed))
    }

    /// The prompts that wait for a run that has ended; where there are none, it is remembered for those that are being accepted.
    pub(super) fn claim(&mut self, run: RunKey, ended: &Ended) -> Vec<OpenPrompt> {
        let prompts = self.take_prompts(run);
        if prompts.is_empty() && self.accepting > 0 {
            self.ended.insert(run, ended.clone());
        }
        prompts
    }

    /// The prompts whose runs had ended at or before this number; they wait no more.
    pub(super) fn take_ended(&mut self, number: u64) -> Vec<(OpenPrompt, Ended)> {
        let mut taken = Vec::new();
        self.prompts.retain(|prompt| match &prompt.ended_at {
            Some((at, ended)) if *at <= number => {
                taken.push((prompt.clone(), ended.clone()));
                false
            }
            _ => true,
        });
        taken
    }
}
