//! The thread owner's one function: `step(state, command) → frames, row changes, effects`. It does no IO.
//!
//! A command is checked before anything changes: a refused command leaves the state as it was.
//! What `step` returns is one atomic batch; effects are carried out after it is durable.

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
    Answer, CheckpointId, CheckpointKey, ClientHistory, Code, Failure, Interrupt, InterruptId,
    Json, Message, MessageId, Principal, Resolution, Role, RunId, RunKey, Timestamp,
};
use trilogue_store::rows::{
    BindingRow, IdempotencyRow, InterruptRow, MessageRow, RunRow, ThreadRow,
};
use trilogue_store::{Change, Draft};

use crate::request::{ThreadPatch, WhenHolding, WhenWaiting};
use crate::state::ThreadState;
use crate::turn::{Ending, Turn};
use trilogue_domain::Input;

pub(crate) use answer::gone;
pub(crate) use output::Sections;
pub(crate) use recover::{is_over, lost};
pub(crate) use run::resume_turn;

/// A change of a thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Accept a run.
    Submit(Box<Submit>),
    /// Take what a run's agent has emitted.
    Progress(Progress),
    /// A run's task asks and goes on waiting.
    Raise { run: RunKey, interrupt: Box<Interrupt> },
    /// A run's task has given up on what it asked.
    Withdraw { run: RunKey, interrupt: InterruptId },
    /// A run's agent is done with its turn.
    Finish {
        run: RunKey,
        ending: Result<Ending, Failure>,
        checkpoint: Option<(CheckpointKey, CheckpointId)>,
    },
    /// An answer has come; `said` is the message that it is, where somebody said it in words.
    Answer {
        to: AnswerTarget,
        answer: Answer,
        extra: Option<Json>,
        said: Option<Box<Message>>,
        /// The key under which it came, kept with it.
        idempotency: Option<Box<IdempotencyRow>>,
        by: Principal,
    },
    /// A run is to stop, and to be removed then with what it did where it is rolled back.
    Cancel { run: RunKey, reason: Option<Code>, roll_back: bool },
    /// A run's time has come.
    Due { run: RunKey },
    /// An interrupt was not answered in time.
    Deadline { interrupt: InterruptId },
    /// A run that has ended is to be removed.
    RemoveRun { run: RunKey, id: RunId, reason: &'static str },
    /// Metadata or state are to change.
    Patch {
        patch: Box<ThreadPatch>,
        from: Option<CheckpointKey>,
        checkpoint: (CheckpointKey, CheckpointId),
    },
    /// The history is to be replaced or continued by one that a client brought.
    Replace { replace: Box<Replace>, checkpoint: (CheckpointKey, CheckpointId) },
    /// The thread is to go, with everything of it; where that is asked for, only while nothing is in flight on it.
    Erase { if_idle: bool },
    /// The thread was loaded with open runs that have no task: a previous life of the server left them, or storing failed.
    Recover { restarted: bool, failure: Failure },
    /// The tasks of these runs are gone, for this reason.
    Lose { runs: Vec<RunKey>, failure: Failure },
    /// Something happened in the thread outside of runs, or its agent knows it by another session now, or calls it something else.
    Note {
        draft: Draft,
        bound: Option<BindingRow>,
        title: Option<Option<String>>,
        /// A message that begins with it.
        begun: Option<Box<MessageRow>>,
    },
    /// Nothing takes the turn any more.
    Drain,
}

/// A run to accept, with its row made up.
#[derive(Debug)]
pub(crate) struct Submit {
    pub(crate) row: RunRow,
    pub(crate) input: Input,
    /// The messages that the input was made of, where it is a value: they stand in the history.
    pub(crate) said: Vec<Message>,
    pub(crate) native: bool,
    pub(crate) create_thread: bool,
    /// Whether a client chose an id in it, which may be taken.
    pub(crate) claims_ids: bool,
    pub(crate) strategy: trilogue_domain::Strategy,
    pub(crate) when_waiting: WhenWaiting,
    pub(crate) when_holding: WhenHolding,
    pub(crate) idempotency: Option<IdempotencyRow>,
}

/// A history that a client brought.
#[derive(Debug)]
pub(crate) struct Replace {
    /// The head at which it was compared with the thread's own.
    pub(crate) expected: Option<CheckpointKey>,
    /// Whether it continues the path; otherwise it begins a new one.
    pub(crate) extends: bool,
    pub(crate) given: ClientHistory,
    pub(crate) state: Option<Json>,
}

