//! An active run: its events, its interrupts, and the end of its turn.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, InterruptEvent, RunEvent};
use trilogue_domain::run::Transition;
use trilogue_domain::{
    Answer, CheckpointId, CheckpointKey, Code, Error, Failure, Interrupt, Json, MessageId, Outcome,
    Resolution, Role, RunKey, RunStatus, Survives, limits,
};
use trilogue_store::rows::{CheckpointRow, InterruptRow, MessageRow, QueueItem, QueueKind};
use trilogue_store::{Change, Draft};

use super::output::StepOutput;
use super::{Effect, Progress, StartTurn};
use crate::turn::{Ending, Turn};

// === impl StepOutput ===

impl StepOutput<'_> {
    pub(super) fn progress(&mut self, progress: Progress) -> Result<()> {
        let run = self.require_open(progress.run)?;
        let position = self.state.last + 1;
        let before = self.state.runs.get(&run).map_or(0, |state| state.row.last_run_number);
        self.log_draft(Some(run), progress.draft);
        self.call_back(run, before, &progress.callback_events);
        self.set_title(progress.title);
        let Some(state) = self.state.runs.get_mut(&run) else { return Ok(()) };
        if progress.values.is_some() {
            state.values = progress.values;
        }
        let keeps = progress.kept.is_some();
        state.row.saved = progress.kept.or(state.row.saved.take());
        if let Some(bound) = progress.bound
            && state.bound.as_deref() != Some(&bound)
        {
            state.bound = Some(Box::new(bound.clone()));
            self.change(Change::Binding(bound));
        }
        if keeps {
            self.save_run(run);
        }
        let Some(state) = self.state.runs.get_mut(&run) else { return Ok(()) };
        let (tenant, thread) = (state.row.tenant.clone(), state.row.thread);
        let row = |id: MessageId, role: Role, alias: Option<MessageId>| {
            let tenant = tenant.clone();
            MessageRow { id, tenant, thread, run, role, position, alias }
        };
        for said in &progress.messages {
            state.open.retain(|open| open.id != said.message);
        }
        let begun: Vec<_> =
            progress.begun.into_iter().map(|(id, role)| row(id, role, None)).collect();
        state.open.extend(begun.iter().cloned());
        if state.checkpoint.is_some() {
            // The history has the run already, so its messages can be looked up from their beginning.
            begun.into_iter().for_each(|row| self.point_at(row));
        }
        for said in progress.messages {
            self.point_at(row(said.message, said.role, said.alias));
        }
        for (message, alias) in progress.aliases {
            self.alias(run, message, alias);
        }
        Ok(())
    }

    /// Records an alias of a message. The row of an incomplete message is written at once: after a crash only it has the alias.
    fn alias(&mut self, run: RunKey, message: MessageId, alias: MessageId) {
        let open = self.run(run).map(|state| state.open.iter_mut());
        match open.and_then(|mut open| open.find(|open| open.id == message)) {
            Some(open) => {
                open.alias = Some(alias);
                let row = open.clone();
                self.point_at(row);
            }
            None => {
                let thread = &self.state.thread.id;
                tracing::debug!(%thread, message_id = %message, agent_message_id = %alias, "message");
                self.change(Change::Alias(message, alias));
            }
        }
    }

    /// A run's task raises an interrupt and keeps waiting.
    pub(super) fn raise(&mut self, run: RunKey, interrupt: Interrupt) -> Result<()> {
        self.require_open(run)?;
        let asked = self.check_raise(run, &interrupt)?;
        self.raise_now(run, interrupt, asked);
        let gives_up = self.run(run).is_some_and(|state| state.native);
        if gives_up && self.state.turn == Some(run) {
            self.release_turn(run);
        }
        Ok(())
    }

    pub(super) fn finish(
        &mut self,
        run: RunKey,
        ending: Result<Ending, Failure>,
        checkpoint: Option<(CheckpointKey, CheckpointId)>,
    ) -> Result<()> {
        self.require_open(run)?;
        self.mark_vital();
        let Some(state) = self.run(run) else { return Ok(()) };
        state.has_task = false;
        // The agent has ended what it kept.
        state.row.saved = None;
        if state.row.status == RunStatus::Cancelling {
            let reason = state.row.cancel_reason;
            self.end_run(run, Outcome::Cancelled { reason });
            return Ok(());
        }
        if state.row.status == RunStatus::Interrupted {
            // The agent finished without the answers that it had asked for.
            self.withdraw_pending(run, Code::RunEnded);
            self.transit(run, Transition::Resume);
        }
        match ending {
            Ok(Ending::Completed) => self.complete(run, checkpoint),
            Ok(Ending::Suspended { mut interrupt, saved }) => {
                interrupt.survives = Survives::Restart;
                match self.check_raise(run, &interrupt) {
                    Ok(asked) => self.suspend(run, *interrupt, saved, asked),
                    Err(error) => {
                        let failure = Failure::of(error.code(), error.message());
                        self.end_run(run, Outcome::Failed(failure));
                    }
                }
            }
            Err(failure) => self.end_run(run, Outcome::Failed(failure.bounded())),
        }
        Ok(())
    }

    /// Resumes the run: it has the turn again.
    pub(super) fn resume(&mut self, run: RunKey) {
        if self.run(run).is_some_and(|state| state.row.status == RunStatus::Running) {
            return self.rejoin(run);
        }
        self.log(Some(run), &Body::Run(RunEvent::Resumed));
        self.transit(run, Transition::Resume);
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        let answered = state.row.pending_answer.take();
        if state.has_task {
            for (interrupt, resolution) in std::mem::take(&mut state.undelivered) {
                self.effect(Effect::Deliver { run, interrupt, resolution });
            }
        } else {
            state.has_task = true;
            // A remote agent continues when this server stops, and the saved state finds its run again.
            let kept = if state.native { state.row.saved.take() } else { state.row.saved.clone() };
            let saved = kept.unwrap_or_else(Json::null);
            let ready = state.answered.take().and_then(|row| resume_turn(*row, saved.clone()));
            let turn = match (ready, answered) {
                (Some(turn), _) => StartTurn::Ready(Box::new(turn)),
                (None, Some(interrupt)) => StartTurn::AnswerFromStore { interrupt, saved },
                (None, None) => StartTurn::InputFromLog,
            };
            self.effect(Effect::Start { run, turn });
        }
        self.save_run(run);
    }

    /// Makes a run's agent find its active work elsewhere again.
    fn rejoin(&mut self, run: RunKey) {
        let Some(state) = self.run(run) else { return };
        state.has_task = true;
        let saved = state.row.saved.clone().unwrap_or_else(Json::null);
        self.log(Some(run), &Body::Run(RunEvent::Resumed));
        let turn = StartTurn::Ready(Box::new(Turn::Rejoin { saved }));
        self.effect(Effect::Start { run, turn });
        self.save_run(run);
    }

    /// Resolves every pending interrupt of a run in the same way.
    pub(super) fn resolve_pending(&mut self, run: RunKey, resolution: &Resolution) {
        let Some(state) = self.run(run) else { return };
        let pending = std::mem::take(&mut state.pending);
        for row in pending {
            self.resolve(run, row, resolution.clone());
        }
    }

    /// Logs the end of an interrupt and updates its row.
    pub(super) fn resolve(
        &mut self,
        run: RunKey,
        mut row: InterruptRow,
        resolution: Resolution,
    ) -> InterruptRow {
        let event = InterruptEvent::Resolved {
            interrupt: row.interrupt.id.clone(),
            resolution: resolution.clone(),
        };
        self.log(Some(run), &Body::Interrupt(event));
        row.resolution = Some(resolution);
        row.resolved_at = Some(self.now);
        self.change(Change::Interrupt(Box::new(row.clone())));
        if row.interrupt.survives == Survives::Restart && row.interrupt.patience.is_some() {
            self.change(Change::Withdraw(QueueKind::Deadline, row.interrupt.id.to_string()));
        }
        if self.state.notifies {
            self.change(Change::Withdraw(QueueKind::Notify, row.interrupt.id.to_string()));
        }
        self.mark_vital();
        row
    }

    pub(super) fn withdraw_pending(&mut self, run: RunKey, reason: Code) {
        self.resolve_pending(run, &Resolution::Withdrawn { reason });
    }

    fn require_open(&self, run: RunKey) -> Result<RunKey> {
        if self.state.runs.contains_key(&run) {
            return Ok(run);
        }
        Err(Error::new(Code::RunEnded, "the run has ended"))
    }

    /// Checks that a run can raise this interrupt. Returns its event.
    fn check_raise(&self, run: RunKey, interrupt: &Interrupt) -> Result<Draft> {
        let Some(state) = self.state.runs.get(&run) else { return Ok(Draft::default()) };
        if state.pending.len() >= limits::MAX_PENDING_INTERRUPTS {
            return Err(Error::new(
                Code::Overloaded,
                format!("the run has {} pending interrupts", state.pending.len()),
            ));
        }
        let asked_with = |interrupt: &Interrupt| interrupt.payload.as_bytes().len();
        let pending: usize = state.pending.iter().map(|row| asked_with(&row.interrupt)).sum();
        if !state.pending.is_empty() && pending + asked_with(interrupt) > limits::MAX_PENDING_BYTES
        {
            return Err(Error::new(
                Code::Overloaded,
                format!("the run's pending interrupts ask with {pending} bytes already"),
            ));
        }
        if state.pending.iter().any(|row| row.interrupt.id == interrupt.id) {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("the interrupt '{}' is pending already", interrupt.id),
            ));
        }
        let mut asked = Draft::default();
        let raised = InterruptEvent::Raised(Box::new(interrupt.clone()));
        asked.push(self.now, &Body::Interrupt(raised), None)?;
        Ok(asked)
    }

    fn suspend(&mut self, run: RunKey, interrupt: Interrupt, saved: Json, asked: Draft) {
        if let Some(state) = self.run(run) {
            state.row.saved = Some(saved);
            // Write their rows now: the run can wait for long, and its next owner does not read its log for them.
            for open in state.open.clone() {
                self.point_at(open);
            }
        }
        self.raise_now(run, interrupt, asked);
        self.release_turn(run);
    }

    fn raise_now(&mut self, run: RunKey, interrupt: Interrupt, asked: Draft) {
        let now = self.now;
        self.log_draft(Some(run), asked);
        self.transit(run, Transition::Raise);
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        let row = InterruptRow {
            tenant: state.row.tenant.clone(),
            principal: state.row.principal.clone(),
            thread: state.row.thread,
            thread_id: state.row.thread_id.clone(),
            run,
            run_id: state.row.id.clone(),
            agent: state.row.agent.clone(),
            raised_at: now,
            resolution: None,
            resolved_at: None,
            interrupt,
        };
        state.pending.push(row.clone());
        let is_shown = state.pending.len() == 1;
        let settled = state.row.clone();
        self.change(Change::Interrupt(Box::new(row.clone())));
        self.watch(&row);
        self.tell_of(&row);
        if is_shown {
            self.call_back_status(run);
        }
        self.save_run(run);
        self.effect(Effect::Settled(Box::new(settled)));
    }

    /// Watches an interrupt's patience: in memory if it ends with its process, in the durable queue otherwise.
    fn watch(&mut self, row: &InterruptRow) {
        let Some(patience) = row.interrupt.patience else { return };
        if row.interrupt.survives == Survives::Process {
            self.effect(Effect::Watch { interrupt: row.interrupt.id.clone(), patience });
            return;
        }
        self.change(Change::Offer(QueueItem {
            kind: QueueKind::Deadline,
            key: row.interrupt.id.to_string(),
            due: self.now.after(patience),
            tenant: row.tenant.clone(),
            principal: row.principal.clone(),
            thread: Some(row.thread),
            reference: Json::from_value(&serde_json::json!({
                "thread": row.thread.0,
                "interrupt": row.interrupt.id.as_str(),
            })),
        }));
    }

    /// Queues a notice of a new interrupt.
    fn tell_of(&mut self, row: &InterruptRow) {
        if !self.state.notifies {
            return;
        }
        self.change(Change::Offer(QueueItem {
            kind: QueueKind::Notify,
            key: row.interrupt.id.to_string(),
            due: self.now,
            tenant: row.tenant.clone(),
            principal: row.principal.clone(),
            thread: Some(row.thread),
            reference: Json::from_value(&serde_json::json!({
                "thread": row.thread.0,
                "thread_id": row.thread_id.as_str(),
                "run": row.run.0,
                "run_id": row.run_id.as_str(),
                "agent": row.agent.as_str(),
                "interrupt": row.interrupt.id.as_str(),
            })),
        }));
    }

    /// Ends a run as completed. Its checkpoint becomes the head; an ephemeral thread needs no path.
    pub(super) fn complete(
        &mut self,
        run: RunKey,
        checkpoint: Option<(CheckpointKey, CheckpointId)>,
    ) {
        let has_checkpoint = self.run(run).is_some_and(|state| state.checkpoint.is_some());
        let Some((key, id)) = checkpoint.filter(|_| !has_checkpoint) else {
            self.end_run(run, Outcome::Completed);
            return;
        };
        let thread = &self.state.thread;
        let parent = thread.head;
        let (thread_key, position) = (thread.key, self.state.last + 1);
        let now = self.now;
        let Some(state) = self.run(run) else { return };
        let value = state.values.take();
        if let Some(mut bound) = state.bound.take() {
            bound.last_seen = Some(key);
            self.change(Change::Binding(*bound));
        }
        self.change(Change::Checkpoint(CheckpointRow {
            key,
            id,
            thread: thread_key,
            parent,
            run: Some(run),
            position,
            value,
            created_at: now,
            client_history: None,
        }));
        self.state.thread.head = Some(key);
        self.save_thread();
        self.end_run(run, Outcome::Completed);
    }
}

/// Returns the turn that resumes with an answer. A time-out that chose the reject option is an answer too.
pub(crate) fn resume_turn(row: InterruptRow, saved: Json) -> Option<Turn> {
    let answer = match row.resolution? {
        Resolution::Answered { answer, .. } => answer,
        Resolution::TimedOut { option: Some(option) } => Answer::Option(option),
        Resolution::TimedOut { option: None }
        | Resolution::Cancelled
        | Resolution::Withdrawn { .. } => {
            return None;
        }
    };
    Some(Turn::Resume { interrupt: Box::new(row.interrupt), answer, saved })
}
