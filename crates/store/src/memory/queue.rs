//! The queue: durable as long as this process.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;
use trilogue_domain::error::Result;
use trilogue_domain::{Json, RunKey, Scope, TenantId, ThreadKey, Timestamp};

use super::{KeyMap, MemoryStore, weight};
use crate::port::Queue;
use crate::rows::{Abandon, Claim, DeadItem, QueueItem, QueueKind};

/// Every item, by when it can be claimed.
#[derive(Debug, Default)]
pub(super) struct Items {
    items: KeyMap<i64, Item>,
    by_key: HashMap<(TenantId, QueueKind, String), i64>,
    by_thread: KeyMap<ThreadKey, BTreeSet<i64>>,
    /// Items that are not dead: when one falls due or its lease ends.
    free: BTreeSet<(QueueKind, Timestamp, i64)>,
    dead: BTreeSet<i64>,
    lines: KeyMap<RunKey, Line>,
    last_id: i64,
    bytes: usize,
}

/// The live items of one run that stand in line, by place.
#[derive(Debug, Default)]
struct Line {
    ids: BTreeSet<(u64, i64)>,
    /// The one that is free or held.
    free: Option<i64>,
}

#[derive(Debug)]
struct Item {
    item: QueueItem,
    /// Its run and place in line.
    line: Option<(RunKey, u64)>,
    /// What was offered under its key while it was held.
    next: Option<QueueItem>,
    free_at: Timestamp,
    fence: u64,
    attempts: u32,
    is_claimed: bool,
    is_dead: bool,
    error: String,
}

// === impl Items ===

