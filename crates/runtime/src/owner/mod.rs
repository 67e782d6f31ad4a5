//! The owner of one thread: takes requests in order, turns them into steps, appends, and carries out effects.
//!
//! Requests that are waiting are taken together and become one append.
//! While it commits, runs fill their drafts, which become the next append.

mod at_once;
mod effects;
mod envelope;
mod lifecycle;
mod next_append;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep_until};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, InterruptId, RunKey, Scope, ThreadKey};
use trilogue_store::Frame;
use trilogue_store::rows::{BindingRow, RunRow};

use crate::agent_registry::AgentRegistry;
use crate::context::SharedRun;
use crate::services::{Services, SpawnOwner};
use crate::state::ThreadState;
use crate::step::{Command, Effect, Reply, Submit, lost, step};

use envelope::Waiter;
pub(crate) use envelope::{Envelope, stopped, unexpected};
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
    requests: mpsc::Receiver<Envelope>,
    sender: mpsc::Sender<Envelope>,
    /// As a rule one: an ordered map needs no hash.
    tasks: BTreeMap<RunKey, Task>,
    waiters: BTreeMap<RunKey, Vec<Waiter>>,
    watched: Vec<Watched>,
    pending: NextAppend,
    /// The state before a run that may be refused for its ids.
    undo: Option<ThreadState>,
    /// The frames that were appended while somebody waited to read them back.
    log: Vec<Arc<Frame>>,
    /// A buffer for the next draft.
    spare: Vec<u8>,
    /// Wakes an idle owner. It is set again only when it has run out, not with each request.
    idle_timer: Option<Pin<Box<Sleep>>>,
    /// Whether the server stops, and does not wait for answers any more.
    takes_no_questions: bool,
    gone: bool,
    /// Whether that is because the thread was removed.
    is_erased: bool,
}

#[derive(Debug)]
struct Task {
    shared: Arc<SharedRun>,
    /// `None` when it ran to its end in the task of its caller.
    handle: Option<AbortHandle>,
}

/// An interrupt whose patience is watched in memory.
#[derive(Debug)]
struct Watched {
    interrupt: InterruptId,
    began: Instant,
    patience: Duration,
}

