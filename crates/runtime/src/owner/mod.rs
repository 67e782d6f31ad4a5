//! The owner of one thread: takes requests in order, turns them into steps, appends, and carries out effects.
//!
//! Waiting requests are taken together and become one append.
//! While it commits, runs fill their drafts, which become the next append.
//!
//! Module map:
//! - `mod`: the loop of an owner: receive, step, commit, expire interrupts.
//! - `envelope`, `inbox`, `request_size`: the requests, and their bounded queue.
//! - `request`: handles each request.
//! - `next_append`: collects steps into the next append, with its waiters.
//! - `effects`: carries out the effects of a durable append.
//! - `at_once`: the short path for a run whose agent answers at once.
//! - `lifecycle`: loading, recovery from a failed append, hand-over, shutdown.

mod at_once;
mod effects;
mod envelope;
mod inbox;
mod lifecycle;
mod message_ids;
mod next_append;
mod request;
mod request_size;
mod yielding;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, InterruptId, RunKey, ThreadKey};
use trilogue_store::ownership::may_pass;
use trilogue_store::rows::RunRow;
use trilogue_store::{Batch, Frame};

use crate::agent_registry::AgentRegistry;
use crate::context::SharedRun;
use crate::services::{Services, SpawnOwner};
use crate::state::ThreadState;
use crate::step::{Command, Effect, Reply, lost_failure, step};

use envelope::Waiter;
pub(crate) use envelope::{Envelope, HandOver, stopped_error, unexpected};
use inbox::QueuedRequest;
pub(crate) use inbox::{OwnerInbox, OwnerRequests};
use message_ids::KnownMessageIds;
use next_append::{Acknowledgement, NextAppend};

const MAX_REQUESTS_PER_APPEND: usize = 64;
/// How long a thread waits after a failed append before its queued runs are retried.
const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Owner {
    services: Arc<Services>,
    agents: Arc<AgentRegistry>,
    thread: ThreadKey,
    state: Option<ThreadState>,
    committed: u64,
    requests: OwnerRequests,
    inbox: OwnerInbox,
    /// Usually there is one task, so an ordered map is cheaper than a hash map.
    tasks: BTreeMap<RunKey, Task>,
    waiters: BTreeMap<RunKey, Vec<Waiter>>,
    watched: Vec<Watched>,
    pending: NextAppend,
    message_ids: KnownMessageIds,
    /// The state before a run that may be refused because one of its ids is taken.
    undo: Option<ThreadState>,
    /// The appended frames, while a caller waits to read them back.
    log: Vec<Arc<Frame>>,
    /// A buffer for the next draft.
    spare: Vec<u8>,
    /// Wakes an idle owner. It is reset only when it has elapsed, not with each request.
    idle_timer: Option<Pin<Box<Sleep>>>,
    /// The next owner, once the thread is idle.
    hand_over: Option<HandOver>,
    /// Whether the server is stopping, and does not wait for answers.
    takes_no_questions: bool,
    gone: bool,
    /// Whether `gone` is set because the thread was removed.
    is_erased: bool,
}

#[derive(Debug)]
struct Task {
    shared: Arc<SharedRun>,
    /// `None` if it completed in the task of its caller.
    handle: Option<AbortHandle>,
}

/// An interrupt whose patience is watched in memory.
#[derive(Debug)]
struct Watched {
    interrupt: InterruptId,
    began: Instant,
    patience: Duration,
}

/// Returns the function that starts the owners of stored threads, with these agents.
pub(crate) fn spawner(agents: Arc<AgentRegistry>) -> Box<SpawnOwner> {
    Box::new(move |services, thread, inbox, requests| {
        let owner = Owner::new(services, Arc::clone(&agents), thread, None, (inbox, requests));
        tokio::spawn(Box::new(owner).run());
    })
}

// === impl Owner ===

impl Owner {
    pub(crate) fn of_new_thread(
        services: &Arc<Services>,
        agents: &Arc<AgentRegistry>,
        state: ThreadState,
    ) -> Box<Self> {
        let channel = OwnerInbox::new(&services.options);
        let thread = state.thread.key;
        let (services, agents) = (Arc::clone(services), Arc::clone(agents));
        let owner = Self::new(services, agents, thread, Some(state), channel);
        Box::new(Self { message_ids: KnownMessageIds::of_new_thread(), ..owner })
    }

