//! What all owners share: the store, the agents, the registry of owners, and who is connected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;
use trilogue_domain::error::Result;
pub(crate) use trilogue_domain::lock;
use trilogue_domain::port::{Clock, ReadOriginal};
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, Code, Error, Scope, TenantId, ThreadId, ThreadKey,
};
use trilogue_store::Store;

use crate::agents::Agents;
use crate::backend::Backend;
use crate::client::Controllers;
use crate::outside::Outside;
use crate::owner::{Envelope, Owner};
use crate::request::Options;
use crate::session::ThreadContext;
use crate::state::ThreadState;

/// How long who erases a thread waits for agents to remove what they kept for it.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(10);

/// Shared by every owner.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) options: Options,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agents: Agents,
    /// The clients that take calls of agents.
    pub(crate) controllers: Controllers,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) originals: Arc<dyn ReadOriginal>,
    pub(crate) outside: Arc<Outside>,
    /// This life of this server, as the owner of threads.
    pub(crate) node: String,
    /// One permit for each agent that may be at work at once.
    pub(crate) running: Semaphore,
    pub(crate) tasks: AtomicUsize,
    pub(crate) draining: AtomicBool,
    /// Whether every thread that a previous life left open was looked at.
    recovered: AtomicBool,
    /// Woken when a task has ended, for who waits for all of them.
    pub(crate) task_ended: Notify,
    owners: Mutex<HashMap<ThreadKey, mpsc::Sender<Envelope>>>,
    present: Mutex<HashMap<ThreadKey, Connected>>,
}

/// Connections of those who may answer, on one thread.
#[derive(Clone, Copy, Debug)]
struct Connected {
    count: usize,
    /// When the last one left.
    left: Instant,
}

/// Keeps a thread's interrupts from timing out while somebody who may answer is connected.
#[derive(Debug)]
pub struct Presence {
    services: Arc<Services>,
    thread: ThreadKey,
}

// === impl Services ===

impl Services {
    pub(crate) fn new(
        options: Options,
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn Backend>>,
        clock: Arc<dyn Clock>,
        originals: Arc<dyn ReadOriginal>,
    ) -> Arc<Self> {
        let agents = Agents::of(agents);
        Arc::new(Self {
            running: Semaphore::new(options.max_running.min(Semaphore::MAX_PERMITS)),
            options,
            store,
            agents,
            controllers: Controllers::default(),
            clock,
            originals,
            outside: Arc::new(Outside::new()),
            node: uuid::Uuid::new_v4().to_string(),
            tasks: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            recovered: AtomicBool::new(false),
            task_ended: Notify::new(),
            owners: Mutex::default(),
            present: Mutex::default(),
        })
    }