impl Items {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.items.len(), self.by_key.len());
        assert_eq!(self.items.is_empty(), self.by_thread.is_empty());
        self.items.len()
    }

    /// Puts an item in; one with the same key is replaced, and who holds it loses it. In a line it waits until the holder is done.
    pub(super) fn offer(&mut self, mut item: QueueItem) {
        let key = (item.tenant.clone(), item.kind, item.key.clone());
        let line = item.line();
        if let Some(held) = self.by_key.get(&key).and_then(|id| self.items.get_mut(id))
            && line.is_some()
            && held.line.is_some()
            && held.is_claimed
        {
            self.bytes += weight::item(&item);
            if let Some(old) = held.next.replace(item) {
                self.bytes = self.bytes.saturating_sub(weight::item(&old));
            }
            return;
        }
        let old = self.by_key.get(&key).copied().and_then(|id| self.take(id).map(|old| (id, old)));
        let mut attempts = 0;
        let (id, fence) = match old {
            Some((id, old)) => {
                let has_failed = line.is_some() && old.line.is_some() && !old.is_dead;
                if has_failed && old.attempts > 0 {
                    // A receiver that could not be reached is given no less patience for what is newer.
                    attempts = old.attempts;
                    item.due = item.due.max(old.item.due);
                }
                (id, old.fence + 1)
            }
            None => {
                self.last_id += 1;
                (self.last_id, 0)
            }
        };
        self.by_key.insert(key, id);
        if let Some(thread) = item.thread {
            self.by_thread.entry(thread).or_default().insert(id);
        }
        self.bytes += weight::item(&item);
        let free_at = item.due;
        match line {
            Some(line) => self.join_line(line, id),
            None => {
                self.free.insert((item.kind, item.due, id));
            }
        }
        self.items.insert(
            id,
            Item {
                item,
                line,
                next: None,
                free_at,
                fence,
                attempts,
                is_claimed: false,
                is_dead: false,
                error: String::new(),
            },
        );
        self.settle(line);
    }

    /// Takes an item out, whoever holds it.
    pub(super) fn withdraw(&mut self, tenant: &TenantId, kind: QueueKind, key: &str) {
        if let Some(id) = self.by_key.get(&(tenant.clone(), kind, key.to_owned())).copied() {
            let line = self.take(id).and_then(|item| item.line);
            self.settle(line);
        }
    }

    /// Removes the items of a run: under its id, under an interrupt's, or with a reference that names its key.
    pub(super) fn remove_run(&mut self, thread: ThreadKey, run: RunKey, keys: &[&str]) {
        let Some(ids) = self.by_thread.get(&thread) else { return };
        let is_of = |id: &&i64| {
            self.items.get(id).is_some_and(|item| {
                keys.contains(&item.item.key.as_str()) || names_run(&item.item.reference, run)
            })
        };
        let ids: Vec<_> = ids.iter().filter(is_of).copied().collect();
        for id in ids {
            self.take(id);
        }
    }

    /// Removes the items of a thread.
    pub(super) fn remove_thread(&mut self, thread: ThreadKey) {
        for id in self.by_thread.remove(&thread).unwrap_or_default() {
            self.take(id);
        }
    }

    /// Dead callbacks that the scope sees, newest first, after this id.
    pub(super) fn dead(&self, scope: &Scope, after: i64) -> impl Iterator<Item = DeadItem> {
        self.dead.range(..after).rev().filter_map(|id| {
            let item = self.items.get(id)?;
            let is_shown = item.item.kind == QueueKind::Callback
                && scope.sees(&item.item.tenant, &item.item.principal);
            is_shown.then(|| DeadItem {
                id: *id,
                attempts: item.attempts,
                error: item.error.clone(),
                item: item.item.clone(),
            })
        })
    }

    fn take(&mut self, id: i64) -> Option<Item> {
        let item = self.items.remove(&id)?;
        self.by_key.remove(&(item.item.tenant.clone(), item.item.kind, item.item.key.clone()));
        if let Some(thread) = item.item.thread
            && let Some(ids) = self.by_thread.get_mut(&thread)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_thread.remove(&thread);
            }
        }
        self.free.remove(&(item.item.kind, item.free_at, id));
        self.dead.remove(&id);
        let next = item.next.as_ref().map_or(0, weight::item);
        self.bytes = self.bytes.saturating_sub(weight::item(&item.item) + next);
        self.leave_line(item.line, id);
        Some(item)
    }

    fn claim(
        &mut self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Vec<Claim> {
        let from = (kind, Timestamp::from_micros(i64::MIN), i64::MIN);
        let due: Vec<_> = self
            .free
            .range(from..=(kind, now, i64::MAX))
            .map(|place| place.2)
            .take(limit)
            .collect();
        due.into_iter()
            .filter_map(|id| {
                // Whoever held it is gone: what was offered meanwhile is newer. It may stand behind another of its line now.
                if let Some(Item { item, next: Some(next), .. }) = self.items.get_mut(&id) {
                    next.due = next.due.max(item.due);
                }
                if self.promote(id) && !self.is_free(id, now) {
                    return None;
                }
                self.reschedule(id, lease_until);
                let item = self.items.get_mut(&id)?;
                item.fence += 1;
                item.attempts = item.attempts.saturating_add(1);
                item.is_claimed = true;
                let Item { item, fence, attempts, .. } = item;
                Some(Claim { id, fence: *fence, attempts: *attempts, item: item.clone() })
            })
            .collect()
    }

    /// The item, while this claim holds it.
    fn held(&mut self, claim: &Claim) -> Option<&mut Item> {
        self.items.get_mut(&claim.id).filter(|item| item.is_claimed && item.fence == claim.fence)
    }

    fn reschedule(&mut self, id: i64, free_at: Timestamp) {
        if let Some(item) = self.items.get_mut(&id) {
            self.free.remove(&(item.item.kind, item.free_at, id));
            item.free_at = free_at;
            self.free.insert((item.item.kind, free_at, id));
        }
    }

    /// Takes a finished item out; what was offered under its key meanwhile takes its place.
    fn finish(&mut self, claim: &Claim) -> bool {
        let Some(item) = self.held(claim) else { return false };
        if item.next.is_none() {
            let line = self.take(claim.id).and_then(|item| item.line);
            self.settle(line);
            return true;
        }
        item.attempts = 0;
        self.promote(claim.id);
        true
    }

    fn abandon(&mut self, claim: &Claim, how: &Abandon, error: &str) -> bool {
        let Some(item) = self.held(claim) else { return false };
        let line = item.line;
        match how {
            Abandon::RetryAt(at) => {
                item.is_claimed = false;
                error.clone_into(&mut item.error);
                match &mut item.next {
                    Some(next) => {
                        next.due = next.due.max(*at);
                        self.promote(claim.id);
                    }
                    None => {
                        item.item.due = *at;
                        self.reschedule(claim.id, *at);
                    }
                }
            }
            Abandon::Dead if item.next.is_some() => {
                item.attempts = 0;
                self.promote(claim.id);
            }
            Abandon::Dead => {
                item.is_claimed = false;
                error.clone_into(&mut item.error);
                item.is_dead = true;
                let place = (item.item.kind, item.free_at, claim.id);
                self.free.remove(&place);
                self.dead.insert(claim.id);
                self.leave_line(line, claim.id);
                self.settle(line);
            }
        }
        true
    }

    /// Puts what was offered under an item's key while it was held in its place. `false` when there is no such thing.
    fn promote(&mut self, id: i64) -> bool {
        let Some(item) = self.items.get_mut(&id) else { return false };
        let Some(next) = item.next.take() else { return false };
        self.free.remove(&(item.item.kind, item.free_at, id));
        self.bytes = self.bytes.saturating_sub(weight::item(&item.item));
        item.is_claimed = false;
        item.fence += 1;
        item.error.clear();
        item.free_at = next.due;
        let (old, new) = (item.line, next.line());
        item.line = new;
        item.item = next;
        self.leave_line(old, id);
        if let Some(line) = new {
            self.join_line(line, id);
        }
        self.settle(new);
        true
    }

    fn is_free(&self, id: i64, now: Timestamp) -> bool {
        self.items.get(&id).is_some_and(|item| {
            item.free_at <= now && self.free.contains(&(item.item.kind, item.free_at, id))
        })
    }

    /// Whether a live item of the run stands in line.
    pub(super) fn is_in_line(&self, run: RunKey) -> bool {
        self.lines.contains_key(&run)
    }

    fn join_line(&mut self, (run, place): (RunKey, u64), id: i64) {
        self.lines.entry(run).or_default().ids.insert((place, id));
    }

    fn leave_line(&mut self, line: Option<(RunKey, u64)>, id: i64) {
        let Some((run, place)) = line else { return };
        let Some(line) = self.lines.get_mut(&run) else { return };
        line.ids.remove(&(place, id));
        line.free.take_if(|free| *free == id);
        if line.ids.is_empty() {
            self.lines.remove(&run);
        }
    }

    /// Makes the first in line free, unless one of the line is held.
    fn settle(&mut self, line: Option<(RunKey, u64)>) {
        let Some(line) = line.and_then(|(run, _)| self.lines.get_mut(&run)) else { return };
        let first = line.ids.first().map(|(_, id)| *id);
        if line.free == first {
            return;
        }
        if let Some(id) = line.free
            && let Some(item) = self.items.get(&id)
        {
            if item.is_claimed {
                return;
            }
            self.free.remove(&(item.item.kind, item.free_at, id));
        }
        line.free = first;
        if let Some(id) = first
            && let Some(item) = self.items.get_mut(&id)
        {
            item.free_at = item.item.due;
            self.free.insert((item.item.kind, item.free_at, id));
        }
    }

    fn revive(&mut self, scope: &Scope, id: i64, now: Timestamp) -> bool {
        let Some(item) = self.items.get_mut(&id) else { return false };
        if !item.is_dead || !scope.sees(&item.item.tenant, &item.item.principal) {
            return false;
        }
        item.is_dead = false;
        item.attempts = 0;
        item.error.clear();
        item.item.due = now;
        let line = item.line;
        self.dead.remove(&id);
        match line {
            Some(place) => {
                item.free_at = now;
                self.join_line(place, id);
                self.settle(line);
            }
            None => self.reschedule(id, now),
        }
        true
    }

    fn next_due(&self, kind: QueueKind) -> Option<Timestamp> {
        let from = (kind, Timestamp::from_micros(i64::MIN), i64::MIN);
        let first = self.free.range(from..).next()?;
        (first.0 == kind).then_some(first.1)
    }
}

fn names_run(reference: &Json, run: RunKey) -> bool {
    reference.to_value().get("run").and_then(serde_json::Value::as_i64) == Some(run.0)
}

// === impl MemoryStore ===

#[async_trait]
impl Queue for MemoryStore {
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>> {
        Ok(self.open()?.queue.claim(kind, now, lease_until, limit))
    }

    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool> {
        let mut state = self.open()?;
        let is_held = state.queue.held(claim).is_some();
        if is_held {
            state.queue.reschedule(claim.id, lease_until);
        }
        Ok(is_held)
    }

    async fn finish(&self, claim: &Claim) -> Result<bool> {
        Ok(self.open()?.queue.finish(claim))
    }

    async fn abandon(&self, claim: &Claim, how: Abandon, error: &str) -> Result<bool> {
        Ok(self.open()?.queue.abandon(claim, &how, error))
    }

    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>> {
        Ok(self.open()?.queue.next_due(kind))
    }

    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool> {
        let is_back = self.open()?.queue.revive(scope, id, now);
        if is_back {
            self.inner.offered.notify_waiters();
        }
        Ok(is_back)
    }

    fn offered(&self) -> Arc<Notify> {
        Arc::clone(&self.inner.offered)
    }
}
