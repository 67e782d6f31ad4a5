use std::sync::Arc;

use trilogue_domain::content::BlobRef;

use super::blob::Blobs;
use super::size_estimate;
use super::state::{RunEntry, State};
use super::thread::{MessageEntry, ThreadEntry};
use crate::port::{Batch, Change};
use crate::rows::{
    BindingRow, CheckpointRow, IdempotencyRow, InterruptRow, MessageRow, RunRow, ThreadRow,
};

// === impl State ===

impl State {
    /// Applies a batch that was checked. Frames come first, so that the removal of a run in the batch also removes its new frames.
    pub(super) fn apply(&mut self, batch: Batch) {
        self.commits += 1;
        self.frames += batch.frames.len() as u64;
        let thread = batch.thread;
        for change in &batch.changes {
            // A new thread must exist before its frames.
            if let Change::Thread(row) = change
                && !self.threads.contains_key(&thread)
            {
                self.put_thread(row.clone());
            }
        }
        self.put_frames(&batch);
        for change in batch.changes {
            match change {
                Change::Thread(row) => self.put_thread(row),
                Change::Run(row) => self.put_run(row),
                Change::Message(row) => self.put_message(row),
                Change::Alias(message, alias) => {
                    if let Some(held) = self.threads.get_mut(&thread) {
                        held.alias(&message, Some(alias));
                    }
                }
                Change::Checkpoint(row) => self.put_checkpoint(row),
                Change::Interrupt(row) => self.put_interrupt(row),
                Change::Binding(row) => self.put_binding(row),
                Change::Idempotency(row) => self.put_idempotency(row),
                Change::Offer(item) => self.queue.offer(item),
                Change::Withdraw(kind, key) => {
                    if let Some(held) = self.threads.get(&thread) {
                        self.queue.withdraw(&held.row.tenant, kind, &key);
                    }
                }
                Change::RemoveRun(key) => self.remove_run(thread, key),
                Change::RemoveThread => self.remove_thread(thread),
            }
        }
        self.note_idle(thread);
    }

    fn put_frames(&mut self, batch: &Batch) {
        let Some(thread) = self.threads.get_mut(&batch.thread) else { return };
        self.bytes += name_blobs(thread, batch, &mut self.blobs);
        for frame in &batch.frames {
            // A copy, so that the store keeps no decoded events.
            let frame = frame.undecoded();
            let weight = size_estimate::frame(&frame);
            self.bytes += weight;
            thread.last = frame.last();
            match frame.run() {
                Some(run) => {
                    let parts = thread.parts.entry(run).or_default();
                    parts.bytes += weight;
                    parts.frames.push((frame.first(), frame.last_run()));
                }
                None => thread.bytes += weight,
            }
            thread.frames.insert(frame.first(), frame);
        }
        self.tails.keep(batch.thread, &batch.frames);
    }

    fn put_thread(&mut self, row: ThreadRow) {
        let tenant = self.tenants.entry(row.tenant.clone()).or_default();
        self.bytes += size_estimate::thread(&row);
        let key = row.key;
        match self.threads.get_mut(&key) {
            Some(held) => {
                self.bytes = self.bytes.saturating_sub(size_estimate::thread(&held.row));
                if held.row.id != row.id {
                    tenant.threads.remove(&held.row.id);
                }
                if row.ephemeral {
                    tenant.listed.remove(&key);
                }
                tenant.threads.insert(row.id.clone(), key);
                if !row.ephemeral {
                    tenant.listed.insert(key);
                }
                held.row = Arc::new(row);
            }
            None => {
                tenant.threads.insert(row.id.clone(), key);
                if !row.ephemeral {
                    tenant.listed.insert(key);
                }
                self.threads.insert(key, Box::new(ThreadEntry::new(Arc::new(row))));
            }
        }
    }

    fn put_run(&mut self, row: Box<RunRow>) {
        let key = row.key;
        let tenant = self.tenants.entry(row.tenant.clone()).or_default();
        tenant.runs.insert(row.id.clone(), key);
        tenant.run_keys.insert(key);
        if let Some(thread) = self.threads.get_mut(&row.thread) {
            thread.runs.insert(key);
            thread.parts.entry(key).or_default();
        }
        self.bytes += size_estimate::run(&row);
        let has_ended = row.status.is_terminal();
        let row = Arc::from(row);
        let old = self.runs.remove(&key);
        if let Some(old) = &old {
            self.bytes = self.bytes.saturating_sub(size_estimate::run(&old.row));
        }
        let mut ended = old.and_then(|old| old.ended);
        match ended {
            None if has_ended => {
                let place = self.next_place();
                self.ended.insert(place, key);
                ended = Some(place);
            }
            Some(place) if !has_ended => {
                self.ended.remove(place);
                ended = None;
            }
            _ => {}
        }
        self.runs.insert(key, RunEntry { row, ended });
    }

