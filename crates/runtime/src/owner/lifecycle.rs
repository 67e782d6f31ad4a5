//! Starts an owner, recovers it from a failed append, and ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Failure, InterruptId, RunKey, Scope};
use trilogue_store::ownership::{self, OwnerExit};
use trilogue_store::rows::{BindingRow, RunRow, ThreadRow};

use super::{Acknowledgement, Envelope, HandOver, NextAppend, Owner, QueuedRequest, RETRY_AFTER};
use crate::history::{self, Unfinished};
use crate::state::{RunState, ThreadState};
use crate::step::{Command, is_over, lost_failure};

// === impl Owner ===

impl Owner {
    /// Loads the thread and decides about its open runs.
    pub(super) async fn load(&mut self, draining: bool, failure: &Failure) -> Result<()> {
        // Acquire before reading: appends of another node's earlier epoch fail from then on.
        let acquired = self.services.store.acquire(self.thread, &self.services.node).await?;
        self.inbox.set_epoch(acquired.thread.epoch);
        let restarted = !self.services.is_recovered() || acquired.is_taken_over;
        let agents = &self.agents;
        let mut state = ThreadState::from_stored(
            acquired,
            self.services.options.max_queued_runs_per_thread,
            |row| agents.get(&row.agent).is_some_and(|agent| agent.is_native()),
            // The work of a sub-agent does not end with its parent's run.
            |row| {
                let is_called = row.parent.is_some() && row.started_by.is_none();
                is_called && !self.services.call_chains.has_caller(row.key)
            },
        );
        state.notifies = self.services.options.notify;
        state.draining = draining || self.services.draining.load(Ordering::Acquire);
        self.committed = state.last;
        let open = state.runs.values().map(|run| (&run.row, run.pending.len()));
        self.services.monitor.loaded(self.thread, open);
        let has_open = !state.runs.is_empty();
        if self.services.options.cancels_open_runs {
            cancel_all(&mut state);
        }
        self.look_for_open_messages(&mut state).await;
        self.look_for_checkpoints(&mut state).await;
        self.state = Some(state);
        if has_open {
            let checkpoint = self.checkpoint_of_answered();
            self.step(Command::Recover { restarted, failure: failure.clone(), checkpoint })?;
            // Not `commit`: after a failure, that would begin another recovery, and so another load.
            Box::pin(self.commit_recovery()).await?;
        }
        Ok(())
    }

    /// Finds the incomplete messages of runs that end with this load, in their logs. The messages of a waiting run were written when it began to wait.
    async fn look_for_open_messages(&self, state: &mut ThreadState) {
        let ThreadState { thread, runs, .. } = state;
        let has_ended = |run: &&mut Box<RunState>| run.row.started_at.is_some() && is_over(run);
        for run in runs.values_mut().filter(has_ended) {
            let store = self.services.store.as_ref();
            match history::unfinished(store, thread, run.row.key).await {
                Ok(Unfinished { open, is_answered }) => {
                    (run.open, run.is_answered) = (open, is_answered);
                    if is_answered {
                        run.bound = self.binding_of(thread, &run.row.agent).await;
                    }
                }
                // The run ends even if they cannot be read.
                Err(error) => {
                    let run = &run.row.id;
                    tracing::warn!(%run, %error, "what a lost run was saying cannot be looked up");
                }
            }
        }
    }

    /// Finds the checkpoints of runs that their agents have started. Such a checkpoint exists before the end of its run, which moves it to the run's last event.
    async fn look_for_checkpoints(&self, state: &mut ThreadState) {
        let ThreadState { thread, runs, .. } = state;
        let scope = Scope { tenant: thread.tenant.clone(), owner: None };
        let store = self.services.store.as_ref();
        for run in runs.values_mut().filter(|run| run.row.started_by.is_some()) {
            let row = &run.row;
            match history::checkpoint_of_run(store, &scope, &thread.id, thread.head, row).await {
                Ok(found) => run.checkpoint = found.map(Box::new),
                // The run ends even if it cannot be read. Its checkpoint then stays where the run began.
                Err(error) => {
                    tracing::warn!(run = %row.id, %error, "the checkpoint of a lost run cannot be looked up");
                }
            }
        }
    }

    /// The binding of an agent, with which its completed run moves. Without it, the agent gets the run's messages again.
    async fn binding_of(&self, thread: &ThreadRow, agent: &AgentName) -> Option<Box<BindingRow>> {
        let scope = Scope { tenant: thread.tenant.clone(), owner: None };
        let found = self.services.store.binding(&scope, &thread.id, agent).await;
        found.ok().flatten().map(Box::new)
    }

