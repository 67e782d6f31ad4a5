//! Runs, both ways.

use trilogue_domain as domain;
use trilogue_domain::{AgentName, Failure, Json, RunId, ThreadId, Timestamp};
use trilogue_wire::native::{Outcome, Run, RunError, RunStatus, Strategy};

use super::json;

/// What the face shows of a stored run.
#[derive(Clone, Copy, Debug)]
pub struct RunFacts<'a> {
    /// Its id.
    pub id: &'a RunId,
    /// The thread it runs on.
    pub thread: &'a ThreadId,
    /// The agent.
    pub agent: &'a AgentName,
    /// Where it is.
    pub status: domain::RunStatus,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its agent was first started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Not before this time.
    pub not_before: Option<Timestamp>,
    /// How it ended.
    pub outcome: Option<&'a domain::Outcome>,
    /// Its metadata: a JSON object.
    pub metadata: &'a Json,
    /// The configuration it was given.
    pub config: Option<&'a Json>,
}

/// A run without its output, result and interrupts.
#[must_use]
pub fn run(run: &RunFacts<'_>) -> Run {
    Run {
        id: run.id.as_str().to_owned(),
        thread_id: run.thread.as_str().to_owned(),
        agent: run.agent.as_str().to_owned(),
        status: status(run.status),
        created_at: run.created_at.to_string(),
        started_at: run.started_at.map(|at| at.to_string()),
        ended_at: run.ended_at.map(|at| at.to_string()),
        not_before: run.not_before.map(|at| at.to_string()),
        outcome: run.outcome.map(outcome),
        metadata: json(run.metadata),
        config: run.config.map(json),
        output: None,
        result: None,
        interrupts: None,
    }
}

/// A status.
#[must_use]
pub fn status(status: domain::RunStatus) -> RunStatus {
    match status {
        domain::RunStatus::Queued => RunStatus::Queued,
        domain::RunStatus::Running => RunStatus::Running,
        domain::RunStatus::Interrupted => RunStatus::Interrupted,
        domain::RunStatus::Cancelling => RunStatus::Cancelling,
        domain::RunStatus::Completed => RunStatus::Completed,
        domain::RunStatus::Failed => RunStatus::Failed,
        domain::RunStatus::Cancelled => RunStatus::Cancelled,
        domain::RunStatus::TimedOut => RunStatus::TimedOut,
    }
}

/// How a run ended.
#[must_use]
pub fn outcome(outcome: &domain::Outcome) -> Outcome {
    let plain = |status| Outcome { status, reason: None, error: None };
    match outcome {
        domain::Outcome::Completed => plain(RunStatus::Completed),
        domain::Outcome::Failed(failure) => {
            Outcome { error: Some(error(failure)), ..plain(RunStatus::Failed) }
        }
        domain::Outcome::Cancelled { reason } => Outcome {
            reason: reason.map(|code| code.as_str().to_owned()),
            ..plain(RunStatus::Cancelled)
        },
        domain::Outcome::TimedOut { reason } => {
            Outcome { reason: Some(reason.as_str().to_owned()), ..plain(RunStatus::TimedOut) }
        }
    }
}

fn error(failure: &Failure) -> RunError {
    RunError {
        code: failure.code.clone(),
        message: failure.message.clone(),
        transient: failure.transient,
        data: failure.data.as_ref().map(json),
    }
}

/// What a client wants of a busy thread.
#[must_use]
pub fn strategy(strategy: Strategy) -> domain::Strategy {
    match strategy {
        Strategy::Reject => domain::Strategy::Reject,
        Strategy::Interrupt => domain::Strategy::Interrupt,
        Strategy::Rollback => domain::Strategy::Rollback,
        Strategy::Enqueue => domain::Strategy::Enqueue,
    }
}
