//! Requests to a thread's owner, and waiters for a run.

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Failure, Interrupt, InterruptId, RunKey};
use trilogue_store::rows::RunRow;

use crate::step::{Command, Reply, Submit};
use crate::turn::Ending;

#[derive(Debug)]
pub(crate) enum Envelope {
    Submit {
        submit: Box<Submit>,
        deferred: bool,
        reply: oneshot::Sender<Result<RunRow>>,
        settled: oneshot::Sender<Result<RunRow>>,
    },
    /// A run's draft contains events.
    Progress { run: RunKey },
    /// A run needs its draft durable.
    Flush { run: RunKey, reply: Option<oneshot::Sender<Result<()>>> },
    /// A run's task raises an interrupt.
    Raise { run: RunKey, interrupt: Box<Interrupt>, reply: oneshot::Sender<Result<()>> },
    /// A run's task no longer waits for the answer.
    Withdraw { run: RunKey, interrupt: InterruptId },
    /// A run's task has finished.
    Finish { run: RunKey, ending: Box<Result<Ending, Failure>> },
    /// Any other change.
    Change { command: Box<Command>, reply: oneshot::Sender<Result<Reply>> },
    /// Reply when the run has ended or waits; with `None` if it is not open.
    Settled { run: RunKey, reply: oneshot::Sender<Result<Option<RunRow>>> },
    /// Complete a run whose agent has answered, and reply when all changes so far are durable.
    CompleteAnswered { reply: oneshot::Sender<Result<()>> },
    /// Reply when the run whose agent has answered has ended; with `None` if no run has one.
    SettleAnswered { reply: oneshot::Sender<Result<Option<RunRow>>> },
    /// Load the thread, so that its waiting work continues.
    Wake,
    /// Give up the thread as soon as it is idle. A later request replaces an earlier one.
    HandOver(HandOver),
    /// End the tasks that wait for an answer, and accept no further questions. The reply contains their runs.
    EndAsking { reply: oneshot::Sender<Vec<RunRow>> },
    /// End every task, keep what survives, and leave.
    Shutdown { reply: oneshot::Sender<Vec<RunRow>> },
}

/// The next owner of a thread that is given up.
#[derive(Debug)]
pub(crate) enum HandOver {
    /// The node of this name, while the sender still waits for the reply.
    To(String, oneshot::Sender<Result<()>>),
    /// The next node that requests it, while this node drains.
    ToAnybody,
}

/// A waiter until a run has ended or waits.
#[derive(Debug)]
pub(super) enum Waiter {
    Submitter(oneshot::Sender<Result<RunRow>>),
    Asker(oneshot::Sender<Result<Option<RunRow>>>),
}

// === impl Envelope ===

impl Envelope {
    /// Whether a run's task sent the request.
    pub(super) fn is_of_task(&self) -> bool {
        matches!(
            self,
            Self::Progress { .. }
                | Self::Flush { .. }
                | Self::Raise { .. }
                | Self::Withdraw { .. }
                | Self::Finish { .. }
        )
    }

    pub(super) fn is_submit(&self) -> bool {
        matches!(self, Self::Submit { .. })
    }

    /// Whether the request depends on the store, so that everything before it must be durable.
    pub(super) fn reads_store(&self) -> bool {
        let Self::Change { command, .. } = self else { return false };
        matches!(
            **command,
            Command::RemoveRun { .. } | Command::Answer { idempotency: Some(_), .. }
        )
    }

    /// Replies with the error.
    pub(super) fn refuse(self, error: &Error) {
        // A receiver is gone if its caller has stopped waiting.
        match self {
            Self::Submit { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Flush { reply: Some(reply), .. }
            | Self::Raise { reply, .. }
            | Self::CompleteAnswered { reply } => {
                drop(reply.send(Err(error.clone())));
            }
            Self::Change { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Settled { reply, .. } | Self::SettleAnswered { reply } => {
                drop(reply.send(Err(error.clone())));
            }
            Self::HandOver(HandOver::To(_, reply)) => drop(reply.send(Err(error.clone()))),
            Self::EndAsking { reply } | Self::Shutdown { reply } => drop(reply.send(Vec::new())),
            Self::Progress { .. }
            | Self::Flush { reply: None, .. }
            | Self::Withdraw { .. }
            | Self::Finish { .. }
            | Self::HandOver(HandOver::ToAnybody)
            | Self::Wake => {}
        }
    }
}

// === impl Waiter ===

impl Waiter {
    pub(super) fn notify(self, outcome: Result<RunRow>) {
        match self {
            // The receiver is gone if its caller has stopped waiting.
            Self::Submitter(reply) => drop(reply.send(outcome)),
            Self::Asker(reply) => drop(reply.send(outcome.map(Some))),
        }
    }
}

pub(crate) fn stopped_error() -> Error {
    Error::new(Code::ShuttingDown, "the server stopped before it could answer")
        .hint("send the request again when it is back")
}

pub(crate) fn unexpected() -> Error {
    Error::new(Code::Internal, "the thread's owner answered something else")
}
