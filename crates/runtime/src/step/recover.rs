//! Recovery after a crash: no action is silently repeated, and no run stays active without a task.

use trilogue_domain::{Code, Failure, Outcome, RunKey, RunStatus, Survives};

use super::output::StepOutput;
use crate::state::RunState;

/// Whether a run without a task ends when its thread is loaded.
pub(crate) fn is_over(run: &RunState) -> bool {
    matches!(fate_of(run, true), Fate::Lost | Fate::Cancelled(_))
}

/// The decision about an open run after a restart.
enum Fate {
    /// It joins the queue.
    Queue,
    /// It is due: the worker that checks its principal's rights submits it.
    FallDue,
    /// Its agent is active elsewhere, and finds it again.
    Rejoin,
    /// It keeps waiting: for an answer, or for its time.
    Keep,
    /// The last actions of its agent are unknown.
    Lost,
    /// It was being cancelled, for this reason.
    Cancelled(Option<Code>),
}

// === impl StepOutput ===

impl StepOutput<'_> {
    /// Decides about every open run, in the order in which they were created.
    pub(super) fn recover(&mut self, restarted: bool, failure: &Failure) {
        let now = self.now;
        let fates: Vec<(RunKey, Fate)> = self
            .state
            .runs
            .iter()
            .map(|(key, run)| {
                let fate = fate_of(run, run.is_due(now));
                (*key, fate)
            })
            .collect();
        // No run can take the turn while the queue is incomplete.
        let mut queue = Vec::new();
        for (run, fate) in fates {
            match fate {
                Fate::Queue | Fate::Rejoin => queue.push(run),
                Fate::FallDue => self.schedule(run),
                Fate::Keep if restarted => self.keep(run),
                Fate::Keep => {}
                Fate::Lost => {
                    self.withdraw_pending(run, Code::AgentLost);
                    self.end_run(run, Outcome::Failed(failure.clone()));
                }
                Fate::Cancelled(reason) => {
                    self.withdraw_pending(run, Code::AgentLost);
                    self.end_run(run, Outcome::Cancelled { reason });
                }
            }
        }
        self.state.queue.extend(queue);
        self.give_turn();
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
pub(crate) fn lost() -> Failure {
    Failure::of(
        Code::AgentLost,
        "the server stopped while the agent was at work; what it did last is not known",
    )
}

fn fate_of(run: &RunState, due: bool) -> Fate {
    match run.row.status {
        _ if run.is_orphan => Fate::Cancelled(run.row.cancel_reason.or(Some(Code::ParentEnded))),
        RunStatus::Queued if due && run.row.not_before.is_some() => Fate::FallDue,
        RunStatus::Queued if due => Fate::Queue,
        RunStatus::Queued => Fate::Keep,
        RunStatus::Cancelling => Fate::Cancelled(run.row.cancel_reason),
        RunStatus::Interrupted => {
            let survives = |survives| survives == Survives::Restart;
            match &run.pending[..] {
                // A task that waited in the old process cannot get the answer, but a suspended run can.
                [] if run.row.saved.is_some() && run.row.pending_answer.is_some() => Fate::Queue,
                [] => Fate::Lost,
                pending if pending.iter().all(|row| survives(row.interrupt.survives)) => Fate::Keep,
                _ => Fate::Lost,
            }
        }
        RunStatus::Running if run.row.saved.is_some() => Fate::Rejoin,
        RunStatus::Running
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::Cancelled
        | RunStatus::TimedOut => Fate::Lost,
    }
}
