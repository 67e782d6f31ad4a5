//! Readers that wait for commits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use trilogue_domain::ThreadKey;

use super::Inner;
use crate::port::{Tail, TailGuard};

/// The threads that somebody reads along.
#[derive(Debug, Default)]
pub(super) struct Tails {
    attached: HashMap<ThreadKey, Attached>,
}

#[derive(Debug)]
struct Attached {
    sender: Arc<watch::Sender<u64>>,
    readers: usize,
}

/// Detaches one reader.
struct Guard {
    inner: Arc<Inner>,
    thread: ThreadKey,
}

// === impl Tails ===

impl Tails {
    /// Who is to be woken when this thread changes.
    pub(super) fn of(&self, thread: ThreadKey) -> Option<Arc<watch::Sender<u64>>> {
        self.attached.get(&thread).map(|attached| Arc::clone(&attached.sender))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty()
    }
}

// === impl Inner ===

impl Inner {
    /// Attaches a reader.
    pub(super) fn attach(self: &Arc<Self>, thread: ThreadKey) -> Tail {
        let mut state = self.lock();
        let last = state.threads.get(&thread).map_or(0, |thread| thread.last);
        let attached = state
            .tails
            .attached
            .entry(thread)
            .or_insert_with(|| Attached { sender: Arc::new(watch::Sender::new(last)), readers: 0 });
        attached.readers += 1;
        let committed = attached.sender.subscribe();
        Tail { committed, guard: Box::new(Guard { inner: Arc::clone(self), thread }) }
    }
}

// === impl Guard ===

impl TailGuard for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        if let Some(attached) = state.tails.attached.get_mut(&self.thread) {
            attached.readers -= 1;
            if attached.readers == 0 {
                state.tails.attached.remove(&self.thread);
            }
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.thread).finish()
    }
}
