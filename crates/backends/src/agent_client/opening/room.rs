//! Sessions in shared processes: which process a session gets, and which session makes room for it.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use trilogue_domain::error::{Code, Error};

use super::SessionOpener;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::process::{Process, ProcessLease, ProcessSpec};
use crate::agent_client::session::{Session, Thread, ThreadState};

type ProcessSlot = (ProcessLease, Arc<OwnedSemaphorePermit>);

// === impl SessionOpener ===

impl SessionOpener {
    /// A shared process with a slot for a session. `own` is the slot of the session that is replaced.
    ///
    /// If all slots are taken, these make space, in this order: the least recently used session that its agent can
    /// reopen; a new process; a session that its agent cannot reopen. Sessions in use stay.
    pub(super) async fn shared_process(
        &self,
        spec: &ProcessSpec,
        own: Option<Arc<OwnedSemaphorePermit>>,
    ) -> Result<ProcessSlot, AgentFailure> {
        // A caller that finds a slot must not wait for a process that is starting.
        if let Some(found) = self.find_slot(spec, own.as_ref()) {
            return Ok(found);
        }
        // One start at a time: a caller that waited here finds the process that the other one started.
        let _starting = self.pool.starting().lock().await;
        loop {
            if let Some(found) = self.find_slot(spec, own.as_ref()) {
                return Ok(found);
            }
            let mut full = self.pool.matching(spec);
            full.retain(|process| process.can_reopen());
            if self.close_oldest(&full).await {
                continue;
            }
            let full = self.pool.matching(spec);
            if !self.pool.has_room(&spec.launch) && self.close_oldest(&full).await {
                continue;
            }
            match self.pool.start(spec.clone(), None).await {
                Ok(lease) => {
                    // Other callers may already have taken all its slots.
                    if let Some(slot) = lease.process().session_slot() {
                        return Ok((lease, slot));
                    }
                }
                Err(AgentFailure::Local(error))
                    if error.code() == Code::Overloaded && !full.is_empty() =>
                {
                    return Err(self.no_slot(full.len(), spec).into());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn find_slot(
        &self,
        spec: &ProcessSpec,
        own: Option<&Arc<OwnedSemaphorePermit>>,
    ) -> Option<ProcessSlot> {
        let matching = self.pool.matching(spec);
        let mine = own.and_then(|own| {
            let process = matching.iter().find(|process| process.owns_slot(own))?;
            Some((process.lease()?, Arc::clone(own)))
        });
        mine.or_else(|| {
            matching.iter().find_map(|process| Some((process.lease()?, process.session_slot()?)))
        })
    }

    fn no_slot(&self, processes: usize, spec: &ProcessSpec) -> Error {
        let (agent, most) = (self.pool.agent(), spec.launch.max_sessions);
        let message = format!(
            "all {most} sessions in each of the {processes} shared processes of the agent '{agent}' are in use"
        );
        let hint = "wait until one is idle, or raise `max_sessions` or `max_processes`";
        Error::new(Code::Overloaded, message).hint(hint)
    }

    /// Closes the least recently used session in these processes, and one with open tool calls last. Returns `false` if all are in use.
    async fn close_oldest(&self, processes: &[Arc<Process>]) -> bool {
        let mut idle = Vec::new();
        for process in processes {
            for key in process.threads() {
                let Some(thread) = self.threads.get(key) else { continue };
                // A state that is locked is in use.
                let used = thread.state.try_lock().ok().and_then(|state| {
                    let session = idle_session(&state, process)?;
                    Some((session.inbox().has_open_calls(), session.last_used()))
                });
                idle.extend(used.map(|used| (used, key, thread, process)));
            }
        }
        idle.sort_by_key(|(used, ..)| *used);
        for (_, key, thread, process) in idle {
            if close_if_idle(&thread, process).await {
                process.remove_thread(key);
                return true;
            }
        }
        false
    }
}

/// The session of a thread in this process, if it is not in use.
fn idle_session<'a>(state: &'a ThreadState, process: &Arc<Process>) -> Option<&'a Arc<Session>> {
    let session = state.session.as_ref()?;
    let is_idle = Arc::ptr_eq(session.process(), process) && !session.has_leases_beyond(0);
    is_idle.then_some(session)
}

async fn close_if_idle(thread: &Thread, process: &Arc<Process>) -> bool {
    let Ok(mut state) = thread.state.try_lock() else { return false };
    if idle_session(&state, process).is_none() {
        return false;
    }
    let Some(session) = state.session.take() else { return false };
    tracing::debug!(session = session.remote(), "closing a session to make room for another");
    if session.inbox().has_open_calls() {
        session.inbox().log_stop("another session needs its place").await;
    }
    let _lease = process.lease();
    session.end_remote(false).await;
    session.close();
    session.close_workspace().await;
    true
}
