//! The store's state when its disk fails, and the threads that readers must not see: damaged ones, and removed ones whose rows are still being deleted.
//!
//! ```text
//! healthy ⇄ full           the disk is full; back when there is room again
//!    │       │
//!    ├───────┴─▶ read-only an I/O error; until the next start
//!    └─────────▶ corrupt   the engine's own structures are damaged; until it is restored
//! ```

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::lock;
use trilogue_domain::{Scope, ThreadKey};

use super::{closed_error, damaged, no_thread};
use crate::rows::{InterruptRow, RunRow, ThreadRow};

/// The shortest interval between two probes of a full disk.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// The state of the whole store. The variants are ordered; a later one is worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum StoreState {
    Healthy = 0,
    Full = 1,
    ReadOnly = 2,
    Corrupt = 3,
    Closed = 4,
}

#[derive(Debug)]
pub(crate) struct Health {
    path: PathBuf,
    state: AtomicU8,
    detail: Mutex<String>,
    probed: Mutex<Option<Instant>>,
    pub(crate) quarantine: Quarantine,
    pub(crate) hidden: HiddenThreads,
}

/// Removed threads whose rows are deleted in parts. Readers and writers treat them as missing.
#[derive(Debug, Default)]
pub(crate) struct HiddenThreads {
    /// The number of hidden threads. A store without one skips the lock.
    count: AtomicUsize,
    threads: Mutex<HashSet<ThreadKey>>,
}

/// Threads with damaged data, with the first damage that was found.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Whether any thread is damaged. A store without damage skips the lock.
    is_used: AtomicBool,
    threads: Mutex<HashMap<ThreadKey, String>>,
}

/// A row of a thread, for visibility checks.
pub(crate) trait OwnedRow {
    fn thread_key(&self) -> ThreadKey;
    fn is_seen(&self, scope: &Scope) -> bool;
}

// === impl OwnedRow ===

macro_rules! owned_row {
    ($($row:ty: $thread:ident of $owner:ident),+) => {$(
        impl OwnedRow for $row {
            fn thread_key(&self) -> ThreadKey {
                self.$thread
            }

            fn is_seen(&self, scope: &Scope) -> bool {
                scope.can_see(&self.tenant, &self.$owner)
            }
        }
    )+};
}
owned_row!(ThreadRow: key of owner, RunRow: thread of principal, InterruptRow: thread of principal);

impl<R: OwnedRow> OwnedRow for Arc<R> {
    fn thread_key(&self) -> ThreadKey {
        (**self).thread_key()
    }

    fn is_seen(&self, scope: &Scope) -> bool {
        (**self).is_seen(scope)
    }
}

// === impl Health ===

