//! Collects a step's results, and numbers its events.

use smallvec::SmallVec;
use trilogue_domain::event::{Body, RunEvent};
use trilogue_domain::run::Transition;
use trilogue_domain::{Code, Outcome, RunKey, RunStatus, Timestamp};
use trilogue_store::rows::{CheckpointRow, MessageRow, QueueKind};
use trilogue_store::{Change, Draft};

use super::{Effect, Reply, StartTurn, Step};
use crate::part::names_content;
use crate::state::{RunState, ThreadState};
use crate::turn::Turn;

/// Consecutive events of one run, or of no run, with their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) run: Option<RunKey>,
    /// The thread number of the first event.
    pub(crate) first: u64,
    /// The run number of the first event; zero for events outside of runs.
    pub(crate) first_run: u64,
    pub(crate) draft: Draft,
}

/// Sections; usually one.
pub(crate) type Sections = SmallVec<[Section; 1]>;

/// The state and the step's results so far.
#[derive(Debug)]
pub(super) struct StepOutput<'a> {
    pub(super) state: &'a mut ThreadState,
    pub(super) now: Timestamp,
    step: Step,
}

// === impl Section ===

impl Section {
    /// The thread number of the event that follows.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.draft.len() as u64
    }
}

// === impl StepOutput ===

impl<'a> StepOutput<'a> {
    pub(super) fn new(state: &'a mut ThreadState, now: Timestamp) -> Self {
        Self { state, now, step: Step::default() }
    }

    pub(super) fn into_step(self) -> Step {
        self.step
    }

    /// Logs a server event. Server events are small: one that does not fit a frame is a bug, and is traced and left out of the log.
    pub(super) fn log(&mut self, run: Option<RunKey>, body: &Body) {
        if self.step.sections.last().is_none_or(|section| section.run != run) {
            self.open_section(run);
        }
        let Some(section) = self.step.sections.last_mut() else { return };
        let before = section.draft.len();
        if let Err(error) = section.draft.push(self.now, body, None) {
            tracing::error!(event = body.name(), %error, "an event of the server does not fit the log");
            return;
        }
        let count = (section.draft.len() - before) as u64;
        self.number(run, count);
    }

    /// Appends a draft to the log, and numbers its events.
    pub(super) fn log_draft(&mut self, run: Option<RunKey>, draft: Draft) {
        if draft.is_empty() {
            return;
        }
        if self.step.sections.last().is_none_or(|section| section.run != run) {
            self.open_section(run);
        }
        let count = draft.len() as u64;
        if let Some(section) = self.step.sections.last_mut() {
            section.draft.join(draft);
        }
        self.number(run, count);
    }

    fn open_section(&mut self, run: Option<RunKey>) {
        let of_run = run.and_then(|run| self.state.runs.get(&run));
        let first_run = of_run.map_or(0, |run| run.row.last_run_number + 1);
        let first = self.state.last + 1;
        let draft = self.state.new_draft();
        self.step.sections.push(Section { run, first, first_run, draft });
    }

    /// Assigns the numbers of this many events.
    fn number(&mut self, run: Option<RunKey>, count: u64) {
        self.state.last += count;
        if let Some(run) = run.and_then(|run| self.state.runs.get_mut(&run)) {
            run.row.last_run_number += count;
        }
    }

    pub(super) fn change(&mut self, change: Change) {
        self.step.changes.push(change);
    }

    /// Writes a message's position, and names the message in the server's log. In an ephemeral thread no other run can refer to a message, so only the run's log has it.
    pub(super) fn point_at(&mut self, message: MessageRow) {
        tracing::debug!(
            thread = %self.state.thread.id,
            run = self.state.runs.get(&message.run).map(|run| tracing::field::display(&run.row.id)),
            message_id = %message.id,
            agent_message_id = message.alias.as_ref().map(tracing::field::display),
            role = %message.role.to_text(),
            "message"
        );
        if !self.state.thread.ephemeral {
            self.change(Change::Message(message));
        }
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.step.effects.push(effect);
    }

    pub(super) fn reply(&mut self, reply: Reply) {
        self.step.reply = reply;
    }

    pub(super) fn mark_vital(&mut self) {
        self.step.vital = true;
    }

    pub(super) fn new_work(&mut self) {
        self.step.new_work = true;
    }

