//! Runs: one execution of an agent, from input to outcome.

use std::fmt;
use std::sync::Arc;

use crate::content::Message;
use crate::error::Code;
use crate::id::{PrincipalId, RunId, ThreadId, TokenId};
use crate::json::Json;
use crate::limits;

/// The status of a run.
///
/// ```text
///            ┌────────── cancel ──────────┐
///            │                            ▼
/// queued ─start─▶ running ─cancel─▶ cancelling ─ended─▶ cancelled
///   │              │  ▲  │                  ▲
///   │           raise │  └─ended─▶ completed | failed | cancelled | timed out
///   │              ▼  │ resume              │
///   │          interrupted ──── cancel ─────┘
///   │              └──ended─▶ failed | cancelled | timed out
///   └──ended─▶ failed | cancelled
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RunStatus {
    /// The run waits for its turn or its time.
    Queued,
    /// The agent is running.
    Running,
    /// The run waits for the answer to an interrupt.
    Interrupted,
    /// Cancellation was requested, and the run has not ended yet.
    Cancelling,
    /// The agent finished.
    Completed,
    /// The agent or the server failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// A question got no answer in time.
    TimedOut,
}

/// What moves a run from one status to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// The run starts for the first time.
    Start,
    /// An interrupt was raised.
    Raise,
    /// Its last pending interrupt was answered.
    Resume,
    /// Cancellation was requested.
    Cancel,
    /// The run ended with the outcome of this status.
    End(RunStatus),
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The agent finished.
    Completed,
    /// The agent or the server failed.
    Failed(Failure),
    /// It was cancelled.
    Cancelled {
        /// The reason, if it is more specific than a request to cancel.
        reason: Option<Code>,
    },
    /// A question got no answer in time.
    TimedOut {
        /// The reason, as a stable code.
        reason: Code,
    },
}

/// The run that called another agent, as the child run records it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentRun {
    /// The id of the run.
    pub run: RunId,
    /// The id of its thread.
    pub thread: ThreadId,
}

/// Who started a run, if no request did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StartedBy {
    /// The agent, by working while no prompt was open.
    Agent,
}

/// Who requested a run: its audit entry, which is part of the run's first append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunAudit {
    /// The principal for which the run acts.
    pub principal: PrincipalId,
    /// The thread of the run.
    pub thread: ThreadId,
    /// The token of the request; `None` if no token is needed.
    pub token: Option<TokenId>,
    /// The sender of the request.
    pub source: RequestSource,
    /// Whether the run's creator could answer its questions. Only then may its settings keep the agent from asking.
    pub can_answer: bool,
}

/// The sender of a request for a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RequestSource {
    /// A client over the network.
    #[default]
    Network,
    /// A program of the server's own user on the same machine that does not belong to an agent.
    LocalSocket,
    /// An agent: the agent of another run, or a program of an agent that the server hosts.
    Agent,
}

/// The origin of a run's request beyond this server. Servers that the run calls receive it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// The trace that the request belongs to: a valid W3C `traceparent` of version 00.
    pub trace: Option<String>,
    /// One name for each agent behind another server that passed the request on, in order. Each server makes its own names and recognizes only those.
    pub hops: Vec<String>,
}

/// The input of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Messages, oldest first.
    Messages(Vec<Message>),
    /// One JSON value.
    Value(Json),
}

/// Why a run failed. Its caller receives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// A stable code: one of the server's, or the agent's own.
    pub code: String,
    /// The message, at most [`limits::MAX_REASON_BYTES`] bytes.
    pub message: String,
    /// Whether the same request may succeed later.
    pub transient: bool,
    /// The agent's own details.
    pub data: Option<crate::Json>,
}

/// What a new run does when its thread is busy. (Agent Connect Protocol, `multitask_strategy`.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Strategy {
    /// Refuse the new run while another is queued, scheduled or running.
    Reject,
    /// Cancel every queued, scheduled or running run, and keep the results.
    Interrupt,
    /// Cancel every queued, scheduled or running run, and remove the results.
    Rollback,
    /// Wait for the previous runs.
    #[default]
    Enqueue,
}

/// The callback that a run's client requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callback {
    /// The address: an absolute http or https URL, at most [`limits::MAX_CALLBACK_URL_BYTES`] bytes.
    pub url: Arc<str>,
    /// Whether to call when the run ends or waits.
    pub status: bool,
    /// Whether to call when the output has grown. Sends the newest output.
    pub values: bool,
    /// Whether to call for each of the agent's own updates, in order.
    pub updates: bool,
}

/// A transition that the state machine does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a run that is {} cannot {transition}", status.as_str())]
pub struct IllegalTransition {
    /// The status of the run.
    pub status: RunStatus,
    /// The attempted transition.
    pub transition: Transition,
}

// === impl Transition ===

/// A verb phrase that completes "the run cannot …".
impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Raise => f.write_str("ask a question"),
            Self::Resume => f.write_str("resume"),
            Self::Cancel => f.write_str("be cancelled"),
            Self::End(status) => write!(f, "end as {}", status.as_str()),
        }
    }
}