    /// Registers the owner and spawns it.
    pub(crate) fn start_serving(self: Box<Self>) -> OwnerInbox {
        let inbox = self.inbox.clone();
        // Before the spawn: a request for an unregistered thread starts another owner.
        self.services.register(self.thread, inbox.clone());
        tokio::spawn(self.run());
        inbox
    }

    fn new(
        services: Arc<Services>,
        agents: Arc<AgentRegistry>,
        thread: ThreadKey,
        state: Option<ThreadState>,
        (inbox, requests): (OwnerInbox, OwnerRequests),
    ) -> Self {
        let notifies = services.options.notify;
        if let Some(state) = &state {
            inbox.set_epoch(state.thread.epoch);
        }
        Self {
            services,
            agents,
            thread,
            state: state.map(|state| ThreadState { notifies, ..state }),
            committed: 0,
            requests,
            inbox,
            tasks: BTreeMap::new(),
            waiters: BTreeMap::new(),
            watched: Vec::new(),
            pending: NextAppend::default(),
            message_ids: KnownMessageIds::default(),
            undo: None,
            log: Vec::new(),
            spare: Vec::new(),
            idle_timer: None,
            hand_over: None,
            takes_no_questions: false,
            gone: false,
            is_erased: false,
        }
    }

    /// Runs until the thread is idle, removed, or cannot be stored.
    pub(crate) async fn run(mut self: Box<Self>) {
        if self.state.is_none()
            && let Err(error) = self.load(false, &lost_failure()).await
        {
            // A temporary failure: the waiting work must be resumed later, without another request.
            if may_pass(error.code()) {
                self.wake_later();
            }
            self.leave(Some(&error)).await;
            return;
        }
        if self.gone {
            // The load completed a roll-back of the previous owner, which removed the thread.
            self.leave(None).await;
            return;
        }
        let mut requests = Vec::with_capacity(8);
        loop {
            if !self.receive(&mut requests).await {
                if self.may_leave() {
                    self.leave(None).await;
                    return;
                }
                continue;
            }
            // Each request keeps its room until its changes are in the next append, so that a slow store slows down senders.
            for QueuedRequest { request, room } in requests.drain(..) {
                self.take(request).await;
                self.commit_if_full().await;
                drop(room);
            }
            self.expire();
            // A run that no caller knows yet waits for its first output, to share one append with it.
            if !self.pending.may_wait {
                self.commit().await;
            }
            // After the commit, because the next owner continues from the store.
            self.hand_over_when_idle().await;
            if self.gone {
                self.leave(None).await;
                return;
            }
        }
    }

    /// Receives the next requests. Returns `false` if the thread was idle long enough for the owner to leave.
    async fn receive(&mut self, requests: &mut Vec<QueuedRequest>) -> bool {
        let idle = self.is_idle();
        let ephemeral = self.state.as_ref().is_some_and(|state| state.thread.ephemeral);
        if idle && ephemeral && self.requests.is_empty() && self.committed > 0 {
            return false;
        }
        let patience = self.next_expiry();
        let until = match (patience, idle) {
            (Some(expiry), _) => expiry,
            (None, true) => Instant::now() + self.services.options.owner_idle,
            (None, false) => {
                return self.requests.recv_many(requests, MAX_REQUESTS_PER_APPEND).await > 0;
            }
        };
        let idle_timer = self.idle_timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if idle_timer.deadline() > until || idle_timer.is_elapsed() {
            idle_timer.as_mut().reset(until);
        }
        loop {
            // Requests first, so that an owner with work does not leave. `recv_many` loses nothing if the timer wins.
            tokio::select! {
                biased;
                count = self.requests.recv_many(requests, MAX_REQUESTS_PER_APPEND) => return count > 0,
                () = idle_timer.as_mut() => {}
            }
            if Instant::now() >= until {
                // An expiry is work to do; idleness is not.
                return patience.is_some();
            }
            // The timer was set for an earlier request.
            idle_timer.as_mut().reset(until);
        }
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.waiters.is_empty() && self.watched.is_empty()
    }

    fn may_leave(&self) -> bool {
        self.is_idle() && self.requests.is_empty()
    }

