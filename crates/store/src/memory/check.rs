//! Whether a batch fits: everything is checked before anything changes.

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{RunId, RunKey, TenantId, ThreadKey, limits};

use super::state::State;
use crate::port::{Batch, Change};
use crate::rows::{IdempotencyRow, InterruptRow, RunRow, ThreadRow};

/// The ids that a batch has taken and given up so far.
#[derive(Debug, Default)]
struct Claims<'a> {
    runs: Vec<&'a RunRow>,
    removed: Vec<RunKey>,
    checkpoints: Vec<&'a crate::rows::CheckpointRow>,
    interrupts: Vec<&'a InterruptRow>,
    idempotency: Vec<&'a IdempotencyRow>,
}

// === impl State ===

impl State {
    /// Passes when the batch can be applied whole.
    pub(super) fn check(&self, batch: &Batch) -> Result<()> {
        check_frames(batch)?;
        // What is damaged can still be erased.
        if !batch.changes.iter().any(|change| matches!(change, Change::RemoveThread)) {
            self.check_quarantine(batch.thread)?;
        }
        let tenant = self.check_owner(batch)?;
        for blob in &batch.blobs {
            if !self.blobs.has(&tenant, blob) {
                return Err(misfit(batch.thread, "a blob that it names is not stored"));
            }
        }
        let mut claims = Claims::default();
        for change in &batch.changes {
            self.check_change(batch, &tenant, change, &mut claims)?;
        }
        Ok(())
    }

    /// The compare of the compare-and-swap; gives the thread's tenant.
    fn check_owner(&self, batch: &Batch) -> Result<TenantId> {
        let created = batch.changes.iter().find_map(|change| match change {
            Change::Thread(row) if row.key == batch.thread => Some(row),
            _ => None,
        });
        let (epoch, last, tenant) = match (self.threads.get(&batch.thread), created) {
            (Some(thread), _) => (thread.row.epoch, thread.last, &thread.row.tenant),
            (None, Some(row)) => (row.epoch, 0, &row.tenant),
            (None, None) => return Err(lost(batch.thread, "the thread is not there")),
        };
        if epoch != batch.epoch {
            return Err(lost(batch.thread, "another owner has taken it over"));
        }
        if last != batch.expected_last {
            return Err(lost(batch.thread, "its log has gone on"));
        }
        Ok(tenant.clone())
    }

    fn check_change<'a>(
        &self,
        batch: &Batch,
        tenant: &TenantId,
        change: &'a Change,
        claims: &mut Claims<'a>,
    ) -> Result<()> {
        let thread = batch.thread;
        let of = match change {
            Change::Thread(row) => {
                self.check_thread_id(row)?;
                (row.key, Some(&row.tenant))
            }
            Change::Run(row) => {
                self.check_run_id(row, claims)?;
                claims.runs.push(row);
                (row.thread, Some(&row.tenant))
            }
            Change::Message(row) => (row.thread, Some(&row.tenant)),
            Change::Checkpoint(row) => {
                let held =
                    self.threads.get(&row.thread).and_then(|one| one.checkpoints.get(&row.id));
                let twice =
                    claims.checkpoints.iter().any(|one| one.id == row.id && one.key != row.key);
                if twice || held.is_some_and(|key| *key != row.key) {
                    return Err(taken("checkpoint", row.id.as_str()));
                }
                claims.checkpoints.push(row);
                (row.thread, None)
            }
            Change::Interrupt(row) => {
                self.check_interrupt_id(row, claims)?;
                claims.interrupts.push(row);
                (row.thread, Some(&row.tenant))
            }
            Change::Binding(row) => (row.thread, None),
            Change::Idempotency(row) => {
                self.check_idempotency(row, claims)?;
                claims.idempotency.push(row);
                (row.thread, Some(&row.key.tenant))
            }
            Change::Offer(item) => (item.thread.unwrap_or(thread), Some(&item.tenant)),
            Change::RemoveRun(key) => {
                // A run of another thread is not touched.
                if self.runs.get(key).is_none_or(|run| run.row.thread == thread) {
                    self.remove_claims(*key, claims);
                }
                (thread, None)
            }
            Change::Alias(..) | Change::Withdraw(..) | Change::RemoveThread => (thread, None),
        };
        if of.0 != thread || of.1.is_some_and(|of| of != tenant) {
            return Err(misfit(thread, "a row of it belongs to another thread or tenant"));
        }
        Ok(())
    }

    /// What a run held is free again, also what it took in this batch.
    fn remove_claims(&self, key: RunKey, claims: &mut Claims<'_>) {
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
            return Err(taken("thread", row.id.as_str()));
        }
        Ok(())
    }

    fn check_run_id(&self, row: &RunRow, claims: &Claims<'_>) -> Result<()> {
        let held = self.tenants.get(&row.tenant).and_then(|tenant| tenant.runs.get(&row.id));
        let twice = claims.runs.iter().any(|one| one.id == row.id && one.key != row.key);
        if twice || held.is_some_and(|key| *key != row.key && !claims.removed.contains(key)) {
            return Err(taken("run", row.id.as_str()));
        }
        Ok(())
    }

    fn check_interrupt_id(&self, row: &InterruptRow, claims: &Claims<'_>) -> Result<()> {
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
            return Err(taken("interrupt", id.as_str()));
        }
        Ok(())
    }

    fn check_idempotency(&self, row: &IdempotencyRow, claims: &Claims<'_>) -> Result<()> {
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
            return Err(taken("idempotency key", &row.key.text));
        }
        Ok(())
    }
}

/// Passes when the frames continue the number that the batch expects, and are not too many.
fn check_frames(batch: &Batch) -> Result<()> {
    let mut last = batch.expected_last;
    for frame in &batch.frames {
        if frame.thread() != batch.thread || frame.first() != last.saturating_add(1) {
            return Err(lost(batch.thread, "its frames do not continue the log"));
        }
        last = frame.last();
    }
    match batch.frame_bytes() {
        Some(_) => Ok(()),
        None => Err(misfit(batch.thread, "its frames are too many bytes")),
    }
}

fn lost(thread: ThreadKey, why: &'static str) -> Error {
    Error::new(
        Code::OwnershipLost,
        format!("the change of thread {thread} does not fit its log: {why}"),
    )
    .hint("send the request again")
}

fn taken(what: &str, id: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("the {what} '{}' exists already", id.escape_debug()))
        .hint("choose another id, or leave it out to be given one")
}

fn misfit(thread: ThreadKey, why: &str) -> Error {
    Error::new(Code::Internal, format!("the change of thread {thread} is malformed: {why}"))
}
