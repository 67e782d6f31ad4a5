//! Checks a whole batch before anything changes.

use trilogue_domain::error::Result;
use trilogue_domain::{RunId, RunKey, ThreadKey, limits};

use super::state::State;
use crate::core::already_exists;
use crate::core::batch::Head;
use crate::port::{Batch, Change};
use crate::rows::{IdempotencyRow, InterruptRow, RunRow, ThreadRow};

/// The ids that a batch has taken and released so far.
#[derive(Debug, Default)]
struct BatchIds<'a> {
    runs: Vec<&'a RunRow>,
    removed: Vec<RunKey>,
    checkpoints: Vec<&'a crate::rows::CheckpointRow>,
    interrupts: Vec<&'a InterruptRow>,
    idempotency: Vec<&'a IdempotencyRow>,
}

// === impl State ===

impl State {
    pub(super) fn check(&self, batch: &Batch) -> Result<()> {
        batch.check_form()?;
        if !batch.removes_thread() {
            self.quarantine.check(batch.thread)?;
        }
        let held = self.threads.get(&batch.thread);
        batch.check_head(held.map(|held| Head { epoch: held.row.epoch, last: held.last }))?;
        let tenant = held.map(|held| &held.row).map(AsRef::as_ref).or(batch.new_thread());
        for blob in &batch.blobs {
            if tenant.is_none_or(|row| !self.blobs.has(&row.tenant, blob)) {
                return Err(batch.blob_missing(blob));
            }
        }
        let mut claims = BatchIds::default();
        for change in &batch.changes {
            self.check_change(batch.thread, change, &mut claims)?;
        }
        Ok(())
    }

    fn check_change<'a>(
        &self,
        thread: ThreadKey,
        change: &'a Change,
        claims: &mut BatchIds<'a>,
    ) -> Result<()> {
        match change {
            Change::Thread(row) => self.check_thread_id(row)?,
            Change::Run(row) => {
                self.check_run_id(row, claims)?;
                claims.runs.push(row);
            }
            Change::Checkpoint(row) => {
                let held =
                    self.threads.get(&row.thread).and_then(|one| one.checkpoints.get(&row.id));
                let twice =
                    claims.checkpoints.iter().any(|one| one.id == row.id && one.key != row.key);
                if twice || held.is_some_and(|key| *key != row.key) {
                    return Err(already_exists("checkpoint", row.id.as_str()));
                }
                claims.checkpoints.push(row);
            }
            Change::Interrupt(row) => {
                self.check_interrupt_id(row, claims)?;
                claims.interrupts.push(row);
            }
            Change::Idempotency(row) => {
                self.check_idempotency(row, claims)?;
                claims.idempotency.push(row);
            }
            Change::RemoveRun(key) => {
                // A run of another thread is left alone.
                if self.runs.get(key).is_none_or(|run| run.row.thread == thread) {
                    self.remove_claims(*key, claims);
                }
            }
            Change::Message(_)
            | Change::Alias(..)
            | Change::Binding(_)
            | Change::Offer(_)
            | Change::Withdraw(..)
            | Change::RemoveThread => {}
        }
        Ok(())
    }

    /// Releases the ids of a run, including those taken in this batch.
    fn remove_claims(&self, key: RunKey, claims: &mut BatchIds<'_>) {
        let taken = claims.runs.iter().find(|row| row.key == key).map(|row| &row.id);
        if let Some(id) = taken.or_else(|| self.runs.get(&key).map(|run| &run.row.id)) {
            claims.idempotency.retain(|row| row.run != *id);
        }
        claims.runs.retain(|row| row.key != key);
        claims.interrupts.retain(|row| row.run != key);
        claims.removed.push(key);
    }

    fn check_thread_id(&self, row: &ThreadRow) -> Result<()> {
        let held = self.tenants.get(&row.tenant).and_then(|tenant| tenant.threads.get(&row.id));
        if held.is_some_and(|key| *key != row.key) {
            return Err(already_exists("thread", row.id.as_str()));
        }
        Ok(())
    }

    fn check_run_id(&self, row: &RunRow, claims: &BatchIds<'_>) -> Result<()> {
        let held = self.tenants.get(&row.tenant).and_then(|tenant| tenant.runs.get(&row.id));
        let twice = claims.runs.iter().any(|one| one.id == row.id && one.key != row.key);
        if twice || held.is_some_and(|key| *key != row.key && !claims.removed.contains(key)) {
            return Err(already_exists("run", row.id.as_str()));
        }
        Ok(())
    }

    fn check_interrupt_id(&self, row: &InterruptRow, claims: &BatchIds<'_>) -> Result<()> {
        let id = &row.interrupt.id;
        let held = self
            .tenants
            .get(&row.tenant)
            .and_then(|tenant| tenant.interrupts.get(id))
            .and_then(|key| self.interrupts.get(key));
        let is_other = |one: &InterruptRow| one.interrupt.id == *id && one.run != row.run;
        let held = held.filter(|one| !claims.removed.contains(&one.run));
        if held.is_some_and(|one| is_other(one))
            || claims.interrupts.iter().any(|one| is_other(one))
        {
            return Err(already_exists("interrupt", id.as_str()));
        }
        Ok(())
    }

    fn check_idempotency(&self, row: &IdempotencyRow, claims: &BatchIds<'_>) -> Result<()> {
        let kept_since = row.created_at.before(limits::IDEMPOTENCY_KEPT);
        let is_other = |one: &IdempotencyRow| {
            one.key == row.key && one.run != row.run && one.created_at >= kept_since
        };
        let is_removed = |run: &RunId| {
            let key = self.tenants.get(&row.key.tenant).and_then(|tenant| tenant.runs.get(run));
            key.is_some_and(|key| claims.removed.contains(key))
        };
        let held = self.idempotency.get(&row.key).filter(|one| !is_removed(&one.run));
        if held.is_some_and(|one| is_other(one))
            || claims.idempotency.iter().any(|one| is_other(one))
        {
            return Err(already_exists("idempotency key", &row.key.text));
        }
        Ok(())
    }
}