impl Health {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            state: AtomicU8::new(StoreState::Healthy as u8),
            detail: Mutex::default(),
            probed: Mutex::default(),
            quarantine: Quarantine::default(),
            hidden: HiddenThreads::default(),
        }
    }

    pub(crate) fn state(&self) -> StoreState {
        match self.state.load(Ordering::Acquire) {
            0 => StoreState::Healthy,
            1 => StoreState::Full,
            2 => StoreState::ReadOnly,
            3 => StoreState::Corrupt,
            _ => StoreState::Closed,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves to a worse state. Only [`Health::recover`] leads back.
    pub(crate) fn worsen(&self, to: StoreState, detail: &str) {
        let before = self.state.fetch_max(to as u8, Ordering::AcqRel);
        if before >= to as u8 {
            return;
        }
        *lock(&self.detail) = detail.to_owned();
        match to {
            StoreState::Full => tracing::error!(store = %self.path.display(), "the disk is full"),
            StoreState::ReadOnly => {
                tracing::error!(store = %self.path.display(), detail, "the store takes no more writes");
            }
            StoreState::Corrupt => {
                tracing::error!(store = %self.path.display(), detail, "the store is damaged");
            }
            StoreState::Healthy | StoreState::Closed => {}
        }
    }

    pub(crate) fn recover(&self) {
        let back = self.state.compare_exchange(
            StoreState::Full as u8,
            StoreState::Healthy as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if back.is_ok() {
            tracing::info!(store = %self.path.display(), "the disk has room again");
        }
    }

    /// Whether a full store may probe for room now. Returns `true` at most once per interval.
    pub(crate) fn may_probe(&self) -> bool {
        let mut probed = lock(&self.probed);
        let due = probed.is_none_or(|last| last.elapsed() >= PROBE_EVERY);
        if due {
            *probed = Some(Instant::now());
        }
        due
    }

    /// Whether the next probe is due, without taking it.
    pub(crate) fn probe_is_due(&self) -> bool {
        lock(&self.probed).is_none_or(|last| last.elapsed() >= PROBE_EVERY)
    }

    pub(crate) fn error(&self, state: StoreState) -> Option<Error> {
        let path = self.path.display();
        let detail = || lock(&self.detail).clone();
        Some(match state {
            StoreState::Healthy => return None,
            StoreState::Full => Error::new(
                Code::DiskFull,
                format!("no space left for the store '{path}'"),
            )
            .hint("free some disk space; until then runs can end, interrupts be answered and threads be erased"),
            StoreState::ReadOnly => Error::new(
                Code::StoreReadOnly,
                format!("the store '{path}' takes no more writes: {}", detail()),
            )
            .hint("check the disk and the server's log, then start the server again; what was acknowledged is kept"),
            StoreState::Corrupt => Error::new(
                Code::StoreCorrupt,
                format!("the store '{path}' is damaged: {}", detail()),
            )
            .hint("stop the server and bring back a backup with: trilogue restore BACKUP"),
            StoreState::Closed => closed_error(),
        })
    }

    pub(crate) fn check_read(&self) -> Result<()> {
        match self.state() {
            StoreState::Healthy | StoreState::Full | StoreState::ReadOnly => Ok(()),
            state => self.error(state).map_or(Ok(()), Err),
        }
    }

    /// Fails if the write is not admitted. A vital write makes room or ends something.
    pub(crate) fn check_write(&self, is_vital: bool) -> Result<()> {
        match self.state() {
            StoreState::Full if is_vital => Ok(()),
            state => self.error(state).map_or(Ok(()), Err),
        }
    }

    /// Fails with `thread_quarantined`, or with `thread_not_found` for a removed thread.
    pub(crate) fn check_thread(&self, thread: ThreadKey) -> Result<()> {
        if self.hidden.contains(thread) {
            return Err(no_thread(thread));
        }
        self.quarantine.check(thread)
    }

    /// The row that was found, if the scope sees it and its thread is not hidden. Fails as [`Quarantine::check`].
    pub(crate) fn visible<R: OwnedRow>(
        &self,
        scope: &Scope,
        found: Option<R>,
    ) -> Result<Option<R>> {
        let found = found.filter(|row| !self.hidden.contains(row.thread_key()));
        self.quarantine.visible(scope, found)
    }

    /// The row that was found, if its thread is not hidden. Fails as [`Quarantine::check`].
    pub(crate) fn unless_quarantined<T>(
        &self,
        found: Option<T>,
        thread: impl Fn(&T) -> ThreadKey,
    ) -> Result<Option<T>> {
        let found = found.filter(|row| !self.hidden.contains(thread(row)));
        if let Some(row) = &found {
            self.quarantine.check(thread(row))?;
        }
        Ok(found)
    }
}

// === impl HiddenThreads ===

impl HiddenThreads {
    pub(crate) fn contains(&self, thread: ThreadKey) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.threads).contains(&thread)
    }

    /// Hides a thread, before the transaction that removes it commits.
    pub(crate) fn hide(&self, thread: ThreadKey) {
        let mut threads = lock(&self.threads);
        threads.insert(thread);
        self.count.store(threads.len(), Ordering::Release);
    }

    /// Forgets a thread that was deleted completely, or whose removal was rolled back.
    pub(crate) fn forget(&self, thread: ThreadKey) {
        let mut threads = lock(&self.threads);
        threads.remove(&thread);
        self.count.store(threads.len(), Ordering::Release);
    }
}

// === impl Quarantine ===

impl Quarantine {
    pub(crate) fn check(&self, thread: ThreadKey) -> Result<()> {
        if !self.is_used.load(Ordering::Acquire) {
            return Ok(());
        }
        match lock(&self.threads).get(&thread) {
            None => Ok(()),
            Some(why) => Err(damaged(format!("the thread's stored data is damaged: {why}"))),
        }
    }

    /// Why the thread is quarantined.
    pub(crate) fn reason(&self, thread: ThreadKey) -> Option<String> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.threads).get(&thread).cloned()
    }

    /// The row that was found, if the scope sees it. Fails as [`Quarantine::check`].
    pub(crate) fn visible<R: OwnedRow>(
        &self,
        scope: &Scope,
        found: Option<R>,
    ) -> Result<Option<R>> {
        let Some(row) = found.filter(|row| row.is_seen(scope)) else { return Ok(None) };
        self.check(row.thread_key())?;
        Ok(Some(row))
    }

    pub(crate) fn add(&self, thread: ThreadKey, why: &str) {
        let mut threads = lock(&self.threads);
        if threads.insert(thread, why.to_owned()).is_none() {
            tracing::error!(%thread, why, "the thread is quarantined");
        }
        self.is_used.store(true, Ordering::Release);
    }

    /// The thread is gone, and its damage with it.
    pub(crate) fn remove(&self, thread: ThreadKey) {
        if self.is_used.load(Ordering::Acquire) {
            lock(&self.threads).remove(&thread);
        }
    }

    pub(crate) fn len(&self) -> u64 {
        lock(&self.threads).len() as u64
    }
}
