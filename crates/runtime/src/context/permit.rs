//! A run's permit to be active. The run releases it while it waits for an answer, so that waiting runs keep no other run from starting.

use std::sync::Mutex;

use tokio::sync::Semaphore;
use trilogue_domain::lock;

use super::SharedRun;

#[derive(Debug, Default)]
pub(super) struct RunPermit(Mutex<PermitState>);

#[derive(Debug, Default)]
struct PermitState {
    is_held: bool,
    /// How many questions wait for their answers.
    asking: usize,
    is_over: bool,
}

/// Releases the permit when the run's task ends in any way.
pub(crate) struct PermitGuard<'a>(&'a SharedRun);

/// Marks the run as waiting for an answer until it is resumed or dropped.
pub(super) struct AnswerWait<'a> {
    shared: &'a SharedRun,
    is_counted: bool,
}

// === impl SharedRun ===

impl SharedRun {
    /// Waits until fewer runs are active than the limit.
    pub(crate) async fn acquire_permit(&self) -> PermitGuard<'_> {
        // Before the wait, so that the run counts as over even if this future is dropped.
        let guard = PermitGuard(self);
        // The semaphore is never closed.
        if let Ok(permit) = self.services.running.acquire().await {
            permit.forget();
            lock(&self.permit.0).is_held = true;
        }
        guard
    }

    pub(super) fn wait_for_answer(&self) -> AnswerWait<'_> {
        let mut state = lock(&self.permit.0);
        state.asking += 1;
        state.release(&self.services.running);
        AnswerWait { shared: self, is_counted: true }
    }
}

// === impl PermitState ===

impl PermitState {
    fn release(&mut self, running: &Semaphore) {
        if std::mem::take(&mut self.is_held) {
            running.add_permits(1);
        }
    }
}

// === impl PermitGuard ===

impl Drop for PermitGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.permit.0);
        state.is_over = true;
        state.release(&self.0.services.running);
    }
}

// === impl AnswerWait ===

impl AnswerWait<'_> {
    /// Continues when the run has a permit again. A run that is asked to stop continues without one.
    pub(super) async fn resume(mut self) {
        if self.end() > 0 {
            return;
        }
        let shared = self.shared;
        let running = &shared.services.running;
        let permit = tokio::select! {
            biased;
            () = shared.cancelled() => return,
            () = shared.ended() => return,
            permit = running.acquire() => permit,
        };
        let mut state = lock(&shared.permit.0);
        let needs_it = !state.is_held && !state.is_over && state.asking == 0;
        if let Ok(permit) = permit
            && needs_it
        {
            permit.forget();
            state.is_held = true;
        }
    }

    /// Ends this wait. Returns how many other questions of the run still wait.
    fn end(&mut self) -> usize {
        let mut state = lock(&self.shared.permit.0);
        state.asking -= usize::from(std::mem::take(&mut self.is_counted));
        state.asking
    }
}

impl Drop for AnswerWait<'_> {
    /// The agent stopped waiting for the answer and is active again: take a permit if one is free.
    fn drop(&mut self) {
        if !self.is_counted || self.end() > 0 {
            return;
        }
        let shared = self.shared;
        let mut state = lock(&shared.permit.0);
        if !state.is_held
            && !state.is_over
            && let Ok(permit) = shared.services.running.try_acquire()
        {
            permit.forget();
            state.is_held = true;
        }
    }
}