/// What a run's agent has emitted since the last time.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) run: RunKey,
    pub(crate) draft: Draft,
    /// Messages that have begun and are not complete, and who says them.
    pub(crate) begun: Vec<(MessageId, Role)>,
    /// Messages that were completed.
    pub(crate) messages: Vec<Completed>,
    /// Messages, and how else the agent knows them.
    pub(crate) aliases: Vec<(MessageId, MessageId)>,
    /// The state that was set last.
    pub(crate) values: Option<Json>,
    /// The binding that was made or read since the last time.
    pub(crate) bound: Option<BindingRow>,
    /// What the agent has called the thread since, where it did.
    pub(crate) title: Option<Option<String>>,
    /// Which of the events the run's client is called back about.
    pub(crate) callback_events: CallbackEvents,
}

/// A message that an agent has completed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Completed {
    pub(crate) message: MessageId,
    pub(crate) role: Role,
    /// How else the agent knows it.
    pub(crate) alias: Option<MessageId>,
}

/// The places in a draft of events that a run's client is called back about; the first event's is 1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CallbackEvents {
    /// The last event with which the output grew; zero where there is none.
    pub(crate) output: u64,
    /// The agent's own updates.
    pub(crate) updates: Vec<u64>,
}

/// What an answer is for, after looking up what was shown.
#[derive(Clone, Debug)]
pub(crate) enum AnswerTarget {
    /// This interrupt.
    Interrupt(InterruptId),
    /// The oldest pending interrupt of a run that has resolved none in its life.
    FirstOf(RunKey),
}

/// What one command comes to.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// The events, numbered.
    pub(crate) sections: Sections,
    /// The rows that change.
    pub(crate) changes: Vec<Change>,
    /// What to do once that is durable.
    pub(crate) effects: Vec<Effect>,
    /// What to tell who asked.
    pub(crate) reply: Reply,
    /// Whether it ends something or makes room: admitted while the disk is full.
    pub(crate) vital: bool,
    /// Whether it accepts new work, which a full disk refuses even when the same append would end it.
    pub(crate) new_work: bool,
}

/// What to do once a step is durable.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Effect {
    /// Start the run's agent.
    Start { run: RunKey, turn: StartTurn },
    /// Hand a resolution to the run's waiting task.
    Deliver { run: RunKey, interrupt: InterruptId, resolution: Resolution },
    /// Ask the run's task to stop.
    Stop { run: RunKey },
    /// Drop the run's task; what it does is not heard any more.
    Abort { run: RunKey },
    /// Tell who waits that the run has ended or waits.
    Settled(Box<RunRow>),
    /// Watch an interrupt's patience.
    Watch { interrupt: InterruptId, patience: std::time::Duration },
    /// The thread is gone.
    Gone,
}

/// What an agent is started with.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum StartTurn {
    /// This.
    Ready(Box<Turn>),
    /// The input as the log has it.
    InputFromLog,
    /// The answer to this interrupt as the store has it.
    AnswerFromStore { interrupt: InterruptId, saved: Json },
}

/// What to tell who asked.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) enum Reply {
    /// That it is done.
    #[default]
    Done,
    /// The run as it now is.
    Run(Box<RunRow>),
    /// The interrupt as it now is.
    Interrupt(Box<InterruptRow>),
    /// The thread as it now is.
    Thread(Box<ThreadRow>),
    /// That nothing was done, because the head is not the one that was expected.
    HeadMoved,
}

/// Takes one command.
///
/// # Errors
/// When the command does not fit the state, which is then unchanged.
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
        Command::Due { run } => output.due(run),
        Command::Deadline { interrupt } => output.deadline(&interrupt),
        Command::RemoveRun { run, id, reason } => output.remove_run(run, id, reason)?,
        Command::Patch { patch, from, checkpoint } => output.patch(*patch, from, checkpoint)?,
        Command::Replace { replace, checkpoint } => output.replace(*replace, checkpoint),
        Command::Erase { if_idle } => output.erase_command(if_idle)?,
        Command::Recover { restarted, failure } => output.recover(restarted, &failure),
        Command::Lose { runs, failure } => output.lose(&runs, &failure),
        Command::Note { draft, bound, title, begun } => output.note(draft, bound, title, begun),
        Command::Drain => output.drain(),
    }
    Ok(output.into_step())
}