    fn put_message(&mut self, row: MessageRow) {
        let place = self.next_place();
        let Some(thread) = self.threads.get_mut(&row.thread) else { return };
        if let Some(held) = thread.messages.get_mut(&row.id) {
            if held.row.run == row.run {
                let (id, alias) = (row.id.clone(), row.alias.clone());
                // The entry under the alias is made below.
                let alias_before = held.row.alias.clone();
                held.row = Arc::new(MessageRow { alias: alias_before, ..row });
                thread.alias(&id, alias);
            }
            return;
        }
        let parts = thread.parts.entry(row.run).or_default();
        parts.messages.push(row.id.clone());
        parts.bytes += size_estimate::SMALL_ROW_BYTES;
        self.bytes += size_estimate::SMALL_ROW_BYTES;
        if let Some(alias) = &row.alias {
            thread.aliases.entry(alias.clone()).or_default().insert(place, row.id.clone());
        }
        thread.messages.insert(row.id.clone(), MessageEntry { row: Arc::new(row), place });
    }

    fn put_checkpoint(&mut self, row: CheckpointRow) {
        let Some(thread) = self.threads.get_mut(&row.thread) else { return };
        let is_new = thread.checkpoints.insert(row.id.clone(), row.key).is_none();
        if is_new {
            // The value may be removed with its run; the link stays with the thread.
            thread.bytes += size_estimate::SMALL_ROW_BYTES;
            let value = size_estimate::checkpoint(&row) - size_estimate::SMALL_ROW_BYTES;
            match row.run {
                Some(run) => {
                    let parts = thread.parts.entry(run).or_default();
                    parts.checkpoints.push(row.key);
                    parts.bytes += value;
                }
                None => thread.bytes += value,
            }
            self.bytes += size_estimate::checkpoint(&row);
        }
        self.checkpoints.insert(row.key, Arc::new(row));
    }

    fn put_interrupt(&mut self, row: Box<InterruptRow>) {
        let place = self.next_place().cast_signed();
        let Some(thread) = self.threads.get_mut(&row.thread) else { return };
        let tenant = self.tenants.entry(row.tenant.clone()).or_default();
        let key = match tenant.interrupts.get(&row.interrupt.id) {
            Some(key) => *key,
            None => {
                tenant.interrupts.insert(row.interrupt.id.clone(), place);
                tenant.interrupt_keys.insert(place);
                thread.interrupts.insert(place);
                let parts = thread.parts.entry(row.run).or_default();
                parts.interrupts.push(place);
                parts.bytes += size_estimate::interrupt(&row);
                self.bytes += size_estimate::interrupt(&row);
                place
            }
        };
        self.interrupts.insert(key, Arc::from(row));
    }

    fn put_binding(&mut self, row: BindingRow) {
        let Some(thread) = self.threads.get_mut(&row.thread) else { return };
        let weight = size_estimate::ROW_BYTES + size_estimate::json(&row.capabilities);
        if thread.bindings.insert(row.agent.clone(), row).is_none() {
            thread.bytes += weight;
            self.bytes += weight;
        }
    }

    fn put_idempotency(&mut self, row: IdempotencyRow) {
        self.forget_idempotency(&row.key.clone());
        let Some(thread) = self.threads.get_mut(&row.thread) else { return };
        thread.idempotency.entry(row.run.clone()).or_default().push(row.key.clone());
        thread.bytes += size_estimate::SMALL_ROW_BYTES;
        self.bytes += size_estimate::SMALL_ROW_BYTES;
        self.idempotency.insert(row.key.clone(), Arc::new(row));
    }
}

/// Notes which runs of the batch name its blobs. Returns the estimated size of the notes, in bytes.
fn name_blobs(thread: &mut ThreadEntry, batch: &Batch, blobs: &mut Blobs) -> usize {
    const SIZE: usize = size_of::<BlobRef>() * 2;
    let mut weight = 0;
    for blob in &batch.blobs {
        for run in batch.runs_naming(blob) {
            blobs.name(&thread.row.tenant, blob);
            thread.blobs.entry(blob.hash).or_default().push(blob.clone());
            weight += SIZE;
            if let Some(run) = run {
                let parts = thread.parts.entry(run).or_default();
                parts.blobs.push(blob.clone());
                parts.bytes += SIZE;
            } else {
                thread.own_blobs.push(blob.clone());
                thread.bytes += SIZE;
            }
        }
    }
    weight
}
