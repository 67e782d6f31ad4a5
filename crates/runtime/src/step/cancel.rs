//! Cancelling: interrupts first, then the agent, then the run.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, RunEvent};
use trilogue_domain::run::Transition;
use trilogue_domain::{Code, Error, Failure, Outcome, Resolution, RunKey, RunStatus};

use super::output::StepOutput;
use super::{Effect, Reply};

// === impl StepOutput ===

impl StepOutput<'_> {
    pub(super) fn cancel_command(
        &mut self,
        run: RunKey,
        reason: Option<Code>,
        roll_back: bool,
    ) -> Result<()> {
        let Some(state) = self.run(run) else {
            return Err(Error::new(Code::RunEnded, "the run has ended")
                .hint("look at the run for its outcome"));
        };
        let mut row = state.row.clone();
        if roll_back {
            self.roll_back(run);
        } else {
            self.cancel(run, reason);
        }
        match self.state.runs.get(&run) {
            Some(state) => row = state.row.clone(),
            None => {
                row.status = RunStatus::Cancelled;
                row.outcome = Some(Outcome::Cancelled { reason });
                row.ended_at = Some(self.now);
            }
        }
        self.reply(Reply::Run(Box::new(row)));
        Ok(())
    }

    /// Stops a run and removes it when it has ended, even if it is already being cancelled.
    pub(super) fn roll_back(&mut self, run: RunKey) {
        let reason = Some(Code::RunRolledBack);
        let Some(state) = self.run(run) else { return };
        if state.row.status != RunStatus::Cancelling {
            self.cancel(run, reason);
        } else if state.row.cancel_reason != reason {
            state.row.cancel_reason = reason;
            self.mark_vital();
            self.save_run(run);
        }
    }

    /// Stops a run: at once if no task is active, otherwise when its agent has stopped.
    pub(super) fn cancel(&mut self, run: RunKey, reason: Option<Code>) {
        let Some(state) = self.run(run) else { return };
        if state.row.status == RunStatus::Cancelling {
            return;
        }
        state.row.cancel_reason = reason;
        let has_task = state.has_task;
        let mut undelivered = std::mem::take(&mut state.undelivered);
        let asked = state.pending.iter().map(|row| row.interrupt.id.clone());
        undelivered.extend(asked.map(|interrupt| (interrupt, Resolution::Cancelled)));
        self.mark_vital();
        self.resolve_pending(run, &Resolution::Cancelled);
        if !has_task {
            self.end_run(run, Outcome::Cancelled { reason });
            return;
        }
        self.log(Some(run), &Body::Run(RunEvent::Cancelling { reason }));
        self.transit(run, Transition::Cancel);
        self.state.queue.retain(|queued| *queued != run);
        self.save_run(run);
        for (interrupt, resolution) in undelivered {
            self.effect(Effect::Deliver { run, interrupt, resolution });
        }
        self.effect(Effect::Stop { run });
    }

    /// Ends runs whose tasks are gone: as failed, or as cancelled if that was requested.
    pub(super) fn lose(&mut self, runs: &[RunKey], failure: &Failure) {
        let survives = self.state.draining;
        self.mark_vital();
        for run in runs {
            let Some(state) = self.run(*run) else { continue };
            let cancelling = state.row.status == RunStatus::Cancelling;
            if survives && !cancelling && state.row.saved.is_some() {
                // Its agent is active elsewhere, and is found again at the next start.
                state.has_task = false;
                continue;
            }
            let reason = state.row.cancel_reason;
            self.withdraw_pending(*run, Code::AgentLost);
            if cancelling {
                self.end_run(*run, Outcome::Cancelled { reason });
            } else {
                self.end_run(*run, Outcome::Failed(failure.clone()));
            }
        }
    }
}
