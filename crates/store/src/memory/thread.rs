use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use smallvec::SmallVec;
use trilogue_domain::content::BlobRef;
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, MessageId, RunId, RunKey, ThreadKey,
};

use super::key_map::KeyMap;
use super::size_estimate;
use super::state::State;
use crate::record::Frame;
use crate::rows::{BindingRow, CheckpointRow, IdempotencyKey, MessageRow, RunRow, ThreadRow};

/// A thread, its log, and the keys of its rows.
#[derive(Debug)]
pub(super) struct ThreadEntry {
    pub(super) row: Arc<ThreadRow>,
    /// The last number of its log. Stays when frames are removed.
    pub(super) last: u64,
    /// By first number.
    pub(super) frames: BTreeMap<u64, Frame>,
    pub(super) runs: BTreeSet<RunKey>,
    /// The data of its runs. A run has an entry from its first frame or row.
    pub(super) parts: KeyMap<RunKey, RunContents>,
    pub(super) messages: HashMap<MessageId, MessageEntry>,
    /// The messages with an alias, by their positions: an agent may use one id in every turn.
    pub(super) aliases: HashMap<MessageId, BTreeMap<u64, MessageId>>,
    pub(super) checkpoints: HashMap<CheckpointId, CheckpointKey>,
    pub(super) interrupts: BTreeSet<i64>,
    pub(super) bindings: HashMap<AgentName, BindingRow>,
    pub(super) idempotency: HashMap<RunId, Vec<IdempotencyKey>>,
    /// Blobs that its frames name, by hash, with one entry per naming.
    pub(super) blobs: HashMap<[u8; 32], Vec<BlobRef>>,
    /// The blobs that frames without a run name.
    pub(super) own_blobs: Vec<BlobRef>,
    /// Its position in [`State::idle`], while it has no runs.
    pub(super) idle: Option<u64>,
    /// The estimated size of the thread without its runs, in bytes.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct MessageEntry {
    pub(super) row: Arc<MessageRow>,
    /// Its position in the order of arrival.
    pub(super) place: u64,
}

/// The data of one run, removed with it.
#[derive(Debug, Default)]
pub(super) struct RunContents {
    /// Its frames, oldest first: the first thread number and the last run number of each.
    pub(super) frames: Vec<(u64, u64)>,
    pub(super) messages: Vec<MessageId>,
    pub(super) interrupts: Vec<i64>,
    pub(super) checkpoints: Vec<CheckpointKey>,
    pub(super) blobs: Vec<BlobRef>,
    /// The estimated size, in bytes.
    pub(super) bytes: usize,
}

// === impl ThreadEntry ===

impl ThreadEntry {
    pub(super) fn new(row: Arc<ThreadRow>) -> Self {
        Self {
            row,
            last: 0,
            frames: BTreeMap::new(),
            runs: BTreeSet::new(),
            parts: KeyMap::default(),
            messages: HashMap::new(),
            aliases: HashMap::new(),
            checkpoints: HashMap::new(),
            interrupts: BTreeSet::new(),
            bindings: HashMap::new(),
            idempotency: HashMap::new(),
            blobs: HashMap::new(),
            own_blobs: Vec::new(),
            idle: None,
            bytes: 0,
        }
    }

    /// A message by its id, otherwise the oldest with this alias.
    pub(super) fn message(&self, id: &MessageId) -> Option<&Arc<MessageRow>> {
        if let Some(held) = self.messages.get(id) {
            return Some(&held.row);
        }
        let known = self.aliases.get(id)?.values().find_map(|id| self.messages.get(id));
        known.map(|held| &held.row)
    }

    /// Adds an alias of a message. Returns `false` if the message does not exist or already has the alias.
    pub(super) fn alias(&mut self, id: &MessageId, alias: Option<MessageId>) -> bool {
        let Some(held) = self.messages.get_mut(id) else { return false };
        if held.row.alias == alias {
            return false;
        }
        let (row, place) = (Arc::make_mut(&mut held.row), held.place);
        let old = std::mem::replace(&mut row.alias, alias.clone());
        self.forget_alias(place, old.as_ref());
        if let Some(alias) = alias {
            self.aliases.entry(alias).or_default().insert(place, id.clone());
        }
        true
    }

    /// Removes a message. Returns its position.
    fn remove_message(&mut self, id: &MessageId) -> Option<u64> {
        let held = self.messages.remove(id)?;
        self.forget_alias(held.place, held.row.alias.as_ref());
        Some(held.place)
    }

    fn forget_alias(&mut self, place: u64, alias: Option<&MessageId>) {
        let Some(alias) = alias else { return };
        let Some(known) = self.aliases.get_mut(alias) else { return };
        known.remove(&place);
        if known.is_empty() {
            self.aliases.remove(alias);
        }
    }
}

// === impl State ===

