//! The state that all owners share: the store, the registry of owners, and connected clients.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, ReadOriginal};
use trilogue_domain::{CheckpointId, CheckpointKey, Code, Error, RunKey, ThreadKey};
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Batch, PeerMessage, Store};

use crate::call_chains::CallChains;
use crate::client::Controllers;
use crate::external_ports::ExternalPorts;
use crate::history::RunReferences;
use crate::monitor::RunMonitor;
use crate::owner::{Envelope, OwnerInbox, OwnerRequests};
use crate::presence::{Presence, PresenceTable};
use crate::request::Options;
use crate::row_changes::RowChanges;
use crate::shares::Shares;
use trilogue_domain::lock;

/// Starts the owner of a stored thread with its channel of requests.
pub(crate) type SpawnOwner =
    dyn Fn(Arc<Services>, ThreadKey, OwnerInbox, OwnerRequests) + Send + Sync;

/// The state that all owners share. It knows neither agents nor how an owner works: both are layers above it.
pub(crate) struct Services {
    pub(crate) options: Options,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) controllers: Controllers,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) originals: Arc<dyn ReadOriginal>,
    pub(crate) external: Arc<ExternalPorts>,
    pub(crate) run_references: Arc<RunReferences>,
    pub(crate) call_chains: Arc<CallChains>,
    pub(crate) monitor: RunMonitor,
    pub(crate) row_changes: RowChanges,
    pub(crate) presence_table: Arc<PresenceTable>,
    /// Identifies this process as the owner of threads.
    pub(crate) node: String,
    pub(crate) running: Semaphore,
    pub(crate) running_shares: Arc<Shares>,
    pub(crate) tasks: AtomicUsize,
    /// The tasks of runs that their agents started.
    agent_tasks: AtomicUsize,
    pub(crate) draining: AtomicBool,
    /// Whether every thread that a previous process left open was recovered.
    recovered: AtomicBool,
    /// Notified when a task has ended, for a drain.
    pub(crate) task_ended: Notify,
    /// Notified when an owner has left the registry.
    owner_left: Notify,
    owners: Mutex<HashMap<ThreadKey, OwnerInbox>>,
    /// Threads whose waiting work is resumed later.
    woken_later: Mutex<HashSet<ThreadKey>>,
    spawn_owner: Box<SpawnOwner>,
}

/// How long a copy waits for the late output of an answer, if the agent's own setting is longer.
const MAX_SETTLE_WAIT: Duration = Duration::from_secs(5);

/// The permits for runs at work.
fn most_running(options: &Options) -> usize {
    options.max_running.min(Semaphore::MAX_PERMITS)
}

// === impl Services ===

impl Services {
    /// The number of runs that count for `max_running`: a run that waits for an answer or for another agent does not.
    pub(crate) fn runs_at_work(&self) -> usize {
        most_running(&self.options).saturating_sub(self.running.available_permits())
    }

