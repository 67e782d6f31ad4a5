use trilogue_domain as domain;
use trilogue_domain::Failure;
use trilogue_wire::native::{Outcome, ParentRun, RunError, RunStatus, StartedBy, Strategy};

use super::json;

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

pub fn parent(parent: &domain::ParentRun) -> ParentRun {
    ParentRun {
        run_id: parent.run.as_str().to_owned(),
        thread_id: parent.thread.as_str().to_owned(),
    }
}

pub fn started_by(starter: domain::StartedBy) -> StartedBy {
    match starter {
        domain::StartedBy::Agent => StartedBy::Agent,
    }
}

pub fn strategy(strategy: Strategy) -> domain::Strategy {
    match strategy {
        Strategy::Reject => domain::Strategy::Reject,
        Strategy::Interrupt => domain::Strategy::Interrupt,
        Strategy::Rollback => domain::Strategy::Rollback,
        Strategy::Enqueue => domain::Strategy::Enqueue,
    }
}
