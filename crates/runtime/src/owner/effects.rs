//! Carries out the effects of a durable append: tasks start, get answers and end.

use std::sync::Arc;

use tokio::time::Instant;
use trilogue_domain::{Code, Failure, RunKey};

use super::{Envelope, Owner, Task, Watched};
use crate::audit::{AuditActor, AuditEvent, audit};
use crate::context::{SharedRun, SharedRunParts};
use crate::execute::{StartMode, execute};
use crate::step::{Effect, StartTurn};

// === impl Owner ===

impl Owner {
    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start { run, turn } => self.start(run, turn, false),
                Effect::Deliver { run, interrupt, resolution } => {
                    let base = self.state.as_ref().and_then(|state| state.runs.get(&run)?.row.base);
                    if let Some(task) = self.tasks.get(&run) {
                        // First, because the answer makes the agent continue, and it reads from this base.
                        task.shared.rebase(base);
                        task.shared.deliver(&interrupt, resolution);
                    }
                }
                Effect::Stop { run } => {
                    if let Some(task) = self.tasks.get(&run) {
                        task.shared.cancel();
                    }
                }
                Effect::Abort { run } => self.end_task(run),
                Effect::Settled(row) => self.tell_waiters(row.key, Ok(*row)),
                Effect::Watch { interrupt, patience } => {
                    self.watched.push(Watched { interrupt, began: Instant::now(), patience });
                }
                Effect::Abandon { agent, saved } => {
                    if let Ok(agent) = self.agents.backend(&agent).cloned() {
                        // In a task, so that the thread's requests do not wait for another server.
                        tokio::spawn(async move { agent.abandon(saved).await });
                    }
                }
                Effect::AuditRollBack { removed, of, by } => {
                    let token = by.audit.as_ref().and_then(|audit| audit.token.as_ref());
                    let actor = AuditActor { tenant: &by.tenant, principal: &by.principal, token };
                    let detail = format!("of {of}; rolled back for the run {}", by.id);
                    audit(AuditEvent::RunRemoved, Some(actor), removed.as_str(), &detail);
                }
                Effect::Gone => (self.gone, self.is_erased) = (true, true),
            }
        }
    }

    pub(super) fn start(&mut self, run: RunKey, turn: StartTurn, deferred: bool) {
        if let Some((shared, work)) = self.prepare(run, turn, deferred) {
            // The task may run before it is listed: its requests wait in the inbox until this returns.
            let handle = Some(tokio::spawn(work).abort_handle());
            self.tasks.insert(run, Task { shared, handle });
        }
    }

    /// Creates the state that a run's task shares with this owner, and the task's future.
    pub(super) fn prepare(
        &self,
        run: RunKey,
        turn: StartTurn,
        deferred: bool,
    ) -> Option<(Arc<SharedRun>, impl Future<Output = ()> + Send + 'static + use<>)> {
        let state = self.state.as_ref()?;
        let entry = state.runs.get(&run)?;
        let (row, is_delayed) = (&entry.row, turn.is_delayed(entry));
        let Ok(backend) = self.agents.backend(&row.agent).cloned() else {
            let failure = Failure::of(Code::AgentNotFound, "the agent is not configured any more");
            let finish = Envelope::Finish { run, ending: Box::new(Err(failure)) };
            let inbox = self.inbox.clone();
            // In a task: only the owner empties its inbox, so it must not wait for room in it. The send fails if the owner has left.
            tokio::spawn(async move { drop(inbox.send(finish).await) });
            return None;
        };
        let shared = SharedRun::new(SharedRunParts {
            row,
            store: Arc::clone(&self.services.store),
            clock: Arc::clone(&self.services.clock),
            owner: self.inbox.clone(),
            patience: self.services.options.interrupt_deadline,
            external: Arc::clone(&self.services.external),
            max_part_metadata: self.services.options.max_part_metadata_bytes,
            services: Arc::clone(&self.services),
            is_native: backend.is_native(),
            draft: state.new_draft(),
        });
        // `end_task` counts down, not the task: an aborted task must be counted down too.
        self.services.task_started(shared.is_started_by_agent());
        let (services, agents) = (Arc::clone(&self.services), Arc::clone(&self.agents));
        let mode = StartMode { is_deferred: deferred, is_delayed };
        let work = execute(services, agents, backend, turn, Arc::clone(&shared), mode);
        Some((shared, work))
    }

    pub(super) fn end_task(&mut self, run: RunKey) {
        if let Some(task) = self.tasks.remove(&run) {
            // Before the abort, which takes effect later: until then, the flag drops what the task emits.
            task.shared.stop();
            if let Some(handle) = task.handle {
                handle.abort();
            }
            self.services.task_done(task.shared.is_started_by_agent());
        }
    }
}
