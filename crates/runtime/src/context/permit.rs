//! A run's permit to be active. The run releases it while it waits for an answer, so that waiting runs keep no other run from starting.

use std::sync::Mutex;

use tokio::sync::{Semaphore, SemaphorePermit};
use trilogue_domain::lock;

use super::SharedRun;
use crate::shares::{HeldShare, ShareHolder};

#[derive(Debug, Default)]
pub(super) struct RunPermit(Mutex<PermitState>);

#[derive(Debug, Default)]
struct PermitState {
    /// The share of the run's principal, while the run is at work.
    held: Option<HeldShare>,
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
        // Its process works anyway: a wait for a permit would only delay the log, and its questions.
        if self.is_started_by_agent() {
            return guard;
        }
        if let Some((share, permit)) = self.next_permit().await {
            permit.forget();
            lock(&self.permit.0).held = Some(share);
        }
        guard
    }

    /// First among the runs of the principal, so that no more of them than its share wait for a place among all runs.
    async fn next_permit(&self) -> Option<(HeldShare, SemaphorePermit<'_>)> {
        let share = self.services.running_shares.wait_as(self.share_holder()).await;
        // It is never closed.
        self.services.running.acquire().await.ok().map(|permit| (share, permit))
    }

    fn share_holder(&self) -> ShareHolder {
        (self.scope.tenant.clone(), self.principal.clone())
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
        if self.held.take().is_some() {
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
        if self.end() > 0 || self.shared.is_started_by_agent() {
            return;
        }
        let shared = self.shared;
        let permit = tokio::select! {
            biased;
            () = shared.wait_until_cancelled() => return,
            () = shared.wait_until_stopped() => return,
            permit = shared.next_permit() => permit,
        };
        let mut state = lock(&shared.permit.0);
        let needs_it = state.held.is_none() && !state.is_over && state.asking == 0;
        if let Some((share, permit)) = permit
            && needs_it
        {
            permit.forget();
            state.held = Some(share);
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
        if !self.is_counted || self.end() > 0 || self.shared.is_started_by_agent() {
            return;
        }
        let shared = self.shared;
        let mut state = lock(&shared.permit.0);
        if state.held.is_none()
            && !state.is_over
            && let Some(share) = shared.services.running_shares.take_as(shared.share_holder())
            && let Ok(permit) = shared.services.running.try_acquire()
        {
            permit.forget();
            state.held = Some(share);
        }
    }
}
