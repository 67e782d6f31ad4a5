//! Answers and deadlines: they end interrupts.

use trilogue_domain::error::Result;
use trilogue_domain::{
    Answer, Code, Error, InterruptId, InterruptKind, Json, Message, Outcome, Principal, Resolution,
    RunKey, RunStatus,
};
use trilogue_store::Draft;
use trilogue_store::rows::{InterruptRow, MessageRow};

use super::output::StepOutput;
use super::submit::check_fits;
use super::{AnswerTarget, Effect, Reply};

// === impl StepOutput ===

impl StepOutput<'_> {
    /// Resolves an interrupt with the first answer; a second one fails.
    pub(super) fn answer(
        &mut self,
        to: &AnswerTarget,
        answer: Answer,
        extra: Option<Json>,
        said: Option<&Message>,
        by: &Principal,
    ) -> Result<()> {
        let (run, index) = self.find(to)?;
        let Some(state) = self.state.runs.get_mut(&run) else {
            return Err(not_pending_error(None));
        };
        let Some(row) = state.pending.get(index) else { return Err(not_pending_error(None)) };
        row.interrupt.check(&answer)?;
        if let Some(said) = said {
            self.say(run, said)?;
        }
        let Some(state) = self.state.runs.get_mut(&run) else {
            return Err(not_pending_error(None));
        };
        let row = state.pending.remove(index);
        state.row.ever_resolved = true;
        let resolution = Resolution::Answered {
            by: by.id.clone(),
            answer,
            digest: row.interrupt.payload.digest(),
            extra,
        };
        let row = self.resolve(run, row, resolution);
        self.reply(Reply::Interrupt(Box::new(row.clone())));
        self.after_resolution(run, row, index);
        Ok(())
    }

    /// Logs a message that is an answer, as one of the run's messages like those of its input.
    fn say(&mut self, run: RunKey, message: &Message) -> Result<()> {
        let mut draft = Draft::default();
        self.describe_message(&mut draft, message)?;
        check_fits(&draft)?;
        let Some(state) = self.state.runs.get(&run) else { return Ok(()) };
        let row = MessageRow {
            id: message.id.clone(),
            tenant: state.row.tenant.clone(),
            thread: state.row.thread,
            run,
            role: message.role.clone(),
            position: self.state.last + 1,
            alias: None,
        };
        self.log_draft(Some(run), draft);
        self.point_at(row);
        Ok(())
    }

    /// Ends an interrupt that was not answered in time. A time-out never allows anything.
    pub(super) fn deadline(&mut self, interrupt: &InterruptId) {
        let Some(run) = self.state.run_waiting_for(interrupt) else { return };
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        let Some(index) = state.pending.iter().position(|row| row.interrupt.id == *interrupt)
        else {
            return;
        };
        let row = state.pending.remove(index);
        let reject = row.interrupt.reject_option().map(|option| option.id.clone());
        let is_permission = row.interrupt.kind == InterruptKind::Permission;
        let row = self.resolve(run, row, Resolution::TimedOut { option: reject.clone() });
        match (is_permission, reject) {
            (true, Some(_)) => self.after_resolution(run, row, index),
            (true, None) => {
                if let Some(state) = self.run(run).filter(|state| state.has_task) {
                    // The asking task gets it, so that it can inform its client.
                    let timed_out = Resolution::TimedOut { option: None };
                    state.undelivered.push((interrupt.clone(), timed_out));
                }
                self.cancel(run, Some(Code::AwaitTimeout));
            }
            (false, _) => {
                self.withdraw_pending(run, Code::AwaitTimeout);
                self.end_run(run, Outcome::TimedOut { reason: Code::AwaitTimeout });
            }
        }
    }

    /// Withdraws the interrupt because the asking task no longer waits; the run continues.
    pub(super) fn withdraw(&mut self, run: RunKey, interrupt: &InterruptId) {
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        let Some(index) = state.pending.iter().position(|row| row.interrupt.id == *interrupt)
        else {
            return;
        };
        let row = state.pending.remove(index);
        let reason = Code::InterruptResolved;
        let row = self.resolve(run, row, Resolution::Withdrawn { reason });
        self.after_resolution(run, row, index);
    }

    /// Continues after a resolution. `place` is the interrupt's index among the pending ones. Resumes the run if no interrupt is pending any more and the turn is free; a task that kept the turn gets its answer at once.
    fn after_resolution(&mut self, run: RunKey, row: InterruptRow, place: usize) {
        let has_turn = self.state.turn == Some(run);
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        let id = row.interrupt.id.clone();
        let resolution = row.resolution.clone();
        let waits = state.is_waiting();
        if !state.has_task {
            // A restored run's state from before it waited is only in the log, so its turn is read from there.
            state.answered = (!state.restored).then(|| Box::new(row));
        } else if let Some(resolution) = resolution {
            state.undelivered.push((id.clone(), resolution));
        }
        let ready =
            if has_turn && waits { std::mem::take(&mut state.undelivered) } else { Vec::new() };
        if !waits {
            state.row.pending_answer = Some(id);
        }
        for (interrupt, resolution) in ready {
            self.effect(Effect::Deliver { run, interrupt, resolution });
        }
        if waits {
            if place == 0 {
                // The next interrupt is shown now.
                self.call_back_status(run);
            }
            self.save_run(run);
            return;
        }
        if has_turn {
            self.resume(run);
            return;
        }
        self.state.queue.push_back(run);
        self.give_turn();
        let resumed =
            self.state.runs.get(&run).is_some_and(|state| state.row.status == RunStatus::Running);
        if !resumed {
            self.save_run(run);
        }
    }

    /// Returns the run that an answer is for, and the interrupt's index among its pending ones.
    fn find(&self, to: &AnswerTarget) -> Result<(RunKey, usize)> {
        match to {
            AnswerTarget::Interrupt(id) => {
                let Some(run) = self.state.run_waiting_for(id) else {
                    return Err(not_pending_error(None));
                };
                let place =
                    self.state.runs.get(&run).and_then(|state| {
                        state.pending.iter().position(|row| row.interrupt.id == *id)
                    });
                place.map(|place| (run, place)).ok_or_else(|| not_pending_error(None))
            }
            AnswerTarget::FirstOf(run) => {
                let state = self.state.runs.get(run).ok_or_else(|| not_pending_error(None))?;
                let Some(first) = state.pending.first() else {
                    return Err(Error::new(
                        Code::InterruptResolved,
                        format!("the run '{}' does not wait for an answer", state.row.id),
                    ));
                };
                if state.row.ever_resolved {
                    return Err(mismatch(&first.interrupt.id));
                }
                Ok((*run, 0))
            }
        }
    }
}

/// Returns the error for an answer whose interrupt is not pending.
pub(crate) fn not_pending_error(pending: Option<&InterruptId>) -> Error {
    let error = Error::new(Code::InterruptResolved, "the interrupt is not pending any more");
    match pending {
        Some(id) => {
            error.pending(id.clone()).hint(format!("the run waits for the interrupt '{id}' now"))
        }
        None => error.hint("look at the run: it may have gone on or ended"),
    }
}

/// Returns the error for an answer without interrupt id if its interrupt is ambiguous.
pub(crate) fn mismatch(pending: &InterruptId) -> Error {
    Error::new(Code::InterruptMismatch, "the answer does not say which interrupt it is for")
        .pending(pending.clone())
        .hint(format!("the run waits for the interrupt '{pending}' now: name it in the answer"))
}