    pub(super) fn run(&mut self, run: RunKey) -> Option<&mut RunState> {
        self.state.runs.get_mut(&run).map(Box::as_mut)
    }

    pub(super) fn save_run(&mut self, run: RunKey) {
        if let Some(run) = self.state.runs.get(&run) {
            self.step.changes.push(Change::Run(Box::new(run.row.clone())));
        }
    }

    pub(super) fn save_thread(&mut self) {
        self.state.thread.updated_at = self.now;
        self.step.changes.push(Change::Thread(self.state.thread.clone()));
    }

    /// Moves a run along the state machine. A missing transition is a bug: it is traced and the status stays.
    pub(super) fn transit(&mut self, run: RunKey, transition: Transition) {
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        match state.row.status.after(transition) {
            Ok(status) => state.row.status = status,
            Err(error) => tracing::error!(run = %state.row.id, %error, "illegal transition"),
        }
    }

    /// Ends a run: the last event, the row, the turn, and the waiters.
    pub(super) fn end_run(&mut self, run: RunKey, outcome: Outcome) {
        self.log(Some(run), &Body::Run(RunEvent::Ended(outcome.clone())));
        self.transit(run, Transition::End(outcome.status()));
        let Some(mut ended) = self.state.runs.remove(&run) else { return };
        if let Some(checkpoint) = ended.checkpoint.take() {
            let position = self.state.last;
            self.change(Change::Checkpoint(CheckpointRow { position, ..*checkpoint }));
        }
        let id = ended.row.id.clone();
        ended.row.outcome = Some(outcome);
        // The row has the reason even after a restart.
        let rolls_back = ended.row.cancel_reason.take() == Some(Code::RunRolledBack);
        ended.row.ended_at = Some(self.now);
        if let Some(saved) = ended.row.saved.take() {
            self.effect(Effect::Abandon { agent: ended.row.agent.clone(), saved });
        }
        ended.row.pending_answer = None;
        ended.row.has_turn = false;
        self.change(Change::Run(Box::new(ended.row.clone())));
        if ended.row.not_before.is_some() && ended.row.started_at.is_none() {
            // A run that has ended must not fall due.
            self.change(Change::Withdraw(QueueKind::ScheduledRun, id.to_string()));
        }
        if ended.has_task {
            self.effect(Effect::Abort { run });
        }
        if !rolls_back {
            // Incomplete messages can be looked up too.
            for open in std::mem::take(&mut ended.open) {
                self.point_at(open);
            }
            self.call_back_end(&ended.row);
        }
        self.effect(Effect::Settled(Box::new(ended.row)));
        self.state.queue.retain(|queued| *queued != run);
        if rolls_back {
            self.remove_run_now(run, id, "rolled_back");
        }
        self.mark_vital();
        self.release_turn(run);
    }

    /// Passes on the turn if this run had it.
    pub(super) fn release_turn(&mut self, run: RunKey) {
        if let Some(state) = self.run(run) {
            state.row.has_turn = false;
        }
        if self.state.turn == Some(run) {
            self.state.turn = None;
        }
        self.give_turn();
    }

    /// Starts or resumes the next run in order when the turn is free.
    pub(super) fn give_turn(&mut self) {
        while self.state.turn.is_none() && !self.state.draining {
            let Some(next) = self.state.queue.pop_front() else { return };
            if self.state.runs.contains_key(&next) {
                self.take_turn(next);
            }
        }
    }

    fn take_turn(&mut self, run: RunKey) {
        self.state.turn = Some(run);
        let head = self.state.thread.head;
        let now = self.now;
        let Some(state) = self.run(run) else { return };
        state.row.has_turn = true;
        if state.row.status != RunStatus::Running {
            state.row.base = head;
        }
        if state.row.started_at.is_some() {
            self.resume(run);
            return;
        }
        state.row.started_at = Some(now);
        let turn = match state.input.take() {
            // An agent gets content, not references to it.
            Some(input) if !names_content(&input) => {
                StartTurn::Ready(Box::new(Turn::Start { input }))
            }
            _ => StartTurn::InputFromLog,
        };
        state.has_task = true;
        self.log(Some(run), &Body::Run(RunEvent::Started));
        self.transit(run, Transition::Start);
        self.save_run(run);
        self.effect(Effect::Start { run, turn });
    }
}
