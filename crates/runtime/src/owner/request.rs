//! Handles each request of an owner.

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, RunKey, Scope};
use trilogue_store::rows::{BindingRow, RunRow};

use super::next_append::Acknowledgement;
use super::{Envelope, Owner, Waiter, stopped_error};
use crate::step::{Command, Effect, Reply, Submit};

// === impl Owner ===

impl Owner {
    /// Handles one request; its changes are appended later.
    pub(super) async fn take(&mut self, request: Envelope) {
        // A full disk refuses new work, so keep it out of an append that ends something.
        if self.pending.vital && request.is_submit() || request.reads_store() {
            self.commit().await;
        }
        if self.gone {
            self.forward(request);
            return;
        }
        match request {
            Envelope::Submit { mut submit, deferred, reply, settled } => {
                if submit.row.started_by.is_some() {
                    self.prepare_opening(&mut submit).await;
                }
                if let Err(error) = self.replace_taken_ids(&mut submit).await {
                    self.acknowledge(Acknowledgement::RunRefused(reply, error));
                } else if submit.claims_ids {
                    self.submit_alone(submit, reply, settled).await;
                } else {
                    self.make_way_for(&submit).await;
                    self.submit(submit, deferred, reply, settled);
                }
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
                // The interrupt can be large, and so can the draft before it.
                self.commit_if_full().await;
                if self.takes_no_questions {
                    // The receiver is gone if the task has ended.
                    drop(reply.send(Err(stopped_error())));
                    return;
                }
                match self.step(Command::Raise { run, interrupt }) {
                    Ok(_) => self.acknowledge(Acknowledgement::Done(reply)),
                    // The receiver is gone if the task has ended.
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Envelope::Withdraw { run, interrupt } => {
                self.progress(run);
                // An interrupt that is not pending any more was answered first.
                drop(self.step(Command::Withdraw { run, interrupt }));
            }
            Envelope::Finish { run, ending } => {
                self.progress(run);
                self.commit_if_full().await;
                // After the draft was taken: a task that is not listed gives no draft.
                self.end_task(run);
                let keeps_path = self.state.as_ref().is_some_and(|state| !state.thread.ephemeral);
                let checkpoint = keeps_path.then(|| self.services.new_checkpoint());
                // A run that is not open any more has ended otherwise; ignore its task.
                drop(self.step(Command::Finish { run, ending: *ending, checkpoint }));
            }
            Envelope::Change { mut command, reply } => {
                if command.needs_end_of_turn() {
                    self.complete_answered().await;
                }
                if let Command::Patch { checkpoint, .. } = &mut *command {
                    // A run may have moved the head since the command was sent, and keys must grow along a path within one process.
                    *checkpoint = self.services.new_checkpoint();
                }
                let prepared = match &mut *command {
                    Command::AppendOutsideRun { bound, .. } => {
                        self.before_note(bound.as_mut()).await
                    }
                    // `take` has committed before, so the store has the newest rows.
                    command => self.check_stored(command).await,
                };
                match prepared.and_then(|()| self.step(*command)) {
                    Ok(done) => self.acknowledge(Acknowledgement::Reply(reply, done)),
                    Err(error) => self.acknowledge(Acknowledgement::Refused(reply, error)),
                }
            }
            Envelope::Settled { run, reply } => self.add_run_waiter(run, reply),
            Envelope::CompleteAnswered { reply } => {
                self.complete_answered().await;
                self.acknowledge(Acknowledgement::Done(reply));
            }
            Envelope::SettleAnswered { reply } => match self.answered_run() {
                Some(run) => self.waiters.entry(run).or_default().push(Waiter::Asker(reply)),
                None => self.acknowledge(Acknowledgement::Settled(reply, None)),
            },
            Envelope::Wake => {}
            Envelope::HandOver(wish) => self.hand_over = Some(wish),
            Envelope::EndAsking { reply } => self.end_asking(reply).await,
            Envelope::Shutdown { reply } => self.shutdown(reply).await,
        }
        if self.pending.erases {
            // Later changes must not be stored and erased in one append.
            self.commit().await;
        }
    }

    /// Checks that a run to remove exists, and that the key of an answer is unused.
    async fn check_stored(&self, command: &Command) -> Result<()> {
        let store = &self.services.store;
        match command {
            Command::RemoveRun { run, id, .. } => store
                .run_by_key(*run)
                .await?
                .map(drop)
                .ok_or_else(|| Error::new(Code::RunNotFound, format!("run '{id}' not found"))),
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
                    // Before the append: the synchronous caller gets what is durable from `settled`. The receiver may be gone.
                    drop(reply.send(Ok(*row)));
                } else {
                    self.acknowledge(Acknowledgement::Run(reply, row));
                }
            }
            Ok(_) => drop(reply.send(Err(Error::new(Code::Internal, "the run was not accepted")))),
            Err(error) => self.acknowledge(Acknowledgement::RunRefused(reply, error)),
        }
    }

    /// Accepts a run with client-chosen ids in a separate append: if an id is taken, only this run is refused.
    async fn submit_alone(
        &mut self,
        submit: Box<Submit>,
        reply: oneshot::Sender<Result<RunRow>>,
        settled: oneshot::Sender<Result<RunRow>>,
    ) {
        self.commit().await;
        if self.gone {
            self.forward(Envelope::Submit { submit, deferred: false, reply, settled });
            return;
        }
        // One append for both: it is on the way of every turn of an editor.
        self.make_way_for(&submit).await;
        let completed = (!self.pending.is_empty()).then(|| self.pending.changes_alone());
        let run = submit.row.key;
        // Beside that, the append has only this run: a failure leaves the state from before it.
        self.undo = self.state.clone();
        self.submit(submit, false, reply, settled);
        self.commit().await;
        // The failed append has used `undo`. The run is refused, so its end will not come.
        if self.undo.take().is_none() {
            self.waiters.remove(&run);
            // The end of the run before does not depend on the refused one.
            if let Some(completed) = completed.filter(|_| !self.gone) {
                self.pending = completed;
                self.commit().await;
            }
        }
    }

    /// Starts a run's agent before the run is durable. This is safe because no caller knows of the run yet.
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

    pub(super) fn progress(&mut self, run: RunKey) {
        let Some(task) = self.tasks.get(&run) else { return };
        let progress = task.shared.take(&mut self.spare);
        self.pending.may_wait = false;
        if let Err(error) = self.step(Command::Progress(progress)) {
            tracing::debug!(%error, "events of a run that is not open were dropped");
        }
    }

    /// Takes the runs' drafts first, because events outside of runs follow them.
    async fn before_note(&mut self, bound: Option<&mut BindingRow>) -> Result<()> {
        let runs: Vec<RunKey> = self.tasks.keys().copied().collect();
        for run in runs {
            self.progress(run);
            self.commit_if_full().await;
        }
        let Some(bound) = bound else { return Ok(()) };
        // The lookup reads the runs' notes in the store, so they must be there.
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

    /// Registers a waiter for a run's end. The result may be part of the next append, so the waiter gets it once that is durable.
    fn add_run_waiter(&mut self, run: RunKey, reply: oneshot::Sender<Result<Option<RunRow>>>) {
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
}
