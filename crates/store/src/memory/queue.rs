//! The queue: due work, kept for the life of this process.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use trilogue_domain::{RunKey, Scope, TenantId, ThreadKey, Timestamp};

use super::key_map::KeyMap;
use super::size_estimate;
use crate::core::queue::{FinishOutcome, QueueEntry, settle_line};
use crate::rows::{Claim, QueueItem, QueueKind};

#[derive(Debug, Default)]
pub(super) struct QueueEntries {
    entries: KeyMap<i64, QueueEntry>,
    by_key: HashMap<(TenantId, QueueKind, String), i64>,
    by_thread: KeyMap<ThreadKey, BTreeSet<i64>>,
    /// By the time from which an item can be claimed.
    free: BTreeSet<(QueueKind, Timestamp, i64)>,
    dead: BTreeSet<i64>,
    lines: KeyMap<RunKey, Line>,
    last_id: i64,
    bytes: usize,
}

/// The live items of a run that are in line, by position.
#[derive(Debug, Default)]
struct Line {
    ids: BTreeSet<(u64, i64)>,
    /// The item that is free or held.
    free: Option<i64>,
}

// === impl QueueEntries ===

impl QueueEntries {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.entries.len(), self.by_key.len());
        assert_eq!(self.entries.is_empty(), self.by_thread.is_empty());
        self.entries.len()
    }

    /// Moves all times back by this much, because the clock was set back.
    pub(super) fn bring_forward(&mut self, by: Duration) {
        let live: Vec<i64> = self.entries.keys().copied().collect();
        for id in live {
            self.update(id, |entry| entry.bring_forward(by));
        }
    }

    pub(super) fn offer(&mut self, item: QueueItem) {
        let key = (item.tenant.clone(), item.kind, item.key.clone());
        if let Some(id) = self.by_key.get(&key).copied() {
            self.update(id, |entry| *entry = QueueEntry::offer(Some(entry.clone()), item));
            return;
        }
        self.last_id += 1;
        self.by_key.insert(key, self.last_id);
        let entry = QueueEntry::offer(None, item);
        let line = entry.line;
        self.insert(self.last_id, entry);
        self.settle(line);
    }

    /// Removes an item, even if a worker holds it.
    pub(super) fn withdraw(&mut self, tenant: &TenantId, kind: QueueKind, key: &str) {
        if let Some(id) = self.by_key.get(&(tenant.clone(), kind, key.to_owned())).copied() {
            self.remove(id);
        }
    }

    /// Removes the items of a run. `is_named` returns whether a key is the id of the run or of one of its interrupts.
    pub(super) fn remove_run(
        &mut self,
        thread: ThreadKey,
        run: RunKey,
        is_named: impl Fn(&str) -> bool,
    ) {
        let Some(of_thread) = self.by_thread.get(&thread) else { return };
        let is_of = |id: &&i64| {
            self.entries
                .get(id)
                .is_some_and(|entry| entry.about == Some(run) || is_named(&entry.item.key))
        };
        for id in of_thread.iter().filter(is_of).copied().collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    pub(super) fn remove_thread(&mut self, thread: ThreadKey) {
        for id in self.by_thread.remove(&thread).unwrap_or_default() {
            self.remove(id);
        }
    }

    /// Dead callbacks that the scope sees, with ids below the given one, newest first.
    pub(super) fn dead(
        &self,
        scope: &Scope,
        before: i64,
    ) -> impl Iterator<Item = (i64, &QueueEntry)> {
        self.dead.range(..before).rev().filter_map(|id| {
            let entry = self.entries.get(id)?;
            let is_shown = entry.item.kind == QueueKind::Callback
                && scope.can_see(&entry.item.tenant, &entry.item.principal);
            is_shown.then_some((*id, entry))
        })
    }

    /// Whether a live item of the run is in line.
    pub(super) fn is_in_line(&self, run: RunKey) -> bool {
        self.lines.contains_key(&run)
    }

    pub(super) fn claim(
        &mut self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Vec<Claim> {
        let from = (kind, Timestamp::from_micros(i64::MIN), i64::MIN);
        let due = self.free.range(from..=(kind, now, i64::MAX)).map(|place| place.2);
        let due: Vec<_> = due.take(limit).collect();
        let claims = due.into_iter().filter_map(|id| {
            let has_expired = self.update(id, QueueEntry::expire)?;
            if has_expired && !self.entries.get(&id)?.is_free(now) {
                return None;
            }
            self.update(id, |entry| entry.claim(id, lease_until))
        });
        claims.collect()
    }

    /// Changes an entry, if this claim still holds it.
    pub(super) fn update_held<T>(
        &mut self,
        claim: &Claim,
        change: impl FnOnce(&mut QueueEntry) -> T,
    ) -> Option<T> {
        let is_held = self.entries.get(&claim.id).is_some_and(|entry| entry.is_held_by(claim));
        if is_held { self.update(claim.id, change) } else { None }
    }

    pub(super) fn finish(&mut self, claim: &Claim) -> bool {
        let finished = self.update_held(claim, QueueEntry::finish);
        if finished == Some(FinishOutcome::Removed) {
            self.remove(claim.id);
        }
        finished.is_some()
    }

    pub(super) fn revive(&mut self, scope: &Scope, id: i64, now: Timestamp) -> bool {
        let is_seen = |entry: &QueueEntry| {
            entry.is_dead && scope.can_see(&entry.item.tenant, &entry.item.principal)
        };
        if !self.entries.get(&id).is_some_and(is_seen) {
            return false;
        }
        self.update(id, |entry| entry.revive(now)).is_some()
    }

    pub(super) fn next_due(&self, kind: QueueKind) -> Option<Timestamp> {
        let from = (kind, Timestamp::from_micros(i64::MIN), i64::MIN);
        let first = self.free.range(from..).next()?;
        (first.0 == kind).then_some(first.1)
    }

    /// Changes an entry and settles its line.
    fn update<T>(&mut self, id: i64, change: impl FnOnce(&mut QueueEntry) -> T) -> Option<T> {
        let mut entry = self.take(id)?;
        let before = entry.line;
        let value = change(&mut entry);
        let line = entry.line;
        self.insert(id, entry);
        self.settle(before);
        self.settle(line);
        Some(value)
    }

    fn remove(&mut self, id: i64) {
        let Some(entry) = self.take(id) else { return };
        let QueueItem { tenant, kind, key, .. } = entry.item;
        self.by_key.remove(&(tenant, kind, key));
        self.settle(entry.line);
    }

    /// Adds an entry to every index except that of the keys.
    fn insert(&mut self, id: i64, entry: QueueEntry) {
        self.bytes += size_estimate::entry(&entry);
        if let Some(thread) = entry.item.thread {
            self.by_thread.entry(thread).or_default().insert(id);
        }
        if entry.is_dead {
            self.dead.insert(id);
        } else if let Some((run, place)) = entry.line {
            let line = self.lines.entry(run).or_default();
            line.ids.insert((place, id));
            if entry.free_at.is_some() {
                line.free = Some(id);
            }
        }
        self.free.extend(entry.free_at.map(|at| (entry.item.kind, at, id)));
        self.entries.insert(id, entry);
    }

    /// Removes an entry from every index except that of the keys.
    fn take(&mut self, id: i64) -> Option<QueueEntry> {
        let entry = self.entries.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(size_estimate::entry(&entry));
        if let Some(thread) = entry.item.thread
            && let Some(ids) = self.by_thread.get_mut(&thread)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_thread.remove(&thread);
            }
        }
        self.dead.remove(&id);
        if let Some((run, place)) = entry.line
            && let Some(line) = self.lines.get_mut(&run)
        {
            line.ids.remove(&(place, id));
            line.free.take_if(|free| *free == id);
            if line.ids.is_empty() {
                self.lines.remove(&run);
            }
        }
        if let Some(at) = entry.free_at {
            self.free.remove(&(entry.item.kind, at, id));
        }
        Some(entry)
    }

    /// Frees the first item of a line, unless an item of the line is held.
    fn settle(&mut self, line: Option<(RunKey, u64)>) {
        let Some(line) = line.and_then(|(run, _)| self.lines.get_mut(&run)) else { return };
        let is_held = |id: i64| self.entries.get(&id).is_some_and(|entry| entry.is_held);
        let free = line.free.map(|id| (id, is_held(id)));
        let Some(change) = settle_line(free, line.ids.first().map(|(_, id)| *id)) else { return };
        line.free = change.freed;
        if let Some(id) = change.blocked
            && let Some(entry) = self.entries.get_mut(&id)
            && let Some(at) = entry.free_at.take()
        {
            self.free.remove(&(entry.item.kind, at, id));
        }
        if let Some(id) = change.freed
            && let Some(entry) = self.entries.get_mut(&id)
        {
            entry.free_at = Some(entry.item.due);
            self.free.insert((entry.item.kind, entry.item.due, id));
        }
    }
}
