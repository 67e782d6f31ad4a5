//! The store of `memory:`: all data is in this process and is lost when it ends.
//!
//! One short lock guards the maps. Frames are shared, never copied, and no work is done per event.
//! It keeps the newest [`Options::max_runs`] runs and [`Options::max_bytes`] bytes. Beyond that, it evicts the oldest finished runs with all their data.

mod admin;
mod append;
mod apply;
mod blob;
mod check;
mod configuration;
mod eviction;
mod housekeeping;
mod key_map;
mod listing;
mod ports;
mod queue;
mod read;
mod size_estimate;
mod state;
mod tenant;
#[cfg(test)]
mod tests;
mod thread;
mod token;

use std::fmt;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use trilogue_domain::error::Result;
use trilogue_domain::lock;

use self::state::State;
use crate::core::closed_error;
use crate::core::sign_in::SignInLinks;
use crate::core::tail::Tails;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The most runs that it keeps, including open ones. The oldest finished runs are removed first, open ones never.
    pub max_runs: usize,
    /// The most bytes that it keeps, by its own estimate. The oldest data is evicted first.
    /// If open runs alone hold [`REFUSING_FACTOR`] times as much, only changes that end runs are admitted.
    pub max_bytes: usize,
}

/// At this many times [`Options::max_bytes`] the store refuses new work with `disk_full`.
pub const REFUSING_FACTOR: usize = 4;

/// A store in memory. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<MemoryInner>,
}

struct MemoryInner {
    options: Options,
    state: Mutex<State>,
    tails: Arc<Tails>,
    next_thread: AtomicI64,
    next_run: AtomicI64,
    next_checkpoint: AtomicI64,
    offered: Arc<Notify>,
    sign_in_links: SignInLinks,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { max_runs: 10_000, max_bytes: 64 * 1024 * 1024 }
    }
}

// === impl MemoryStore ===

impl MemoryStore {
    #[must_use]
    pub fn new(options: Options) -> Self {
        // The tails share their frames with the store, so they need no bound.
        let tails = Arc::new(Tails::new(usize::MAX));
        let inner = MemoryInner {
            options,
            state: Mutex::new(State::new(Arc::clone(&tails))),
            tails,
            next_thread: AtomicI64::new(1),
            next_run: AtomicI64::new(1),
            next_checkpoint: AtomicI64::new(1),
            offered: Arc::default(),
            sign_in_links: SignInLinks::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.inner.lock();
        if state.is_closed {
            return Err(closed_error());
        }
        Ok(state)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

// === impl MemoryInner ===

impl MemoryInner {
    /// The locked state. No code in this module panics while it changes the state, so the data behind a poisoned lock is consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
