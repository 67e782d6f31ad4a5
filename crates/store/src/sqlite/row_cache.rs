//! Rows of recently written threads: each turn reads them without a look-up in the database.
//!
//! Only the writer fills the cache, from durable rows and before it replies.
//! So a cached row is the newest one, and a caller that has its reply finds its change.
//! Readers of the database see a change once it is committed, a moment before it is cached. So rows that a commit in progress changes are hidden until they are cached; otherwise a reader could find an older row after a newer one.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use trilogue_domain::{AgentName, TenantId, ThreadId, ThreadKey};

use super::error::lock;
use crate::port::{Batch, Change};
use crate::rows::{BindingRow, ThreadRow};

/// The most cached threads. Beyond that all are forgotten and looked up again.
const MAX_THREADS: usize = 1_024;
const MAX_BINDINGS: usize = 4;
/// A row with more bytes of free content is not cached. With the two limits above, this bounds the cache at 20 MiB.
const MAX_ROW_BYTES: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(super) struct RowCache(Mutex<CachedThreads>);

#[derive(Debug, Default)]
struct CachedThreads {
    rows: HashMap<ThreadKey, CachedThread>,
    keys: HashMap<(TenantId, ThreadId), ThreadKey>,
    /// Threads whose rows a commit in progress changes.
    hidden: HashSet<ThreadKey>,
}

#[derive(Debug)]
struct CachedThread {
    thread: ThreadRow,
    bindings: Vec<BindingRow>,
}

// === impl RowCache ===

impl RowCache {
    pub(super) fn thread(&self, tenant: &TenantId, id: &ThreadId) -> Option<ThreadRow> {
        lock(&self.0).get(tenant, id).map(|rows| rows.thread.clone())
    }

    pub(super) fn thread_of(&self, key: ThreadKey) -> Option<ThreadRow> {
        lock(&self.0).of(key).map(|rows| rows.thread.clone())
    }

    /// A thread and its binding to an agent, if both are cached.
    pub(super) fn binding(
        &self,
        tenant: &TenantId,
        id: &ThreadId,
        agent: &AgentName,
    ) -> Option<(ThreadRow, BindingRow)> {
        let threads = lock(&self.0);
        let rows = threads.get(tenant, id)?;
        let binding = rows.bindings.iter().find(|row| row.agent == *agent)?;
        Some((rows.thread.clone(), binding.clone()))
    }

    pub(super) fn committed(&self, batch: &Batch) {
        if !touches(batch) {
            return;
        }
        let mut threads = lock(&self.0);
        for change in &batch.changes {
            match change {
                Change::Thread(row) => threads.put(row),
                Change::Binding(row) => threads.bind(row),
                Change::RemoveThread => threads.forget(batch.thread),
                _ => {}
            }
        }
    }

    /// Hides the rows of these threads, which a commit is about to change, until [`RowCache::show`].
    pub(super) fn hide(&self, threads: impl Iterator<Item = ThreadKey>) {
        let mut threads = threads.peekable();
        if threads.peek().is_some() {
            lock(&self.0).hidden.extend(threads);
        }
    }

    /// Shows all rows again, after a commit was published or rolled back.
    pub(super) fn show(&self) {
        lock(&self.0).hidden.clear();
    }

    /// Forgets the rows of a thread that another job changed.
    pub(super) fn forget(&self, thread: ThreadKey) {
        lock(&self.0).forget(thread);
    }
}

// === impl CachedThreads ===

impl CachedThreads {
    fn get(&self, tenant: &TenantId, id: &ThreadId) -> Option<&CachedThread> {
        // Cloning an id shares its bytes.
        let key = self.keys.get(&(tenant.clone(), id.clone()))?;
        self.of(*key)
    }

    fn of(&self, key: ThreadKey) -> Option<&CachedThread> {
        self.rows.get(&key).filter(|_| !self.hidden.contains(&key))
    }

    fn put(&mut self, row: &ThreadRow) {
        if let Some(rows) = self.rows.get_mut(&row.key)
            && rows.thread.id == row.id
            && rows.thread.tenant == row.tenant
            && is_small(row)
        {
            rows.thread.clone_from(row);
            return;
        }
        self.forget(row.key);
        // A thread that was made for one run is seldom read again.
        if row.ephemeral || !is_small(row) {
            return;
        }
        if self.rows.len() >= MAX_THREADS {
            self.rows.clear();
            self.keys.clear();
        }
        self.keys.insert((row.tenant.clone(), row.id.clone()), row.key);
        self.rows.insert(row.key, CachedThread { thread: row.clone(), bindings: Vec::new() });
    }

    fn bind(&mut self, row: &BindingRow) {
        let Some(rows) = self.rows.get_mut(&row.thread) else { return };
        rows.bindings.retain(|other| other.agent != row.agent);
        let bytes = row.capabilities.as_bytes().len() + row.remote.len();
        if rows.bindings.len() < MAX_BINDINGS && bytes <= MAX_ROW_BYTES {
            rows.bindings.push(row.clone());
        }
    }

    fn forget(&mut self, thread: ThreadKey) {
        if let Some(rows) = self.rows.remove(&thread) {
            self.keys.remove(&(rows.thread.tenant, rows.thread.id));
        }
    }
}

pub(super) fn touches(batch: &Batch) -> bool {
    let touches = |change: &Change| {
        matches!(change, Change::Thread(_) | Change::Binding(_) | Change::RemoveThread)
    };
    batch.changes.iter().any(touches)
}

fn is_small(row: &ThreadRow) -> bool {
    row.metadata.as_bytes().len() <= MAX_ROW_BYTES
}
