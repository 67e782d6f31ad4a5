//! The thread owner's one function: `step(state, command) → frames, row changes, effects`. It does no IO.
//!
//! A command is checked before anything changes: a refused command leaves the state unchanged.
//! The result of `step` is one atomic batch; effects are carried out after it is durable.
//!
//! Module map:
//! - `mod`: the commands, effects and replies, and `step` itself.
//! - `submit`: accepts, queues and schedules runs. `run`: an active run, its interrupts and its end.
//! - `answer`: answers and deadlines. `cancel`: cancelling, rolling back, lost tasks.
//! - `thread`: metadata, state, history, removal. `callback`: callbacks about a run.
//! - `recover`: decides about open runs after a restart.
//! - `output`: collects events, row changes and effects, and passes on the turn.

mod answer;
mod callback;
mod cancel;
mod output;
mod recover;
mod run;
mod submit;
#[cfg(test)]
mod tests;
mod thread;

use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, Answer, CheckpointId, CheckpointKey, ClientHistory, Code, Failure, Interrupt,
    InterruptId, Json, Message, MessageId, Principal, PrincipalId, Resolution, Role, RunId, RunKey,
    Timestamp,
};
use trilogue_store::rows::{
    BindingRow, IdempotencyRow, InterruptRow, MessageRow, RunRow, ThreadRow,
};
use trilogue_store::{Change, Draft};

use crate::request::{ThreadPatch, WhenHolding, WhenWaiting};
use crate::state::{RunState, ThreadState};
use crate::turn::{Ending, Turn};
use trilogue_domain::Input;

pub(crate) use answer::not_pending_error;
pub(crate) use output::{Section, Sections};
pub(crate) use recover::is_over;
pub use recover::lost_failure;
pub(crate) use run::resume_turn;

