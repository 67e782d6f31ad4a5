//! How many clients have each session open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use trilogue_domain::ThreadKey;
use trilogue_domain::lock;

#[derive(Clone, Debug, Default)]
pub(crate) struct OpenSessions(Arc<Mutex<HashMap<ThreadKey, usize>>>);

/// Counts a client until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenSessionGuard {
    sessions: OpenSessions,
    thread: ThreadKey,
}

// === impl OpenSessions ===

impl OpenSessions {
    pub(crate) fn count(&self, thread: ThreadKey) -> usize {
        self.lock().get(&thread).copied().unwrap_or(0)
    }

    pub(crate) fn open(&self, thread: ThreadKey) -> OpenSessionGuard {
        *self.lock().entry(thread).or_insert(0) += 1;
        OpenSessionGuard { sessions: self.clone(), thread }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, usize>> {
        lock(&self.0)
    }
}

impl Drop for OpenSessionGuard {
    fn drop(&mut self) {
        let mut sessions = self.sessions.lock();
        if let Some(count) = sessions.get_mut(&self.thread) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.thread);
            }
        }
    }
}