impl State {
    /// Removes a run with all its data. Checkpoints that it made stay as links, without a value.
    pub(super) fn remove_run(&mut self, key: ThreadKey, run: RunKey) {
        if self.runs.get(&run).is_some_and(|held| held.row.thread != key) {
            return;
        }
        let Some(mut thread) = self.threads.remove(&key) else { return };
        let parts = thread.parts.remove(&run).unwrap_or_default();
        if let Some(row) = self.forget_run(&thread, run, &parts) {
            let used = thread.idempotency.remove(&row.id).unwrap_or_default();
            let bytes = used.len() * size_estimate::SMALL_ROW_BYTES;
            thread.bytes = thread.bytes.saturating_sub(bytes);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        thread.runs.remove(&run);
        for (first, _) in &parts.frames {
            self.removed.frames.extend(thread.frames.remove(first));
        }
        if !parts.frames.is_empty() {
            self.tails.forget_frames(key, thread.last);
        }
        for checkpoint in &parts.checkpoints {
            if let Some(row) = self.checkpoints.get_mut(checkpoint) {
                empty(row);
            }
        }
        for message in &parts.messages {
            thread.remove_message(message);
        }
        for interrupt in &parts.interrupts {
            thread.interrupts.remove(interrupt);
        }
        for blob in &parts.blobs {
            forget_name(&mut thread.blobs, blob);
        }
        self.removed.parts.push(parts);
        self.threads.insert(key, thread);
    }

    pub(super) fn remove_thread(&mut self, key: ThreadKey) {
        self.quarantine.remove(key);
        let Some(thread) = self.threads.remove(&key) else { return };
        self.queue.remove_thread(key);
        // The thread's data is dropped as a whole. Only entries in shared maps are removed one by one.
        for (run, parts) in &thread.parts {
            // Frames may name a run of another thread, which stays.
            if self.runs.get(run).is_none_or(|held| held.row.thread == key) {
                self.forget_run(&thread, *run, parts);
            }
        }
        self.bytes = self.bytes.saturating_sub(thread.bytes + size_estimate::thread(&thread.row));
        if let Some(place) = thread.idle {
            self.idle.remove(place);
        }
        for checkpoint in thread.checkpoints.values() {
            self.checkpoints.remove(checkpoint);
        }
        for used in thread.idempotency.values().flatten() {
            self.idempotency.remove(used);
        }
        for blob in &thread.own_blobs {
            self.blobs.unname(&thread.row.tenant, blob);
        }
        self.tails.remove_thread(key);
        if let Some(tenant) = self.tenants.get_mut(&thread.row.tenant) {
            tenant.threads.remove(&thread.row.id);
            tenant.listed.remove(&key);
        }
        self.removed.threads.push(thread);
    }

    /// Removes a run from the shared maps, but neither from its thread nor from the thread's bytes. Returns its row.
    fn forget_run(
        &mut self,
        thread: &ThreadEntry,
        key: RunKey,
        parts: &RunContents,
    ) -> Option<Arc<RunRow>> {
        self.bytes = self.bytes.saturating_sub(parts.bytes);
        for blob in &parts.blobs {
            self.blobs.unname(&thread.row.tenant, blob);
        }
        let run = self.runs.remove(&key);
        let mut interrupts = SmallVec::<[_; 2]>::new();
        if let Some(tenant) = self.tenants.get_mut(&thread.row.tenant) {
            tenant.run_keys.remove(&key);
            for interrupt in &parts.interrupts {
                tenant.interrupt_keys.remove(interrupt);
                if let Some(row) = self.interrupts.remove(interrupt) {
                    tenant.interrupts.remove(&row.interrupt.id);
                    interrupts.push(row);
                }
            }
            if let Some(run) = &run {
                tenant.runs.remove(&run.row.id);
            }
        }
        let run = run?;
        let is_named = |name: &str| {
            run.row.id.as_str() == name
                || interrupts.iter().any(|row| row.interrupt.id.as_str() == name)
        };
        self.queue.remove_run(thread.row.key, key, is_named);
        self.bytes = self.bytes.saturating_sub(size_estimate::run(&run.row));
        if let Some(place) = run.ended {
            self.ended.remove(place);
        }
        for used in thread.idempotency.get(&run.row.id).into_iter().flatten() {
            self.idempotency.remove(used);
        }
        let row = Arc::clone(&run.row);
        self.removed.runs.push(run);
        Some(row)
    }

    /// Marks a thread as evictable if it has no runs, and unmarks it otherwise.
    pub(super) fn note_idle(&mut self, key: ThreadKey) {
        let place = self.next_place();
        let Some(thread) = self.threads.get_mut(&key) else { return };
        match (thread.runs.is_empty(), thread.idle) {
            (true, None) => {
                thread.idle = Some(place);
                self.idle.insert(place, key);
            }
            (false, Some(old)) => {
                thread.idle = None;
                self.idle.remove(old);
            }
            _ => {}
        }
    }
}

fn empty(row: &mut Arc<CheckpointRow>) {
    if row.value.is_some() {
        Arc::make_mut(row).value = None;
    }
}

fn forget_name(named: &mut HashMap<[u8; 32], Vec<BlobRef>>, blob: &BlobRef) {
    let Some(list) = named.get_mut(&blob.hash) else { return };
    if let Some(index) = list.iter().position(|one| one == blob) {
        list.swap_remove(index);
    }
    if list.is_empty() {
        named.remove(&blob.hash);
    }
}