#[derive(Debug)]
pub(crate) enum Command {
    /// Accept a run.
    Submit(Box<Submit>),
    /// Take the output of a run's agent.
    Progress(Progress),
    /// A run's task raises an interrupt and keeps waiting.
    Raise { run: RunKey, interrupt: Box<Interrupt> },
    /// A run's task has withdrawn its interrupt.
    Withdraw { run: RunKey, interrupt: InterruptId },
    /// A run's agent has finished its turn.
    Finish {
        run: RunKey,
        ending: Result<Ending, Failure>,
        checkpoint: Option<(CheckpointKey, CheckpointId)>,
    },
    /// `said` is the message that contained the answer, if any.
    Answer {
        to: AnswerTarget,
        answer: Answer,
        extra: Option<Json>,
        said: Option<Box<Message>>,
        /// The idempotency key of the answer, stored with it.
        idempotency: Option<Box<IdempotencyRow>>,
        by: Principal,
    },
    /// With `roll_back`, the run is removed after it has stopped.
    Cancel { run: RunKey, reason: Option<Code>, roll_back: bool },
    /// A scheduled run falls due.
    Due { run: RunKey },
    /// An interrupt was not answered in time.
    Deadline { interrupt: InterruptId },
    /// Removes an ended run.
    RemoveRun { run: RunKey, id: RunId, reason: &'static str },
    /// Changes metadata or state.
    Patch {
        patch: Box<ThreadPatch>,
        from: Option<CheckpointKey>,
        checkpoint: (CheckpointKey, CheckpointId),
    },
    /// Replaces or continues the history with a client's.
    Replace { replace: Box<Replace>, checkpoint: (CheckpointKey, CheckpointId) },
    /// Removes the whole thread; with `if_idle`, only while no run is in flight.
    Erase { if_idle: bool },
    /// The thread was loaded with open runs without a task: a previous process left them, or an append failed.
    Recover {
        restarted: bool,
        failure: Failure,
        /// For a run whose agent had answered.
        checkpoint: Option<(CheckpointKey, CheckpointId)>,
    },
    /// The tasks of these runs are gone, for this reason.
    Lose { runs: Vec<RunKey>, failure: Failure },
    /// An event outside of runs, a new binding, or a new title.
    AppendOutsideRun {
        draft: Draft,
        bound: Option<BindingRow>,
        title: Option<Option<String>>,
        /// A message that begins with the event.
        begun: Option<Box<MessageRow>>,
    },
    /// From now on no run takes the turn.
    Drain,
}

/// A run to accept, with its new row.
#[derive(Debug)]
pub(crate) struct Submit {
    pub(crate) row: RunRow,
    pub(crate) input: Input,
    /// The messages that became a value, for the history.
    pub(crate) said: Vec<Message>,
    pub(crate) native: bool,
    pub(crate) create_thread: bool,
    /// Whether it contains a client-chosen id, which may be taken.
    pub(crate) claims_ids: bool,
    pub(crate) strategy: trilogue_domain::Strategy,
    /// Whether the strategy may remove runs of other principals.
    pub(crate) may_remove_of_others: bool,
    pub(crate) when_waiting: WhenWaiting,
    pub(crate) when_holding: WhenHolding,
    pub(crate) idempotency: Option<IdempotencyRow>,
    /// For a run that its agent starts.
    pub(crate) opening: Option<Box<AgentRunOpening>>,
}

/// What a run that its agent starts adds to the thread when it starts.
#[derive(Debug)]
pub(crate) struct AgentRunOpening {
    /// Its checkpoint. It exists from the start, so that readers of the history see what the agent has done so far.
    pub(crate) checkpoint: (CheckpointKey, CheckpointId),
    pub(crate) binding: Option<BindingRow>,
}

/// A history from a client.
#[derive(Debug)]
pub(crate) struct Replace {
    pub(crate) expected: Option<CheckpointKey>,
    /// Whether it continues the path; otherwise it starts a new one.
    pub(crate) extends: bool,
    pub(crate) given: ClientHistory,
    pub(crate) state: Option<Json>,
}

/// The output of a run's agent since the last progress.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) run: RunKey,
    pub(crate) draft: Draft,
    /// Incomplete messages that have begun, with their roles.
    pub(crate) begun: Vec<(MessageId, Role)>,
    pub(crate) messages: Vec<Completed>,
    /// Messages with their aliases.
    pub(crate) aliases: Vec<(MessageId, MessageId)>,
    pub(crate) values: Option<Json>,
    /// The binding that was made or read since the last progress.
    pub(crate) bound: Option<BindingRow>,
    /// The agent's new title of the thread, if it set or cleared one.
    pub(crate) title: Option<Option<String>>,
    /// What the agent needs to find its run again after a restart, if that changed since the last progress.
    pub(crate) kept: Option<Json>,
    /// The events that the run's client gets callbacks about.
    pub(crate) callback_events: CallbackEvents,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Completed {
    pub(crate) message: MessageId,
    pub(crate) role: Role,
    pub(crate) alias: Option<MessageId>,
}

/// The events that a run's client gets callbacks about, as indexes in a draft from 1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CallbackEvents {
    /// The last event that extended the output; zero without one.
    pub(crate) output: u64,
    /// The agent's own updates.
    pub(crate) updates: Vec<u64>,
}

/// The interrupt that an answer is for, after the lookup of shown questions.
#[derive(Clone, Debug)]
pub(crate) enum AnswerTarget {
    Interrupt(InterruptId),
    /// The oldest pending interrupt of a run that has not resolved any.
    FirstOf(RunKey),
}

#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) sections: Sections,
    pub(crate) changes: Vec<Change>,
    /// Carried out once the step is durable.
    pub(crate) effects: Vec<Effect>,
    /// The reply to the caller.
    pub(crate) reply: Reply,
    pub(crate) vital: bool,
    /// Whether it accepts new work, which a full disk refuses even if the same append would end it.
    pub(crate) new_work: bool,
}