    async fn commit_recovery(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let Some(state) = &self.state else { return Ok(()) };
        let last = state.last;
        if !pending.is_empty() {
            let batch = pending.batch(&self.services, state, self.committed, &mut self.spare);
            self.append(batch, &pending.effects).await?;
        }
        self.committed = last;
        self.carry_out(pending.effects);
        if pending.erases {
            self.forget().await;
        }
        Ok(())
    }

    /// Recovers from a failed append, of which nothing is stored. The tasks' events are lost, so their runs end. Then the owner leaves, and the next one continues from the store.
    pub(super) async fn recover_from(&mut self, error: &Error) {
        let lost: Vec<RunKey> = self.tasks.keys().copied().collect();
        // End the tasks first, so that they emit nothing more into the lost state.
        for run in lost {
            self.end_task(run);
        }
        // These steps build on the failed append.
        self.pending = NextAppend::default();
        self.watched.clear();
        let of_run = error_of_run(error);
        let failure = Failure::of(of_run.code(), of_run.message());
        let looked = match ownership::may_look_again(error.code()) {
            true => self.load(true, &failure).await.map_err(|failed| failed.code()),
            false => Err(error.code()),
        };
        match ownership::owner_exit(looked) {
            OwnerExit::WakeLater => self.wake_later(),
            // The caller got the reason.
            OwnerExit::Gone => {}
            OwnerExit::StepDown => {
                tracing::warn!(thread = %self.thread, "the thread is another node's now");
                self.services.monitor.loaded(self.thread, std::iter::empty());
            }
            OwnerExit::Stuck => {
                tracing::error!(thread = %self.thread, %error, "a thread cannot be stored");
            }
        }
        // The load has already told the waiters of the runs that it ended. The others get the error.
        let waiting: Vec<RunKey> = self.waiters.keys().copied().collect();
        for run in waiting {
            self.tell_waiters(run, Err(of_run.clone()));
        }
        self.gone = true;
    }

    /// Makes the thread's next owner resume the waiting work.
    pub(super) fn wake_later(&self) {
        self.services.wake_after(self.thread, RETRY_AFTER);
    }

    /// Notifies agents with sessions of their own that the thread is erased.
    pub(super) async fn forget(&self) {
        if let Some(state) = &self.state {
            let thread = &state.thread;
            let named = (thread.key, &thread.id, &thread.tenant);
            self.agents.forget(&self.services, named).await;
        }
    }

    /// Ends every task, keeps what survives a restart, and leaves.
    pub(super) async fn shutdown(&mut self, reply: oneshot::Sender<Vec<RunRow>>) {
        self.complete_answered().await;
        let lost_runs: Vec<RunKey> = self.tasks.keys().copied().collect();
        // What the agents emitted until now precedes the end of their runs in the log.
        self.take_drafts(&lost_runs).await;
        let abandoned = self.rows_where(|run| run.has_task);
        // Drain first: then `Lose` keeps the runs whose agents continue elsewhere. Both fail only if no thread is loaded.
        drop(self.step(Command::Drain));
        drop(self.step(Command::Lose { runs: lost_runs, failure: lost_failure() }));
        self.gone = true;
        // Sent after the next append, which makes the ends of the runs durable.
        self.acknowledge(Acknowledgement::Ended(reply, abandoned));
    }

    /// Ends the tasks that wait for an answer, because clients cannot answer while the server stops.
    pub(super) async fn end_asking(&mut self, reply: oneshot::Sender<Vec<RunRow>>) {
        // Stays set: tasks that still run could otherwise ask again.
        self.takes_no_questions = true;
        let (asking, passed_up) = self.asking_runs();
        for (run, interrupt) in passed_up {
            // Clients cannot answer the sub-agent either. The run does not need that answer.
            self.progress(run);
            // Fails only if the interrupt is not pending any more.
            drop(self.step(Command::Withdraw { run, interrupt }));
        }
        let runs: Vec<RunKey> = asking.iter().map(|row| row.key).collect();
        // What the agents emitted until now precedes the end of their runs in the log.
        self.take_drafts(&runs).await;
        for run in &runs {
            self.end_task(*run);
        }
        // Fails only if no thread is loaded, and then no run has to end.
        drop(self.step(Command::Lose { runs, failure: lost_failure() }));
        self.acknowledge(Acknowledgement::Ended(reply, asking));
    }

    /// The runs whose tasks wait for an answer themselves, and the questions of sub-agents that other runs ask.
    fn asking_runs(&self) -> (Vec<RunRow>, Vec<(RunKey, InterruptId)>) {
        let (mut asking, mut passed_up) = (Vec::new(), Vec::new());
        let runs = self.state.iter().flat_map(|state| state.runs.values());
        for run in runs.filter(|run| run.has_task && run.is_waiting()) {
            let (key, pending) = (run.row.key, || run.pending.iter().map(|row| &row.interrupt.id));
            match self.tasks.get(&key) {
                Some(task) if !pending().any(|id| task.shared.waits_for(id)) => {
                    passed_up.extend(pending().map(|id| (key, id.clone())));
                }
                _ => asking.push(run.row.clone()),
            }
        }
        (asking, passed_up)
    }

