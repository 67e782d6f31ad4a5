//! Accepting a run: what a new run meets on its thread.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent, RunEvent, ThreadEvent};
use trilogue_domain::{Code, Error, Json, Message, RunKey, Strategy, Times};
use trilogue_store::rows::{MessageRow, QueueItem, QueueKind};
use trilogue_store::{Change, Draft};

use super::output::Output;
use super::{Reply, Submit};
use crate::backend::Input;
use crate::request::{WhenHolding, WhenWaiting};
use crate::state::RunState;

/// What has to give way to a new run.
enum GivesWay {
    Nobody,
    /// The run that has the turn is cancelled, and removed when `roll_back`.
    Holder {
        run: RunKey,
        roll_back: bool,
    },
    /// These runs wait without the turn and are superseded.
    Waiting(Vec<RunKey>),
}

// === impl Output ===

impl Output<'_> {
    /// Accepts a run and starts it, queues it, or schedules it.
    pub(super) fn submit(&mut self, submit: Submit) -> Result<()> {
        let gives_way = self.check(&submit)?;
        let draft = self.describe(&submit)?;
        let run = submit.row.key;
        self.new_work();
        if submit.create_thread {
            self.create_thread();
        }
        let created = submit.row.clone();
        let input = submit.input;
        self.state.runs.insert(run, RunState::new(submit.row, Some(input), submit.native));
        self.log_draft(Some(run), draft.0);
        for message in draft.1 {
            self.point_at(message);
        }
        if let Some(row) = submit.idempotency {
            self.change(Change::Idempotency(row));
        }
        self.make_way(gives_way);
        if created.not_before.is_some_and(|at| at > self.now) {
            self.schedule(run);
        } else {
            self.state.queue.push_back(run);
            self.give_turn();
        }
        let started = self.state.runs.get(&run).is_some_and(|state| state.row.started_at.is_some());
        if !started {
            self.save_run(run);
        }
        let row = self.state.runs.get(&run).map_or(created, |state| state.row.clone());
        self.reply(Reply::Run(Box::new(row)));
        Ok(())
    }

    /// Puts a scheduled run whose time has come into the order.
    pub(super) fn due(&mut self, run: RunKey) {
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
        if submit.row.not_before.is_some_and(|at| at > self.now) {
            return Ok(GivesWay::Nobody);
        }
        let Some(holder) = self.state.turn.and_then(|run| self.state.runs.get(&run)) else {
            return self.check_waiting(submit);
        };
        if holder.is_waiting() && submit.when_holding == WhenHolding::Refuse {
            return Err(self.thread_waiting(holder));
        }
        let run = holder.row.key;
        match submit.strategy {
            Strategy::Reject => Err(Error::new(
                Code::ThreadBusy,
                format!(
                    "the thread '{}' has a run in progress: {}",
                    self.state.thread.id, holder.row.id
                ),
            )
            .hint("wait for that run, cancel it, or use another strategy")),
            Strategy::Interrupt => Ok(GivesWay::Holder { run, roll_back: false }),
            Strategy::Rollback => Ok(GivesWay::Holder { run, roll_back: true }),
            Strategy::Enqueue if self.state.queue.len() >= self.state.max_queued => {
                Err(Error::new(
                    Code::Overloaded,
                    format!(
                        "{} runs wait on the thread '{}'",
                        self.state.queue.len(),
                        self.state.thread.id
                    ),
                )
                .hint("wait for some of them to end"))
            }
            Strategy::Enqueue => Ok(GivesWay::Nobody),
        }
    }

    fn check_waiting(&self, submit: &Submit) -> Result<GivesWay> {
        let waiting = || self.state.runs.values().filter(|run| run.is_waiting());
        match (submit.when_waiting, waiting().next()) {
            (WhenWaiting::Refuse, Some(run)) => Err(self.thread_waiting(run)),
            (WhenWaiting::Supersede, Some(_)) => {
                Ok(GivesWay::Waiting(waiting().map(|run| run.row.key).collect()))
            }
            _ => Ok(GivesWay::Nobody),
        }
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

    fn make_way(&mut self, gives_way: GivesWay) {
        match gives_way {
            GivesWay::Nobody => {}
            GivesWay::Holder { run, roll_back } => {
                if let Some(state) = self.run(run) {
                    state.roll_back = roll_back;
                }
                self.cancel(run, None);
            }
            GivesWay::Waiting(runs) => {
                for run in runs {
                    self.cancel(run, Some(Code::RunSuperseded));
                }
            }
        }
    }

    fn schedule(&mut self, run: RunKey) {
        let Some(state) = self.state.runs.get_mut(&run) else { return };
        let Some(due) = state.row.not_before else { return };
        // The log has the input; a schedule may be far away.
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

    /// The events and rows that say what the run was given.
    fn describe(&self, submit: &Submit) -> Result<(Draft, Vec<MessageRow>)> {
        let mut draft = Draft::default();
        let value = match &submit.input {
            Input::Value(json) => Some(json.clone()),
            Input::Messages(_) => None,
        };
        let created = RunEvent::Created {
            run: submit.row.id.clone(),
            agent: submit.row.agent.clone(),
            input: value,
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
            });
        }
        Ok((draft, rows))
    }

    fn describe_message(&self, draft: &mut Draft, message: &Message) -> Result<()> {
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