    fn step(&mut self, command: Command) -> Result<Reply> {
        let Some(state) = &mut self.state else {
            return Err(Error::new(Code::Internal, "the thread is not loaded"));
        };
        let mut result = step(state, command, self.services.clock.now())?;
        let reply = std::mem::take(&mut result.reply);
        self.message_ids.note(&result.changes);
        self.pending.add(result);
        Ok(reply)
    }

    fn acknowledge(&mut self, acknowledgement: Acknowledgement) {
        self.pending.may_wait = false;
        self.pending.acknowledgements.push(acknowledgement);
    }

    /// Commits if the pending changes fill an append.
    async fn commit_if_full(&mut self) {
        if self.pending.is_full() {
            self.commit().await;
        }
    }

    /// Appends the pending changes and carries out their effects.
    async fn commit(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        // With nothing to append, all earlier changes are durable.
        if pending.is_empty() {
            for acknowledgement in pending.acknowledgements {
                acknowledgement.notify(Ok(()));
            }
            self.carry_out(pending.effects);
            return;
        }
        let Some(state) = &self.state else { return };
        let batch = pending.batch(&self.services, state, self.committed, &mut self.spare);
        if state.reads_back {
            self.log.extend_from_slice(&batch.frames);
        }
        let last = state.last;
        match self.append(batch, &pending.effects).await {
            Ok(()) => {
                // Durable from here on: only now reply to callers and carry out effects.
                self.committed = last;
                self.message_ids.stored();
                if pending.erases {
                    // The thread's tasks end first; the caller gets the reply after everything is removed.
                    self.carry_out(std::mem::take(&mut pending.effects));
                    self.forget().await;
                }
                for acknowledgement in pending.acknowledgements {
                    acknowledgement.notify(Ok(()));
                }
                self.carry_out(pending.effects);
            }
            Err(error) => {
                // The noted ids may not be stored, so the next check asks the store.
                self.message_ids = KnownMessageIds::default();
                for acknowledgement in pending.acknowledgements {
                    acknowledgement.notify(Err(error.clone()));
                }
                match self.undo.take() {
                    // Nothing was stored, and only the new run's ids were taken: restore the state before it.
                    Some(before) if error.code() == Code::AlreadyExists && before.last > 0 => {
                        self.state = Some(before);
                    }
                    _ => self.recover_from(&error).await,
                }
            }
        }
    }

    /// Appends a batch, and publishes its changes to operators.
    async fn append(&self, batch: Batch, effects: &[Effect]) -> Result<()> {
        let monitor = &self.services.monitor;
        let noted = monitor.summarize_append(&batch);
        let thread = self.state.as_ref().map(|state| &state.thread);
        match self.services.append(batch, thread).await {
            Ok(()) => {
                let ended = effects.iter().filter_map(|effect| match effect {
                    Effect::Settled(row) if row.status.is_terminal() => Some(&**row),
                    _ => None,
                });
                monitor.record_append(noted, ended);
                Ok(())
            }
            Err(error) => {
                monitor.append_failed(error.code());
                Err(error)
            }
        }
    }

    fn tell_waiters(&mut self, run: RunKey, outcome: Result<RunRow>) {
        let mut waiters = self.waiters.remove(&run).unwrap_or_default();
        let last = waiters.pop();
        for waiter in waiters {
            waiter.notify(outcome.clone());
        }
        if let Some(last) = last {
            last.notify(outcome);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let Some(state) = &self.state else { return };
        self.watched.retain(|watched| state.run_waiting_for(&watched.interrupt).is_some());
        let expired: Vec<_> = self
            .watched
            .iter()
            .filter(|watched| self.ends(watched) <= now)
            .map(|watched| watched.interrupt.clone())
            .collect();
        for interrupt in expired {
            // Also if the step changes nothing: an expired entry would wake the owner again at once.
            self.watched.retain(|watched| watched.interrupt != interrupt);
            // Fails only if no thread is loaded, and then nothing is watched.
            drop(self.step(Command::Deadline { interrupt }));
        }
    }

    fn next_expiry(&self) -> Option<Instant> {
        self.watched.iter().map(|watched| self.ends(watched)).min()
    }

    fn ends(&self, watched: &Watched) -> Instant {
        self.services.patience_ends(self.thread, watched.began, watched.patience)
    }
}