// === impl RequestSource ===

impl RequestSource {
    /// Returns the stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::LocalSocket => "local_socket",
            Self::Agent => "agent",
        }
    }

    /// Returns the source with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Network, Self::LocalSocket, Self::Agent].into_iter().find(|it| it.as_str() == text)
    }
}

// === impl RunStatus ===

impl RunStatus {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Interrupted,
        Self::Cancelling,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
    ];

    /// Returns the name of the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }

    /// Returns the status with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Returns `true` if the run has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut)
    }

    /// Returns the status after a transition.
    ///
    /// # Errors
    /// [`IllegalTransition`] if the diagram has no such arrow.
    pub fn after(self, transition: Transition) -> Result<Self, IllegalTransition> {
        use RunStatus::{
            Cancelled, Cancelling, Completed, Failed, Interrupted, Queued, Running, TimedOut,
        };
        let next = match (self, transition) {
            (Queued, Transition::Start) | (Interrupted, Transition::Resume) => Running,
            (Running | Interrupted, Transition::Raise) => Interrupted,
            (Queued | Running | Interrupted, Transition::Cancel) => Cancelling,
            (Running, Transition::End(end)) if end.is_terminal() => end,
            (Interrupted, Transition::End(end @ (Failed | Cancelled | TimedOut))) => end,
            (Queued, Transition::End(end @ (Failed | Cancelled))) => end,
            (Cancelling, Transition::End(end @ (Cancelled | Failed | Completed))) => {
                if end == Completed { Cancelled } else { end }
            }
            _ => return Err(IllegalTransition { status: self, transition }),
        };
        Ok(next)
    }
}

// === impl Outcome ===

impl Outcome {
    /// Returns the status of a run with this outcome.
    #[must_use]
    pub fn status(&self) -> RunStatus {
        match self {
            Self::Completed => RunStatus::Completed,
            Self::Failed(_) => RunStatus::Failed,
            Self::Cancelled { .. } => RunStatus::Cancelled,
            Self::TimedOut { .. } => RunStatus::TimedOut,
        }
    }
}

// === impl Failure ===

impl Failure {
    /// Returns a failure with one of the server's codes. The code decides whether it is transient.
    #[must_use]
    pub fn of(code: Code, message: &str) -> Self {
        Self {
            code: code.as_str().to_owned(),
            message: cut(message),
            transient: code.is_transient(),
            data: None,
        }
    }

    /// Cuts the message to [`limits::MAX_REASON_BYTES`].
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.message = cut(&self.message);
        self
    }
}

// === impl Strategy ===

impl Strategy {
    /// Every strategy.
    pub const ALL: [Self; 4] = [Self::Reject, Self::Interrupt, Self::Rollback, Self::Enqueue];

    /// Returns the name of the strategy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Interrupt => "interrupt",
            Self::Rollback => "rollback",
            Self::Enqueue => "enqueue",
        }
    }

    /// Returns the strategy with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }
}

fn cut(text: &str) -> String {
    let mut end = text.len().min(limits::MAX_REASON_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_statuses_have_no_way_out() {
        let transitions =
            [Transition::Start, Transition::Raise, Transition::Resume, Transition::Cancel]
                .into_iter()
                .chain(RunStatus::ALL.map(Transition::End));
        for transition in transitions {
            for status in RunStatus::ALL.into_iter().filter(|status| status.is_terminal()) {
                assert!(status.after(transition).is_err(), "{status:?} {transition:?}");
            }
        }
    }

    #[test]
    fn every_status_is_reached_and_every_open_one_can_end() {
        let mut reached = vec![RunStatus::Queued];
        let transitions: Vec<_> =
            [Transition::Start, Transition::Raise, Transition::Resume, Transition::Cancel]
                .into_iter()
                .chain(RunStatus::ALL.map(Transition::End))
                .collect();
        let mut at = 0;
        while let Some(status) = reached.get(at).copied() {
            for transition in &transitions {
                if let Ok(next) = status.after(*transition)
                    && !reached.contains(&next)
                {
                    reached.push(next);
                }
            }
            at += 1;
        }
        assert_eq!(reached.len(), RunStatus::ALL.len());
        for status in RunStatus::ALL.into_iter().filter(|status| !status.is_terminal()) {
            assert!(status.after(Transition::End(RunStatus::Failed)).is_ok(), "{status:?}");
        }
    }

    #[test]
    fn a_completion_that_meets_a_cancel_counts_as_cancelled() {
        let status = RunStatus::Cancelling.after(Transition::End(RunStatus::Completed));
        assert_eq!(status, Ok(RunStatus::Cancelled));
    }

    #[test]
    fn reasons_are_cut_at_a_character() {
        let long = "ä".repeat(limits::MAX_REASON_BYTES);
        let failure = Failure::of(Code::AgentFailed, &long);
        assert_eq!(failure.message.len(), limits::MAX_REASON_BYTES);
    }
}
