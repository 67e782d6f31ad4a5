//! Recovery after a crash: no action is silently repeated, and no run stays active without a task.

use trilogue_domain::event::MessageEvent;
use trilogue_domain::run::Transition;
use trilogue_domain::{
    Body, CheckpointId, CheckpointKey, Code, Failure, Outcome, Role, RunKey, RunStatus, Survives,
};

use super::output::StepOutput;
use crate::state::RunState;

/// Whether a run without a task ends when its thread is loaded.
pub(crate) fn is_over(run: &RunState) -> bool {
    matches!(recovery_decision(run, true), RecoveryDecision::Lost | RecoveryDecision::Cancelled(_))
}

/// The decision about an open run after a restart.
enum RecoveryDecision {
    /// It joins the queue.
    Queue,
    /// It is due: the worker that checks its principal's rights submits it.
    FallDue,
    /// Its agent is active elsewhere, and finds it again.
    Rejoin,
    /// As [`Self::Rejoin`]. The agent asks its open questions again.
    RejoinAsking,
    /// It keeps waiting: for an answer, or for its time.
    Keep,
    /// Its agent had answered.
    Answered,
    /// The last actions of its agent are unknown.
    Lost,
    /// It was being cancelled, for this reason.
    Cancelled(Option<Code>),
}

// === impl StepOutput ===

impl StepOutput<'_> {
    /// Decides about every open run, in the order in which they were created.
    pub(super) fn recover(
        &mut self,
        restarted: bool,
        failure: &Failure,
        mut checkpoint: Option<(CheckpointKey, CheckpointId)>,
    ) {
        let now = self.now;
        let fates: Vec<(RunKey, RecoveryDecision)> = self
            .state
            .runs
            .iter()
            .map(|(key, run)| {
                let fate = recovery_decision(run, run.is_due(now));
                (*key, fate)
            })
            .collect();
        // No run can take the turn while the queue is incomplete.
        let mut queue = Vec::new();
        for (run, fate) in fates {
            match fate {
                RecoveryDecision::Queue | RecoveryDecision::Rejoin => queue.push(run),
                RecoveryDecision::RejoinAsking => {
                    self.withdraw_pending(run, Code::AgentLost);
                    self.transit(run, Transition::Resume);
                    queue.push(run);
                }
                RecoveryDecision::FallDue => self.schedule(run),
                RecoveryDecision::Keep if restarted => self.keep(run),
                RecoveryDecision::Keep => {}
                // At most one run has the turn, and so an answer.
                RecoveryDecision::Answered => self.complete(run, checkpoint.take()),
                RecoveryDecision::Lost => {
                    self.complete_open_messages(run);
                    self.withdraw_pending(run, Code::AgentLost);
                    self.end_run(run, Outcome::Failed(failure.clone()));
                }
                RecoveryDecision::Cancelled(reason) => {
                    self.complete_open_messages(run);
                    self.withdraw_pending(run, Code::AgentLost);
                    self.end_run(run, Outcome::Cancelled { reason });
                }
            }
        }
        self.state.queue.extend(queue);
        self.give_turn();
    }

    /// Completes the messages of a lost run that its agent had started: the history has them already.
    fn complete_open_messages(&mut self, run: RunKey) {
        let Some(state) = self.run(run).filter(|state| state.row.started_by.is_some()) else {
            return;
        };
        // No event completes a thought, whose role has no name.
        let open = state.open.iter().filter(|row| matches!(row.role, Role::NamedAgent(_)));
        let open: Vec<_> = open.map(|row| row.id.clone()).collect();
        for message in open {
            self.log(Some(run), &Body::Message(MessageEvent::Completed { message }));
        }
    }

    /// Stops runs from taking the turn.
    pub(super) fn drain(&mut self) {
        self.state.draining = true;
    }

    fn keep(&mut self, run: RunKey) {
        let Some(state) = self.run(run) else { return };
        if state.row.ever_resolved || state.row.has_turn {
            // What was shown before the restart is unknown.
            state.row.ever_resolved = false;
            state.row.has_turn = false;
            self.save_run(run);
        }
    }
}

/// Returns the failure of a run whose task ended with the server.
#[must_use]
pub fn lost_failure() -> Failure {
    Failure::of(
        Code::AgentLost,
        "the server stopped while the agent was at work; what it did last is not known",
    )
}

fn recovery_decision(run: &RunState, due: bool) -> RecoveryDecision {
    match run.row.status {
        _ if run.is_orphan => {
            RecoveryDecision::Cancelled(run.row.cancel_reason.or(Some(Code::ParentEnded)))
        }
        RunStatus::Queued if due && run.row.not_before.is_some() => RecoveryDecision::FallDue,
        RunStatus::Queued if due => RecoveryDecision::Queue,
        RunStatus::Queued => RecoveryDecision::Keep,
        RunStatus::Cancelling => RecoveryDecision::Cancelled(run.row.cancel_reason),
        RunStatus::Interrupted => {
            let survives = |survives| survives == Survives::Restart;
            match &run.pending[..] {
                // A task that waited in the old process cannot get the answer, but a suspended run can.
                [] if run.row.saved.is_some() && run.row.pending_answer.is_some() => {
                    RecoveryDecision::Queue
                }
                [] => RecoveryDecision::Lost,
                pending if pending.iter().all(|row| survives(row.interrupt.survives)) => {
                    RecoveryDecision::Keep
                }
                // A suspended run has questions that survive. This one's agent asks while it is at work elsewhere.
                _ if run.row.saved.is_some() => RecoveryDecision::RejoinAsking,
                _ => RecoveryDecision::Lost,
            }
        }
        RunStatus::Running if run.is_answered => RecoveryDecision::Answered,
        RunStatus::Running if run.row.saved.is_some() => RecoveryDecision::Rejoin,
        RunStatus::Running
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Cancelled
        | RunStatus::TimedOut => RecoveryDecision::Lost,
    }
}