    pub(crate) fn new(
        options: Options,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        originals: Arc<dyn ReadOriginal>,
        spawn_owner: Box<SpawnOwner>,
    ) -> Arc<Self> {
        Arc::new(Self {
            // A store that several processes share gives this one an id.
            node: store.node().map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned),
            running: Semaphore::new(most_running(&options)),
            running_shares: Shares::new(options.max_running_each()),
            monitor: RunMonitor::new(options.ended_runs.clone()),
            presence_table: Arc::new(PresenceTable::new(options.interrupt_deadline)),
            options,
            store,
            controllers: Controllers::default(),
            clock,
            originals,
            external: Arc::new(ExternalPorts::new()),
            run_references: Arc::default(),
            call_chains: Arc::default(),
            row_changes: RowChanges::default(),
            tasks: AtomicUsize::new(0),
            agent_tasks: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            recovered: AtomicBool::new(false),
            task_ended: Notify::new(),
            owner_left: Notify::new(),
            owners: Mutex::default(),
            woken_later: Mutex::default(),
            spawn_owner,
        })
    }

    /// Appends a batch of this thread, if the thread is known. Publishes its changes to watchers of rows, here and on other nodes.
    pub(crate) async fn append(&self, batch: Batch, thread: Option<&ThreadRow>) -> Result<()> {
        let has_peers = self.store.has_peers();
        let changes = self.row_changes.of(&batch, thread, has_peers);
        self.store.append(batch).await?;
        // Only after the append, so that watchers never see changes that failed.
        if let Some(changes) = changes {
            if has_peers {
                self.store.publish(PeerMessage::Rows(changes.to_vec()));
            }
            self.row_changes.publish(changes);
        }
        Ok(())
    }

    /// Sends a request to a thread's owner. Starts one from the store if none is in memory. Fails with `shutting_down` if each owner ends before it takes the request.
    pub(crate) async fn send(self: &Arc<Self>, thread: ThreadKey, request: Envelope) -> Result<()> {
        /// An owner can end between lookup and sending; each try finds a new one.
        const TRIES: usize = 16;
        let mut request = request;
        for _ in 0..TRIES {
            let owner = self.owner(thread);
            match owner.send(request).await {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(back)) => request = back,
            }
            // The ended owner may still have to leave the registry.
            tokio::task::yield_now().await;
        }
        Err(Error::new(Code::ShuttingDown, "the thread's owner takes no requests"))
    }

    /// Completes a run whose agent has answered, if the thread is loaded here. Returns whether its rows may have changed.
    pub(crate) async fn complete_answered(self: &Arc<Self>, thread: ThreadKey) -> bool {
        if !lock(&self.owners).contains_key(&thread) {
            return false;
        }
        let (reply, done) = oneshot::channel();
        // An owner that stops meanwhile completes the run itself, or keeps it open.
        self.send(thread, Envelope::CompleteAnswered { reply }).await.is_ok()
            && matches!(done.await, Ok(Ok(())))
    }

    /// Waits until the run whose agent has answered has its late output, and completes it if that takes too long. Returns whether its rows may have changed.
    pub(crate) async fn settle_answered(self: &Arc<Self>, thread: ThreadKey) -> bool {
        if !lock(&self.owners).contains_key(&thread) {
            return false;
        }
        let (reply, settled) = oneshot::channel();
        if self.send(thread, Envelope::SettleAnswered { reply }).await.is_err() {
            return false;
        }
        match tokio::time::timeout(MAX_SETTLE_WAIT, settled).await {
            // An error too: the thread may have been erased.
            Ok(settled) => !matches!(settled, Ok(Ok(None))),
            Err(_) => self.complete_answered(thread).await,
        }
    }

    /// Loads a thread here, so that its owner decides about its open runs.
    pub(crate) async fn load(self: &Arc<Self>, thread: ThreadKey) -> Result<()> {
        let (reply, loaded) = oneshot::channel();
        self.send(thread, Envelope::Settled { run: RunKey(0), reply }).await?;
        loaded.await.unwrap_or(Ok(None)).map(drop)
    }

    /// Makes the thread's next owner resume the waiting work after a pause. Repeated calls during the pause count once.
    pub(crate) fn wake_after(self: &Arc<Self>, thread: ThreadKey, pause: Duration) {
        if !lock(&self.woken_later).insert(thread) {
            return;
        }
        let services = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // Before the send, so that a failure of the woken owner can request the next wake-up.
            lock(&services.woken_later).remove(&thread);
            // Fails only while the server stops. The next start resumes the work.
            drop(services.send(thread, Envelope::Wake).await);
        });
    }

    pub(crate) fn register(&self, thread: ThreadKey, owner: OwnerInbox) {
        lock(&self.owners).insert(thread, owner);
    }

    fn owner(self: &Arc<Self>, thread: ThreadKey) -> OwnerInbox {
        let mut owners = lock(&self.owners);
        if let Some(owner) = owners.get(&thread) {
            return owner.clone();
        }
        let (inbox, requests) = OwnerInbox::new(&self.options);
        // Under the lock of the lookup, so that a thread has at most one owner in this process.
        owners.insert(thread, inbox.clone());
        drop(owners);
        (self.spawn_owner)(Arc::clone(self), thread, inbox.clone(), requests);
        inbox
    }

    /// Removes an owner from the registry; the next request starts a new one.
    pub(crate) fn retire(&self, thread: ThreadKey) {
        lock(&self.owners).remove(&thread);
        self.owner_left.notify_waiters();
    }

    /// Resolves when each of these threads had no owner here at some moment.
    pub(crate) async fn all_left(&self, mut threads: Vec<ThreadKey>) {
        loop {
            // Created before the check, so that no departure is missed.
            let left = self.owner_left.notified();
            threads.retain(|thread| self.is_owned(*thread));
            if threads.is_empty() {
                return;
            }
            left.await;
        }
    }

    pub(crate) fn is_owned(&self, thread: ThreadKey) -> bool {
        lock(&self.owners).contains_key(&thread)
    }

    /// Returns the epoch under which this node owns a loaded thread.
    pub(crate) fn epoch(&self, thread: ThreadKey) -> Option<u64> {
        lock(&self.owners).get(&thread)?.epoch()
    }

    pub(crate) fn owned(&self) -> Vec<ThreadKey> {
        lock(&self.owners).keys().copied().collect()
    }

    pub(crate) fn owner_count(&self) -> usize {
        lock(&self.owners).len()
    }

    pub(crate) fn new_checkpoint(&self) -> (CheckpointKey, CheckpointId) {
        (self.store.next_checkpoint_key(), CheckpointId::generate())
    }

    pub(crate) fn is_recovered(&self) -> bool {
        self.recovered.load(Ordering::Acquire)
    }

    pub(crate) fn set_recovered(&self) {
        self.recovered.store(true, Ordering::Release);
    }

    pub(crate) fn task_started(&self, is_of_agent: bool) {
        self.tasks.fetch_add(1, Ordering::AcqRel);
        if is_of_agent {
            self.agent_tasks.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn task_done(&self, is_of_agent: bool) {
        // Before the other: the difference never counts a task too few.
        if is_of_agent {
            self.agent_tasks.fetch_sub(1, Ordering::AcqRel);
        }
        self.tasks.fetch_sub(1, Ordering::AcqRel);
        self.task_ended.notify_waiters();
    }

    /// Resolves when no run has a task.
    pub(crate) async fn all_ended(&self) {
        self.ended_but(|| 0).await;
    }

    /// Resolves when no run that a client requested has a task.
    pub(crate) async fn requested_ended(&self) {
        self.ended_but(|| self.agent_tasks.load(Ordering::Acquire)).await;
    }

    async fn ended_but(&self, others: impl Fn() -> usize) {
        loop {
            // Created before the check, so that no end is missed.
            let ended = self.task_ended.notified();
            if self.tasks.load(Ordering::Acquire) <= others() {
                return;
            }
            ended.await;
        }
    }

    /// Returns when the patience of an interrupt that began at `began` ends, counted from when the last client left. It is extended while a client is connected, but at most to [`Options::attended_deadline`]: a silent client does not hold an agent for ever.
    ///
    /// [`Options::attended_deadline`]: crate::Options::attended_deadline
    pub(crate) fn patience_ends(
        &self,
        thread: ThreadKey,
        began: Instant,
        patience: Duration,
    ) -> Instant {
        let longest = patience.max(self.options.attended_deadline);
        self.presence_table.patience_ends(thread, began, patience, longest)
    }

    /// Counts a client that can answer, here and on the other nodes.
    pub(crate) fn present(&self, thread: ThreadKey) -> Presence {
        let (presence, is_first) = self.presence_table.enter(thread);
        if is_first {
            self.publish_presence(thread);
        }
        presence
    }

    /// Publishes to the other nodes that the thread has a client that can answer.
    pub(crate) fn publish_presence(&self, thread: ThreadKey) {
        self.store.publish(PeerMessage::Present(vec![thread]));
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("node", &self.node).finish_non_exhaustive()
    }
}