/// An effect of a step, carried out once the step is durable.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Effect {
    /// Start the run's agent.
    Start { run: RunKey, turn: StartTurn },
    /// Pass a resolution to the run's waiting task.
    Deliver { run: RunKey, interrupt: InterruptId, resolution: Resolution },
    /// Ask the run's task to stop.
    Stop { run: RunKey },
    /// Drop the run's task; its later events are ignored.
    Abort { run: RunKey },
    /// Notify the waiters that the run has ended or waits.
    Settled(Box<RunRow>),
    /// Watch an interrupt's patience.
    Watch { interrupt: InterruptId, patience: std::time::Duration },
    /// Notify a run's agent that no client waits for it any more.
    Abandon { agent: AgentName, saved: Json },
    /// Say in the log that a run was removed in favour of another, and at whose request.
    AuditRollBack { removed: RunId, of: PrincipalId, by: Box<RunRow> },
    /// The thread was removed.
    Gone,
}

/// The turn that an agent starts with.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum StartTurn {
    /// This turn.
    Ready(Box<Turn>),
    /// The input, read from the log.
    InputFromLog,
    /// The answer to this interrupt, read from the store.
    AnswerFromStore { interrupt: InterruptId, saved: Json },
}

// === impl Command ===

impl Command {
    /// Whether it depends on whether a turn is over: a turn whose agent has answered counts as over.
    pub(crate) fn needs_end_of_turn(&self) -> bool {
        match self {
            Self::Cancel { .. } => true,
            Self::Patch { patch, .. } => patch.if_idle,
            Self::Erase { if_idle } => *if_idle,
            _ => false,
        }
    }
}

// === impl StartTurn ===

impl StartTurn {
    /// Whether the turn begins later than it was asked for. An agent that is found again was at work all the time.
    pub(crate) fn is_delayed(&self, run: &RunState) -> bool {
        match self {
            Self::Ready(turn) => match **turn {
                Turn::Start { .. } => run.is_delayed,
                Turn::Resume { .. } => true,
                Turn::Rejoin { .. } => false,
            },
            Self::InputFromLog => run.is_delayed,
            Self::AnswerFromStore { .. } => true,
        }
    }
}

/// The reply to the sender of a command.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum Reply {
    #[default]
    Done,
    Run(Box<RunRow>),
    Interrupt(Box<InterruptRow>),
    Thread(Box<ThreadRow>),
    /// Nothing was changed, because the head is not the expected one.
    HeadMoved,
}

/// Applies one command. An invalid command is refused, and the state stays unchanged.
pub(crate) fn step(state: &mut ThreadState, command: Command, now: Timestamp) -> Result<Step> {
    let mut output = output::StepOutput::new(state, now);
    match command {
        Command::Submit(submit) => output.submit(*submit)?,
        Command::Progress(progress) => output.progress(progress)?,
        Command::Raise { run, interrupt } => output.raise(run, *interrupt)?,
        Command::Withdraw { run, interrupt } => output.withdraw(run, &interrupt),
        Command::Finish { run, ending, checkpoint } => output.finish(run, ending, checkpoint)?,
        Command::Answer { to, answer, extra, said, idempotency, by } => {
            output.answer(&to, answer, extra, said.as_deref(), &by)?;
            if let Some(row) = idempotency {
                output.change(Change::Idempotency(*row));
            }
        }
        Command::Cancel { run, reason, roll_back } => {
            output.cancel_command(run, reason, roll_back)?;
        }
        Command::Due { run } => output.queue_due_run(run),
        Command::Deadline { interrupt } => output.deadline(&interrupt),
        Command::RemoveRun { run, id, reason } => output.remove_run(run, id, reason)?,
        Command::Patch { patch, from, checkpoint } => output.patch(*patch, from, checkpoint)?,
        Command::Replace { replace, checkpoint } => output.replace(*replace, checkpoint),
        Command::Erase { if_idle } => output.erase_command(if_idle)?,
        Command::Recover { restarted, failure, checkpoint } => {
            output.recover(restarted, &failure, checkpoint);
        }
        Command::Lose { runs, failure } => output.lose(&runs, &failure),
        Command::AppendOutsideRun { draft, bound, title, begun } => {
            output.note(draft, bound, title, begun)
        }
        Command::Drain => output.drain(),
    }
    Ok(output.into_step())
}
