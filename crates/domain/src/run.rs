//! Runs: one execution of an agent, from input to outcome.

use std::fmt;
use std::sync::Arc;

use crate::content::Message;
use crate::error::Code;
use crate::id::{PrincipalId, RunId, ThreadId, TokenId};
use crate::json::Json;
use crate::limits;

/// Where a run is.
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
    /// It waits for its turn or its time.
    Queued,
    /// The agent works.
    Running,
    /// It waits for the answer to an interrupt.
    Interrupted,
    /// It was asked to stop and has not yet.
    Cancelling,
    /// The agent finished.
    Completed,
    /// The agent or the server failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Nobody answered in time.
    TimedOut,
}

/// What moves a run from one status to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transition {
    /// The run takes its turn for the first time.
    Start,
    /// An interrupt was raised.
    Raise,
    /// Its last pending interrupt was answered.
    Resume,
    /// Somebody asked it to stop.
    Cancel,
    /// It ended with the outcome of this status.
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
        /// Why, where there is more to say than that somebody asked.
        reason: Option<Code>,
    },
    /// Nobody answered in time.
    TimedOut {
        /// Why, as a stable code.
        reason: Code,
    },
}

/// The run that called another agent, as its child run names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentRun {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
}

/// Who asked for a run: its audit entry, which is part of the run's first append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunAudit {
    /// In whose name it runs.
    pub principal: PrincipalId,
    /// The thread on which it runs.
    pub thread: ThreadId,
    /// The token that was shown; `None` where none is needed.
    pub token: Option<TokenId>,
    /// What sent the request.
    pub source: RequestSource,
    /// Whether its creator could answer its questions. Only then its settings may keep the agent from asking.
    pub can_answer: bool,
}

/// What sent the request for a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RequestSource {
    /// A client over the network.
    #[default]
    Network,
    /// A program of the server's own user on the same machine, which is not one of an agent.
    LocalSocket,
    /// An agent: another run's, or a program of one that the server hosts.
    Agent,
}

/// Where a run's request came from beyond this server. Servers that the run leads to are told so.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// The trace that the request belongs to: a valid W3C `traceparent` of version 00.
    pub trace: Option<String>,
    /// One name for each agent behind another server that passed the request on, the first one first. A server makes up its own names and knows only those.
    pub hops: Vec<String>,
}

/// What a run is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Messages, oldest first.
    Messages(Vec<Message>),
    /// One JSON value.
    Value(Json),
}

/// Why a run failed, as its caller is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// A stable code: one of ours, or the agent's own.
    pub code: String,
    /// What happened, at most [`limits::MAX_REASON_BYTES`] bytes.
    pub message: String,
    /// Whether the same request may succeed later.
    pub transient: bool,
    /// The agent's own details.
    pub data: Option<crate::Json>,
}

/// What a new run does when its thread is busy. (Agent Connect Protocol, `multitask_strategy`.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Strategy {
    /// Refuse the new run while another is queued, scheduled or at work.
    Reject,
    /// Cancel every run that is queued, scheduled or at work, and keep what they did.
    Interrupt,
    /// Cancel every run that is queued, scheduled or at work, and remove what they did.
    Rollback,
    /// Wait for the turn.
    #[default]
    Enqueue,
}

/// Where and of what a run's client wants to be called back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callback {
    /// Where: an absolute http or https address, at most [`limits::MAX_CALLBACK_URL_BYTES`] bytes.
    pub url: Arc<str>,
    /// When the run ends or waits.
    pub status: bool,
    /// When its output has grown: the newest state of it.
    pub values: bool,
    /// For each of the agent's own updates, in order.
    pub updates: bool,
}

/// A transition that the state machine does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a run that is {} cannot {transition}", status.as_str())]
pub struct IllegalTransition {
    /// Where the run is.
    pub status: RunStatus,
    /// What was tried.
    pub transition: Transition,
}

// === impl Transition ===

/// A verb phrase: completes "the run cannot …".
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
    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::LocalSocket => "local_socket",
            Self::Agent => "agent",
        }
    }

    /// The source with this name.
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

    /// The status's name.
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

    /// The status with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether nothing more happens to the run.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut)
    }

    /// The status after a transition.
    ///
    /// # Errors
    /// [`IllegalTransition`] where the diagram has no such arrow.
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
    /// The status of a run that ended so.
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
    /// A failure with a code of ours; whether it is transient follows from the code.
    #[must_use]
    pub fn of(code: Code, message: &str) -> Self {
        Self {
            code: code.as_str().to_owned(),
            message: cut(message),
            transient: code.is_transient(),
            data: None,
        }
    }

    /// The same failure with its message cut to [`limits::MAX_REASON_BYTES`].
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

    /// The strategy's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Interrupt => "interrupt",
            Self::Rollback => "rollback",
            Self::Enqueue => "enqueue",
        }
    }

    /// The strategy with this name.
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
