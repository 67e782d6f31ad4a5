//! Leases of a process: a process with a lease is not stopped as idle.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;
use trilogue_domain::lock;

use super::process::Process;

/// Keeps a process from being stopped as idle.
#[derive(Debug)]
pub(crate) struct ProcessLease(Arc<Process>);

/// The leases of one process.
pub(super) struct Leases {
    usage: Mutex<Usage>,
    /// Notified when the last lease ends.
    pool_changed: Arc<Notify>,
}

#[derive(Debug)]
struct Usage {
    leases: usize,
    /// When the last lease ended.
    last_ended: Instant,
    /// Whether the server is stopping it. No further lease is given.
    is_stopping: bool,
}

// === impl Leases ===

impl Leases {
    pub(super) fn new(pool_changed: Arc<Notify>) -> Self {
        let usage = Usage { leases: 0, last_ended: Instant::now(), is_stopping: false };
        Self { usage: Mutex::new(usage), pool_changed }
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.usage).leases
    }

    /// Stops giving leases.
    pub(super) fn stop(&self) {
        lock(&self.usage).is_stopping = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        lock(&self.usage).is_stopping
    }

    /// Stops giving leases, unless the process has one now. Returns `true` if the caller must stop the process.
    pub(super) fn retire_if_idle(&self) -> bool {
        let mut usage = lock(&self.usage);
        let is_idle = usage.is_idle();
        usage.is_stopping |= is_idle;
        is_idle
    }

    /// The time since which it is idle. `None` while it is in use or being stopped.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let usage = lock(&self.usage);
        usage.is_idle().then_some(usage.last_ended)
    }

    pub(super) fn last_ended(&self) -> Instant {
        lock(&self.usage).last_ended
    }

    /// Counts as idle from now on.
    pub(super) fn touch(&self) {
        lock(&self.usage).last_ended = Instant::now();
    }

    fn end(&self) {
        let is_unused = {
            let mut usage = lock(&self.usage);
            usage.last_ended = Instant::now();
            usage.leases -= 1;
            usage.leases == 0
        };
        if is_unused {
            self.pool_changed.notify_waiters();
        }
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.usage.fmt(f)
    }
}

// === impl Usage ===

impl Usage {
    fn is_idle(&self) -> bool {
        self.leases == 0 && !self.is_stopping
    }
}

// === impl ProcessLease ===

impl ProcessLease {
    /// `None` if the process is being stopped.
    pub(super) fn take(process: &Arc<Process>) -> Option<Self> {
        let mut usage = lock(&process.leases().usage);
        if usage.is_stopping {
            return None;
        }
        usage.leases += 1;
        Some(Self(Arc::clone(process)))
    }

    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.0
    }
}

impl Drop for ProcessLease {
    fn drop(&mut self) {
        self.0.leases().end();
    }
}
