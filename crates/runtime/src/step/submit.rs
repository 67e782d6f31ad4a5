//! Accepts a run next to the other runs of its thread.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent, RunEvent, ThreadEvent};
use trilogue_domain::{Code, Error, Json, Message, RunKey, Strategy, Times, limits};
use trilogue_store::rows::{BindingRow, CheckpointRow, MessageRow, QueueItem, QueueKind, RunRow};
use trilogue_store::{Change, Draft};

use super::output::StepOutput;
use super::{AgentRunOpening, Effect, Reply, Submit};
use crate::request::{WhenHolding, WhenWaiting};
use crate::state::RunState;
use trilogue_domain::Input;

/// The runs that give way to a new run.
#[derive(Debug, Default)]
struct GivesWay {
    /// Runs in flight, which are cancelled; the one with the turn comes last, so that none of the others takes it.
    in_flight: Vec<RunKey>,
    /// Whether they are removed with their effects.
    roll_back: bool,
    /// Runs that wait without the turn, which are superseded.
    waiting: Vec<RunKey>,
}

// === impl StepOutput ===

impl StepOutput<'_> {
    /// Accepts a run and starts it, queues it, or schedules it.
    pub(super) fn submit(&mut self, submit: Submit) -> Result<()> {
        let gives_way = self.check(&submit)?;
        let draft = self.describe(&submit)?;
        let run = submit.row.key;
        self.new_work();
        if submit.create_thread {
            self.create_thread();
        }
        let (not_before, opening) = (submit.row.not_before, submit.opening);
        let input = submit.input;
        let entry = RunState::new(submit.row, Some(input), submit.native);
        self.state.runs.insert(run, Box::new(entry));
        self.log_draft(Some(run), draft.0);
        for message in draft.1 {
            self.point_at(message);
        }
        if let Some(row) = submit.idempotency {
            self.change(Change::Idempotency(row));
        }
        self.make_way(gives_way, run);
        if not_before.is_some_and(|at| at > self.now) {
            self.schedule(run);
        } else {
            self.state.queue.push_back(run);
            self.give_turn();
        }
        if let Some(opening) = opening {
            self.open_agent_run(run, *opening);
        }
        let Some(state) = self.state.runs.get_mut(&run) else { return Ok(()) };
        state.is_delayed = state.row.started_at.is_none();
        let row = Box::new(state.row.clone());
        if row.started_at.is_none() {
            self.change(Change::Run(row.clone()));
        }
        self.reply(Reply::Run(row));
        Ok(())
    }

    /// Queues a scheduled run that has fallen due.
    pub(super) fn queue_due_run(&mut self, run: RunKey) {
        let fits = self.state.runs.get(&run).is_some_and(|state| state.row.started_at.is_none());
        if fits && !self.state.queue.contains(&run) {
            self.state.queue.push_back(run);
            self.give_turn();
        }
    }

    fn check(&self, submit: &Submit) -> Result<GivesWay> {
        if self.state.draining {
            return Err(Error::new(Code::ShuttingDown, "the server is shutting down")
                .hint("send the request again when it is back"));
        }
        if submit.opening.is_some() {
            return self.check_is_free().map(|()| GivesWay::default());
        }
        let is_scheduled = submit.row.not_before.is_some_and(|at| at > self.now);
        let holder = self.state.turn.and_then(|run| self.state.runs.get(&run));
        if let Some(holder) = holder.filter(|run| run.is_waiting() && !is_scheduled)
            && submit.when_holding == WhenHolding::Refuse
        {
            return Err(self.thread_waiting(holder));
        }
        let mut gives_way = GivesWay::default();
        match submit.strategy {
            Strategy::Reject => {
                if let Some(run) = self.in_flight().next() {
                    return Err(self
                        .thread_busy(&run.row)
                        .hint("wait for that run, cancel it, or use another strategy"));
                }
            }
            Strategy::Enqueue => self.check_room(is_scheduled || holder.is_some())?,
            Strategy::Interrupt | Strategy::Rollback => {
                gives_way.roll_back = submit.strategy == Strategy::Rollback;
                if gives_way.roll_back && !submit.may_remove_of_others {
                    self.check_removes_own(&submit.row)?;
                }
                gives_way.in_flight = self.in_flight().map(|run| run.row.key).collect();
                gives_way.in_flight.sort_by_key(|run| (self.state.turn == Some(*run), *run));
            }
        }
        let mut waiting = self.waiting_without_turn();
        match (submit.when_waiting, waiting.next()) {
            (WhenWaiting::Refuse, Some(run)) if holder.is_none() && !is_scheduled => {
                Err(self.thread_waiting(run))
            }
            (WhenWaiting::Supersede, Some(run)) => {
                gives_way.waiting = vec![run.row.key];
                gives_way.waiting.extend(waiting.map(|run| run.row.key));
                Ok(gives_way)
            }
            _ => Ok(gives_way),
        }
    }

    /// Checks that no run has the turn or waits for it: a run that its agent starts never waits in the queue.
    fn check_is_free(&self) -> Result<()> {
        let holder = self.state.turn.or(self.state.queue.front().copied());
        match holder.and_then(|run| self.state.runs.get(&run)) {
            Some(holder) => Err(self.thread_busy(&holder.row)),
            None => Ok(()),
        }
    }

    /// Adds the checkpoint of a run that its agent starts to the path. The agent knows what it does itself, so its binding moves along.
    fn open_agent_run(&mut self, run: RunKey, opening: AgentRunOpening) {
        let AgentRunOpening { checkpoint: (key, id), binding } = opening;
        let thread = &self.state.thread;
        let checkpoint = CheckpointRow {
            key,
            id,
            thread: thread.key,
            parent: thread.head,
            run: Some(run),
            position: self.state.last,
            value: None,
            created_at: self.now,
            client_history: None,
        };
        if let Some(binding) = binding.filter(|binding| binding.last_seen == thread.head) {
            self.change(Change::Binding(BindingRow { last_seen: Some(key), ..binding }));
        }
        self.change(Change::Checkpoint(checkpoint.clone()));
        self.state.thread.head = Some(key);
        self.save_thread();
        if let Some(state) = self.run(run) {
            state.checkpoint = Some(Box::new(checkpoint));
        }
    }

    /// Checks that a rollback removes no run of another principal.
    fn check_removes_own(&self, new: &RunRow) -> Result<()> {
        let mut others = self.in_flight().filter(|run| run.row.principal != new.principal);
        let Some(other) = others.next() else { return Ok(()) };
        let message =
            format!("a rollback would remove the run '{}' of another principal", other.row.id);
        Err(Error::new(Code::Forbidden, message).hint(
            "use the strategy 'interrupt', or a token with the right 'admin'; a page signs in again with: trilogue ui",
        ))
    }

    /// Returns the runs that a strategy applies to: queued, scheduled, active, being cancelled, or waiting with the turn.
    fn in_flight(&self) -> impl Iterator<Item = &RunState> {
        let holder = self.state.turn;
        self.state
            .runs
            .values()
            .map(Box::as_ref)
            .filter(move |run| run.is_in_flight() || holder == Some(run.row.key))
    }

    fn waiting_without_turn(&self) -> impl Iterator<Item = &RunState> {
        let holder = self.state.turn;
        let waiting = self.state.runs.values().map(Box::as_ref).filter(|run| run.is_waiting());
        waiting.filter(move |run| holder != Some(run.row.key))
    }

    /// Checks that the queue or the schedule has room for a run that does not start at once.
    fn check_room(&self, waits: bool) -> Result<()> {
        if !waits {
            return Ok(());
        }
        let holder = self.state.turn;
        let others = self.in_flight().filter(|run| holder != Some(run.row.key)).count();
        if others < self.state.max_queued {
            return Ok(());
        }
        Err(Error::new(
            Code::Overloaded,
            format!("{others} runs wait on the thread '{}'", self.state.thread.id),
        )
        .hint("wait for some of them to end"))
    }

    pub(super) fn thread_busy(&self, run: &RunRow) -> Error {
        Error::new(
            Code::ThreadBusy,
            format!("the thread '{}' has a run in progress: {}", self.state.thread.id, run.id),
        )
    }

    fn thread_waiting(&self, run: &RunState) -> Error {
        let error = Error::new(
            Code::ThreadWaiting,
            format!(
                "the run '{}' on the thread '{}' waits for an answer",
                run.row.id, self.state.thread.id
            ),
        )
        .hint("answer its interrupt or cancel it");
        match run.pending.first() {
            Some(row) => error.pending(row.interrupt.id.clone()),
            None => error,
        }
    }

    fn make_way(&mut self, gives_way: GivesWay, by: RunKey) {
        for run in gives_way.waiting {
            self.cancel(run, Some(Code::RunSuperseded));
        }
        for run in gives_way.in_flight {
            if gives_way.roll_back {
                self.audit_roll_back(run, by);
                self.roll_back(run);
            } else {
                self.cancel(run, None);
            }
        }
    }

    fn audit_roll_back(&mut self, removed: RunKey, by: RunKey) {
        let (Some(removed), Some(by)) = (self.state.runs.get(&removed), self.state.runs.get(&by))
        else {
            return;
        };
        let (id, of) = (removed.row.id.clone(), removed.row.principal.clone());
        let by = Box::new(by.row.clone());
        self.effect(Effect::AuditRollBack { removed: id, of, by });
    }

    /// Offers a run to the worker that submits it when it falls due.
    pub(super) fn schedule(&mut self, run: RunKey) {
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        let Some(due) = state.row.not_before else { return };
        // The log has the input, and the run may be scheduled far in the future.
        state.input = None;
        let item = QueueItem {
            kind: QueueKind::ScheduledRun,
            key: state.row.id.to_string(),
            due,
            tenant: state.row.tenant.clone(),
            principal: state.row.principal.clone(),
            thread: Some(state.row.thread),
            reference: Json::from_value(
                &serde_json::json!({"thread": state.row.thread.0, "run": run.0}),
            ),
        };
        self.change(Change::Offer(item));
    }

    pub(super) fn create_thread(&mut self) {
        let thread = self.state.thread.clone();
        if !thread.ephemeral {
            let event = ThreadEvent::Created {
                thread: thread.id.clone(),
                metadata: thread.metadata.clone(),
                copied_from: None,
            };
            self.log(None, &Body::Thread(event));
        }
        self.change(Change::Thread(thread));
    }

    /// Returns the events and rows of the run's input.
    fn describe(&self, submit: &Submit) -> Result<(Draft, Vec<MessageRow>)> {
        let mut draft = self.state.new_draft();
        let value = match &submit.input {
            Input::Value(json) => Some(json.clone()),
            Input::Messages(_) => None,
        };
        let created = RunEvent::Created {
            run: submit.row.id.clone(),
            agent: submit.row.agent.clone(),
            input: value,
            audit: submit.row.audit.clone(),
        };
        draft.push(self.now, &Body::Run(created), None)?;
        let mut rows = Vec::new();
        let messages = match &submit.input {
            Input::Messages(messages) => messages,
            Input::Value(_) => &submit.said,
        };
        for message in messages {
            self.describe_message(&mut draft, message)?;
            rows.push(MessageRow {
                id: message.id.clone(),
                tenant: submit.row.tenant.clone(),
                thread: submit.row.thread,
                run: submit.row.key,
                role: message.role.clone(),
                position: self.state.last + 1,
                alias: None,
            });
        }
        check_fits(&draft)?;
        Ok((draft, rows))
    }

    pub(super) fn describe_message(&self, draft: &mut Draft, message: &Message) -> Result<()> {
        let (created_at, completed_at) = (message.created_at, message.completed_at);
        let started = MessageEvent::Started {
            message: message.id.clone(),
            role: message.role.clone(),
            times: Some(Times { created_at, completed_at }),
        };
        draft.push(self.now, &Body::Message(started), None)?;
        for part in &message.parts {
            let part = MessageEvent::Part { message: message.id.clone(), part: part.clone() };
            draft.push(self.now, &Body::Message(part), None)?;
        }
        let completed = MessageEvent::Completed { message: message.id.clone() };
        draft.push(self.now, &Body::Message(completed), None)
    }
}

/// Checks that messages fit into one append with its other events.
pub(super) fn check_fits(draft: &Draft) -> Result<()> {
    if draft.bytes() <= limits::MAX_SAID_BYTES {
        return Ok(());
    }
    let (bytes, most) = (draft.bytes(), limits::MAX_SAID_BYTES);
    let message = format!("the messages take {bytes} bytes of the log itself; {most} is the most");
    Err(Error::new(Code::BodyTooLarge, message)
        .hint("send fewer parts: content of more than 4 KiB is stored beside the log"))
}