/// How the owners of stored threads are started, with these agents.
pub(crate) fn spawner(agents: Arc<AgentRegistry>) -> Box<SpawnOwner> {
    Box::new(move |services, thread, sender, requests| {
        let owner = Owner::new(services, Arc::clone(&agents), thread, None, sender, requests);
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
        let (sender, requests) = services.new_channel();
        let thread = state.thread.key;
        let (services, agents) = (Arc::clone(services), Arc::clone(agents));
        Box::new(Self::new(services, agents, thread, Some(state), sender, requests))
    }

    /// Registers the owner and spawns it.
    pub(crate) fn start_serving(self: Box<Self>) -> mpsc::Sender<Envelope> {
        let sender = self.sender.clone();
        self.services.register(self.thread, sender.clone());
        tokio::spawn(self.run());
        sender
    }

    fn new(
        services: Arc<Services>,
        agents: Arc<AgentRegistry>,
        thread: ThreadKey,
        state: Option<ThreadState>,
        sender: mpsc::Sender<Envelope>,
        requests: mpsc::Receiver<Envelope>,
    ) -> Self {
        let notifies = services.options.notify;
        Self {
            services,
            agents,
            thread,
            state: state.map(|state| ThreadState { notifies, ..state }),
            committed: 0,
            requests,
            sender,
            tasks: BTreeMap::new(),
            waiters: BTreeMap::new(),
            watched: Vec::new(),
            pending: NextAppend::default(),
            undo: None,
            log: Vec::new(),
            spare: Vec::new(),
            idle_timer: None,
            takes_no_questions: false,
            gone: false,
            is_erased: false,
        }
    }

    /// Runs until the thread is idle, gone, or cannot be stored.
    pub(crate) async fn run(mut self: Box<Self>) {
        if self.state.is_none()
            && let Err(error) = self.load(false, &lost()).await
        {
            if error.code() == Code::DiskFull {
                self.wake_later();
            }
            self.leave(Some(&error)).await;
            return;
        }
        if self.gone {
            // A roll-back that the previous owner did not finish ended the thread.
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
            for request in requests.drain(..) {
                self.take(request).await;
                self.relieve().await;
            }
            self.expire();
            if !self.pending.may_wait {
                self.commit().await;
            }
            if self.gone {
                self.leave(None).await;
                return;
            }
        }
    }

    /// `false` when the thread was idle for long enough to leave.
    async fn receive(&mut self, requests: &mut Vec<Envelope>) -> bool {
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
            tokio::select! {
                biased;
                count = self.requests.recv_many(requests, MAX_REQUESTS_PER_APPEND) => return count > 0,
                () = idle_timer.as_mut() => {}
            }
            if Instant::now() >= until {
                // An expiry is work; idleness is not.
                return patience.is_some();
            }
            // It was set for an earlier request.
            idle_timer.as_mut().reset(until);
        }
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.waiters.is_empty() && self.watched.is_empty()
    }

    fn may_leave(&self) -> bool {
        self.is_idle() && self.requests.is_empty()
    }

    /// Handles one request; its changes are appended later.
    async fn take(&mut self, request: Envelope) {
        // Requests that end something must not wait for room together with new work.
        if self.pending.vital && request.is_submit() || request.reads_store() {
            self.commit().await;
        }
        if self.gone {
            self.pass_on(request);
            return;
        }
        match request {
            Envelope::Submit { submit, reply, settled, .. } if submit.claims_ids => {
                self.submit_alone(submit, reply, settled).await;
            }
            Envelope::Submit { submit, deferred, reply, settled } => {
                self.submit(submit, deferred, reply, settled);
            }
            Envelope::Progress { run } => self.progress(run),
            Envelope::Flush { run, reply } => {
                self.progress(run);
                if let Some(reply) = reply {
                    self.acknowledge(Acknowledgement::Done(reply));
                }
            }
            Envelope::Raise { run, interrupt, reply } => {
                self.progress(run);
                // The interrupt may be large, and so may the draft before it.
                self.relieve().await;
                if self.takes_no_questions {
                    drop(reply.send(Err(stopped())));
                    return;
                }
                match self.step(Command::Raise { run, interrupt }) {
                    Ok(_) => self.acknowledge(Acknowledgement::Done(reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Envelope::Withdraw { run, interrupt } => {
                self.progress(run);
                // An interrupt that is no longer pending was answered first.
                drop(self.step(Command::Withdraw { run, interrupt }));
            }
            Envelope::Finish { run, ending } => {
                self.progress(run);
                self.relieve().await;
                self.end_task(run);
                let keeps_path = self.state.as_ref().is_some_and(|state| !state.thread.ephemeral);
                let checkpoint = keeps_path.then(|| self.services.new_checkpoint());
                // A run that is no longer open has ended otherwise; its task is ignored.
                drop(self.step(Command::Finish { run, ending: *ending, checkpoint }));
            }
            Envelope::Change { mut command, reply } => {
                if let Command::Patch { checkpoint, .. } = &mut *command {
                    // Since the command was sent a run may have made the head, under a newer key; a path ends at a parent that is not older than its child.
                    *checkpoint = self.services.new_checkpoint();
                }
                let prepared = match &mut *command {
                    Command::Note { bound, .. } => self.before_note(bound.as_mut()).await,
                    command => self.check_stored(command).await,
                };
                match prepared.and_then(|()| self.step(*command)) {
                    Ok(done) => self.acknowledge(Acknowledgement::Reply(reply, done)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Envelope::Settled { run, reply } => self.settled(run, reply),
            Envelope::Wake => {}
            Envelope::EndAsking { reply } => self.end_asking(reply).await,
            Envelope::Shutdown { reply } => self.shutdown(reply).await,
        }
        if self.pending.erases {
            // What comes next must not be stored and erased in one append.
            self.commit().await;
        }
    }

    /// Passes when a run that is to be removed exists, and when the key of an answer is unused.
    async fn check_stored(&self, command: &Command) -> Result<()> {
        let store = &self.services.store;
        match command {
            Command::RemoveRun { run, id, .. } => store
                .run_by_key(*run)
                .await?
                .map(drop)
                .ok_or_else(|| Error::new(Code::RunNotFound, format!("there is no run '{id}'"))),
            Command::Answer { idempotency: Some(row), .. } => {
                match store.idempotency(&row.key, row.created_at).await? {
                    None => Ok(()),
                    Some(_) => Err(Error::new(
                        Code::AlreadyExists,
                        "the idempotency key of the answer was used before",
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    fn submit(
        &mut self,
        submit: Box<Submit>,
        deferred: bool,
        reply: oneshot::Sender<Result<RunRow>>,
        settled: oneshot::Sender<Result<RunRow>>,
    ) {
        let run = submit.row.key;
        let was_empty = self.pending.is_empty();
        match self.step(Command::Submit(submit)) {
            Ok(Reply::Run(row)) => {
                self.waiters.entry(run).or_default().push(Waiter::Submitter(settled));
                let starts = self.pending.starts(run);
                if deferred && was_empty && starts {
                    self.pending.may_wait = true;
                    self.start_now(run);
                    drop(reply.send(Ok(*row)));
                } else {
                    self.acknowledge(Acknowledgement::Run(reply, row));
                }
            }
            Ok(_) => drop(reply.send(Err(Error::new(Code::Internal, "the run was not accepted")))),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Accepts a run whose ids a client chose, in an append of its own: when an id is taken, only this run is refused.
    async fn submit_alone(
        &mut self,
        submit: Box<Submit>,
        reply: oneshot::Sender<Result<RunRow>>,
        settled: oneshot::Sender<Result<RunRow>>,
    ) {
        self.commit().await;
        if self.gone {
            self.pass_on(Envelope::Submit { submit, deferred: false, reply, settled });
            return;
        }
        let before = self.state.clone();
        let run = submit.row.key;
        self.undo = before;
        self.submit(submit, false, reply, settled);
        self.commit().await;
        if self.undo.take().is_none() {
            self.waiters.remove(&run);
        }
    }

    /// Starts a run's agent before the run is durable: no caller knows of it yet.
    fn start_now(&mut self, run: RunKey) {
        let effects = std::mem::take(&mut self.pending.effects);
        for effect in effects {
            match effect {
                Effect::Start { run: started, turn } if started == run => {
                    self.start(run, turn, true)
                }
                other => self.pending.effects.push(other),
            }
        }
    }

    fn progress(&mut self, run: RunKey) {
        let Some(task) = self.tasks.get(&run) else { return };
        let progress = task.shared.take(&mut self.spare);
        self.pending.may_wait = false;
        if let Err(error) = self.step(Command::Progress(progress)) {
            tracing::debug!(%error, "events of a run that is not open were dropped");
        }
    }

    /// Events outside of runs follow the runs' drafts.
    async fn before_note(&mut self, bound: Option<&mut BindingRow>) -> Result<()> {
        let runs: Vec<RunKey> = self.tasks.keys().copied().collect();
        for run in runs {
            self.progress(run);
            self.relieve().await;
        }
        let Some(bound) = bound else { return Ok(()) };
        // The run's notes are looked up in the store, and must be there.
        self.commit().await;
        if let Some(state) = &self.state {
            let (thread, store) = (&state.thread, &self.services.store);
            let scope = Scope { tenant: thread.tenant.clone(), owner: None };
            let known = store.binding(&scope, &thread.id, &bound.agent).await?;
            bound.last_seen =
                known.filter(|row| row.remote == bound.remote).and_then(|row| row.last_seen);
        }
        for task in self.tasks.values().filter(|task| task.shared.agent == bound.agent) {
            task.shared.rebind(bound.clone());
        }
        Ok(())
    }

    /// The result may be part of an append that is not made yet: the waiter gets it when it is durable.
    fn settled(&mut self, run: RunKey, reply: oneshot::Sender<Result<Option<RunRow>>>) {
        let open = self.state.as_ref().and_then(|state| state.runs.get(&run));
        let row = match open {
            None => None,
            Some(open) if open.is_waiting() => Some(Box::new(open.row.clone())),
            Some(_) => {
                self.waiters.entry(run).or_default().push(Waiter::Asker(reply));
                return;
            }
        };
        self.acknowledge(Acknowledgement::Settled(reply, row));
    }

    fn step(&mut self, command: Command) -> Result<Reply> {
        let Some(state) = &mut self.state else {
            return Err(Error::new(Code::Internal, "the thread is not loaded"));
        };
        let mut result = step(state, command, self.services.clock.now())?;
        let reply = std::mem::take(&mut result.reply);
        self.pending.add(result);
        Ok(reply)
    }

    fn acknowledge(&mut self, acknowledgement: Acknowledgement) {
        self.pending.may_wait = false;
        self.pending.acknowledgements.push(acknowledgement);
    }

    /// Appends what is pending when it is enough for one append.
    async fn relieve(&mut self) {
        if self.pending.is_full() {
            self.commit().await;
        }
    }

    /// Appends what is pending and carries out its effects.
    async fn commit(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            for acknowledgement in pending.acknowledgements {
                acknowledgement.tell(Ok(()));
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
        match self.services.store.append(batch).await {
            Ok(()) => {
                self.committed = last;
                if pending.erases {
                    // Its tasks end first; the caller gets the reply when nothing is left.
                    self.carry_out(std::mem::take(&mut pending.effects));
                    self.forget().await;
                }
                for acknowledgement in pending.acknowledgements {
                    acknowledgement.tell(Ok(()));
                }
                self.carry_out(pending.effects);
            }
            Err(error) => {
                for acknowledgement in pending.acknowledgements {
                    acknowledgement.tell(Err(error.clone()));
                }
                match self.undo.take() {
                    Some(before) if error.code() == Code::AlreadyExists && before.last > 0 => {
                        self.state = Some(before);
                    }
                    _ => self.recover_from(&error).await,
                }
            }
        }
    }

    fn tell_waiters(&mut self, run: RunKey, outcome: Result<RunRow>) {
        let mut waiters = self.waiters.remove(&run).unwrap_or_default();
        let last = waiters.pop();
        for waiter in waiters {
            waiter.tell(outcome.clone());
        }
        if let Some(last) = last {
            last.tell(outcome);
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
            self.watched.retain(|watched| watched.interrupt != interrupt);
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