    /// Gives up the thread if that was requested and the thread is idle. Its next owner resumes the waiting work.
    pub(super) async fn hand_over_when_idle(&mut self) {
        if self.gone || !self.may_leave() || !self.pending.is_empty() {
            return;
        }
        let store = &self.services.store;
        let (to, reply) = match self.hand_over.take() {
            Some(HandOver::To(to, reply)) if !reply.is_closed() => (Some(to), Some(reply)),
            Some(HandOver::ToAnybody) if store.is_draining() => (None, None),
            _ => return,
        };
        let Some(state) = &self.state else { return };
        let (key, epoch) = (self.thread, state.thread.epoch);
        let given = store.hand_over(key, epoch, to.as_deref()).await;
        // Only after the store has given the thread up: otherwise this owner continues with these sessions.
        if given.is_ok() {
            // Agents need not keep the thread's sessions on this node any more.
            let named = (key, &state.thread.id, &state.thread.tenant);
            self.agents.close_sessions(&self.services, named);
            // Its open runs count at the next owner.
            self.services.monitor.loaded(key, std::iter::empty());
            self.gone = true;
        }
        if let Some(reply) = reply {
            // The receiver is gone if its caller has stopped waiting.
            drop(reply.send(given));
        }
    }

    async fn take_drafts(&mut self, runs: &[RunKey]) {
        for run in runs {
            self.progress(*run);
            self.commit_if_full().await;
        }
    }

    fn rows_where(&self, filter: impl Fn(&RunState) -> bool) -> Vec<RunRow> {
        let runs = self.state.iter().flat_map(|state| state.runs.values());
        runs.filter(|run| filter(run)).map(|run| run.row.clone()).collect()
    }

    /// Sends a request to the thread's next owner, because this one is about to leave.
    pub(super) fn forward(&self, request: Envelope) {
        // The tasks of this owner have ended: drop their late requests.
        if !request.is_of_task() {
            let services = Arc::clone(&self.services);
            let thread = self.thread;
            // In a task: this owner is still registered, so the send may wait for room in its own inbox. If no owner takes the request, its caller sees the dropped reply.
            tokio::spawn(async move { drop(services.send(thread, request).await) });
        }
    }

    /// Leaves the registry. Refuses later requests with the error; without one, sends them to the thread's next owner.
    pub(super) async fn leave(mut self, error: Option<&Error>) {
        // Before closing the queue: new senders start the next owner, and the loop below serves those that came earlier.
        self.services.retire(self.thread);
        self.requests.close();
        if let Some(state) = self.state.as_ref().filter(|state| state.thread.ephemeral) {
            // The thread gets no other run, so agents need not keep its sessions.
            let thread = &state.thread;
            let named = (thread.key, &thread.id, &thread.tenant);
            self.agents.close_sessions(&self.services, named);
        }
        let runs: Vec<RunKey> = self.tasks.keys().copied().collect();
        for run in runs {
            self.end_task(run);
        }
        let left = match self.is_erased {
            true => Error::new(Code::ThreadNotFound, "the thread was removed with its runs"),
            false => Error::new(Code::ShuttingDown, "the server stopped before the run ended"),
        };
        let waiting: Vec<RunKey> = self.waiters.keys().copied().collect();
        for run in waiting {
            self.tell_waiters(run, Err(error.unwrap_or(&left).clone()));
        }
        while let Some(QueuedRequest { request, .. }) = self.requests.recv().await {
            match error {
                Some(error) => request.refuse(error),
                // The tasks of this owner have ended: drop their late requests.
                None if request.is_of_task() => {}
                // If no owner takes the request, its caller sees the dropped reply.
                None => drop(self.services.send(self.thread, request).await),
            }
        }
    }
}

/// Returns what a failed append means for a run of the thread: its agent was active, so the client must not simply repeat the request.
fn error_of_run(error: &Error) -> Error {
    if error.code() != Code::OwnershipLost {
        return error.clone();
    }
    // A failure has no hint, so the message says what to do.
    let message = "another server has taken the run's thread over, because this one was silent for too long; what the agent did last could not be stored: look at the run before you ask for the same again";
    Error::new(Code::OwnershipLost, message)
}

/// Has the recovery cancel every run, and tell no receiver of a callback: neither is known to be wanted where the store is now.
fn cancel_all(state: &mut ThreadState) {
    for run in state.runs.values_mut() {
        run.is_orphan = true;
        run.row.cancel_reason.get_or_insert(Code::RunNotRestored);
        run.row.callback = None;
    }
}
