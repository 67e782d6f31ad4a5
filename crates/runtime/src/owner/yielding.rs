//! Completes a run that gives its turn to the next one at once: one whose agent has answered, or one that its agent started.

use trilogue_domain::{CheckpointId, CheckpointKey, RunKey, RunStatus, Scope};

use super::Owner;
use crate::step::{AgentRunOpening, Command, Submit};
use crate::turn::Ending;

// === impl Owner ===

impl Owner {
    /// Completes the run with the turn if it gives way to this one. Both changes are in one append.
    pub(super) async fn make_way_for(&mut self, submit: &Submit) {
        let now = self.services.clock.now();
        if submit.opening.is_some() || submit.row.not_before.is_some_and(|at| at > now) {
            return;
        }
        let holder = self.state.as_ref().and_then(|state| state.turn);
        if let Some(run) = holder.filter(|run| self.gives_way(*run)) {
            self.complete_now(run).await;
        }
    }

    /// Completes the run with the turn if its agent has answered: its end only waits for late output.
    pub(super) async fn complete_answered(&mut self) {
        if let Some(run) = self.answered_run() {
            self.complete_now(run).await;
        }
    }

    /// The run with the turn, if its agent has answered.
    pub(super) fn answered_run(&self) -> Option<RunKey> {
        let holder = self.state.as_ref().and_then(|state| state.turn);
        holder.filter(|run| self.is_answered(*run))
    }

    /// Adds to a run that its agent starts what the store has for it.
    pub(super) async fn prepare_opening(&mut self, submit: &mut Submit) {
        let Some(state) = &self.state else { return };
        // Read by the owner, because the run before moves the binding at its end.
        let scope = Scope { tenant: state.thread.tenant.clone(), owner: None };
        let store = &self.services.store;
        let binding = store.binding(&scope, &state.thread.id, &submit.row.agent).await;
        let binding = binding.unwrap_or_else(|error| {
            tracing::debug!(%error, "the binding of a run that its agent starts was not read");
            None
        });
        let checkpoint = self.services.new_checkpoint();
        submit.opening = Some(Box::new(AgentRunOpening { checkpoint, binding }));
    }

    /// The checkpoint for a run whose agent had answered before a restart.
    pub(super) fn checkpoint_of_answered(&self) -> Option<(CheckpointKey, CheckpointId)> {
        let state = self.state.as_ref().filter(|state| !state.thread.ephemeral)?;
        let has_any = state.runs.values().any(|run| run.is_answered);
        has_any.then(|| self.services.new_checkpoint())
    }

    fn gives_way(&self, run: RunKey) -> bool {
        let task = self.tasks.get(&run);
        self.is_answered(run) || task.is_some_and(|task| task.shared.is_started_by_agent())
    }

    fn is_answered(&self, run: RunKey) -> bool {
        let run_state = self.state.as_ref().and_then(|state| state.runs.get(&run));
        let status = run_state.map(|run| run.row.status);
        matches!(status, Some(RunStatus::Running | RunStatus::Interrupted))
            && self.tasks.get(&run).is_some_and(|task| task.shared.is_answered())
    }

    async fn complete_now(&mut self, run: RunKey) {
        let Some(task) = self.tasks.get(&run) else { return };
        // First: what the agent sends after this belongs to the next run.
        task.shared.close();
        self.progress(run);
        self.commit_if_full().await;
        self.end_task(run);
        let keeps_path = self.state.as_ref().is_some_and(|state| !state.thread.ephemeral);
        let checkpoint = keeps_path.then(|| self.services.new_checkpoint());
        // Fails only if the run is not open any more.
        drop(self.step(Command::Finish { run, ending: Ok(Ending::Completed), checkpoint }));
    }
}