    /// Sends to a thread's owner, starting one from the store where none is in memory.
    ///
    /// # Errors
    /// `shutting_down` when the thread's owner ends again and again before it takes the request.
    pub(crate) async fn send(self: &Arc<Self>, thread: ThreadKey, request: Envelope) -> Result<()> {
        /// An owner may end between look-up and sending; each try meets a new one.
        const TRIES: usize = 16;
        let mut request = request;
        for _ in 0..TRIES {
            let owner = self.owner(thread);
            match owner.send(request).await {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(back)) => request = back,
            }
            // The one that has ended may still have to leave the registry.
            tokio::task::yield_now().await;
        }
        Err(Error::new(Code::ShuttingDown, "the thread's owner takes no requests"))
    }

    /// Starts the owner of a thread that is not stored yet.
    pub(crate) fn start_owner(self: &Arc<Self>, state: ThreadState) -> mpsc::Sender<Envelope> {
        let owner = self.new_owner(state);
        let (thread, sender) = (owner.thread(), owner.sender());
        self.register(thread, sender.clone());
        tokio::spawn(owner.run());
        sender
    }

    /// The owner of a thread that is not stored yet, known to nobody.
    pub(crate) fn new_owner(self: &Arc<Self>, state: ThreadState) -> Owner {
        let (sender, receiver) = mpsc::channel(self.options.max_commands_per_thread);
        let thread = state.thread.key;
        Owner::new(Arc::clone(self), thread, Some(state), sender, receiver)
    }

    /// Makes an owner known.
    pub(crate) fn register(&self, thread: ThreadKey, owner: mpsc::Sender<Envelope>) {
        lock(&self.owners).insert(thread, owner);
    }

    fn owner(self: &Arc<Self>, thread: ThreadKey) -> mpsc::Sender<Envelope> {
        let mut owners = lock(&self.owners);
        if let Some(owner) = owners.get(&thread) {
            return owner.clone();
        }
        let (sender, receiver) = mpsc::channel(self.options.max_commands_per_thread);
        owners.insert(thread, sender.clone());
        drop(owners);
        let owner = Owner::new(Arc::clone(self), thread, None, sender.clone(), receiver);
        tokio::spawn(owner.run());
        sender
    }

    /// Takes an owner out of the registry; the next request starts a new one.
    pub(crate) fn retire(&self, thread: ThreadKey) {
        lock(&self.owners).remove(&thread);
    }

    /// The threads that have an owner in memory.
    pub(crate) fn owned(&self) -> Vec<ThreadKey> {
        lock(&self.owners).keys().copied().collect()
    }

    pub(crate) fn owner_count(&self) -> usize {
        lock(&self.owners).len()
    }

    pub(crate) fn backend(&self, name: &AgentName) -> Result<&Arc<dyn Backend>> {
        self.agents.get(name).ok_or_else(|| {
            let cards = self.agents.iter().map(|agent| agent.card());
            let mut names: Vec<_> = cards.map(|card| card.name.as_str()).collect();
            names.sort_unstable();
            Error::new(Code::AgentNotFound, format!("there is no agent '{name}'"))
                .hint(format!("the agents are: {}", names.join(", ")))
        })
    }

    /// Has agents with sessions of their own remove what they kept for a thread that is erased. One that takes long goes on beside.
    pub(crate) async fn forget(
        self: &Arc<Self>,
        key: ThreadKey,
        thread: &ThreadId,
        tenant: &TenantId,
    ) {
        let forgetting: Vec<_> = self
            .agents
            .iter()
            .filter(|agent| agent.sessions().is_some())
            .map(|agent| {
                let agent = Arc::clone(agent);
                let context = ThreadContext {
                    services: Arc::clone(self),
                    thread: key,
                    id: thread.clone(),
                    scope: Scope { tenant: tenant.clone(), owner: None },
                    agent: agent.card().name.clone(),
                };
                tokio::spawn(async move {
                    if let Some(sessions) = agent.sessions() {
                        sessions.forget(&context).await;
                    }
                })
            })
            .collect();
        if forgetting.is_empty() {
            return;
        }
        let all = async {
            for one in forgetting {
                if one.await.is_err() {
                    tracing::error!(%thread, "an agent could not forget an erased thread");
                }
            }
        };
        if tokio::time::timeout(FORGOTTEN_WITHIN, all).await.is_err() {
            tracing::warn!(%thread, "an agent takes long to forget an erased thread");
        }
    }

    /// A new key and id for a checkpoint.
    pub(crate) fn new_checkpoint(&self) -> (CheckpointKey, CheckpointId) {
        (self.store.next_checkpoint_key(), CheckpointId::generate())
    }

    pub(crate) fn is_recovered(&self) -> bool {
        self.recovered.load(Ordering::Acquire)
    }

    pub(crate) fn set_recovered(&self) {
        self.recovered.store(true, Ordering::Release);
    }

    pub(crate) fn task_started(&self) {
        self.tasks.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn task_done(&self) {
        if self.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.task_ended.notify_waiters();
        }
    }

    /// When an interrupt's patience is over that began at `began`: never while somebody is connected, counted from when the last one left.
    pub(crate) fn patience_ends(
        &self,
        thread: ThreadKey,
        began: Instant,
        patience: Duration,
    ) -> Instant {
        match lock(&self.present).get(&thread) {
            Some(connected) if connected.count > 0 => Instant::now() + patience,
            Some(connected) => connected.left.max(began) + patience,
            None => began + patience,
        }
    }

    pub(crate) fn present(self: &Arc<Self>, thread: ThreadKey) -> Presence {
        lock(&self.present)
            .entry(thread)
            .or_insert(Connected { count: 0, left: Instant::now() })
            .count += 1;
        Presence { services: Arc::clone(self), thread }
    }
}

// === impl Presence ===

impl Drop for Presence {
    fn drop(&mut self) {
        /// When the last one left is remembered for this many threads; beyond that the oldest are forgotten.
        const REMEMBERED: usize = 10_000;
        let mut present = lock(&self.services.present);
        if let Some(connected) = present.get_mut(&self.thread) {
            connected.count = connected.count.saturating_sub(1);
            connected.left = Instant::now();
        }
        if present.len() > REMEMBERED {
            let longest = self.services.options.interrupt_deadline;
            present
                .retain(|_, connected| connected.count > 0 || connected.left.elapsed() < longest);
        }
    }
}
