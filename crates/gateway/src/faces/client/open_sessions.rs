//! How many clients have each session open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use trilogue_domain::ThreadKey;

use super::link::lock;

/// How many clients have each session open.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenSessions(Arc<Mutex<HashMap<ThreadKey, usize>>>);

/// Counts a client until it is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    sessions: OpenSessions,
    thread: ThreadKey,
}

// === impl OpenSessions ===

impl OpenSessions {
    /// How many clients have this session open.
    pub(super) fn count(&self, thread: ThreadKey) -> usize {
        lock(&self.0).get(&thread).copied().unwrap_or(0)
    }

    pub(super) fn open(&self, thread: ThreadKey) -> Counted {
        *lock(&self.0).entry(thread).or_insert(0) += 1;
        Counted { sessions: self.clone(), thread }
    }
}

// === impl Counted ===

impl Drop for Counted {
    fn drop(&mut self) {
        let mut sessions = lock(&self.sessions.0);
        if let Some(count) = sessions.get_mut(&self.thread) {
            *count -= 1;
            if *count == 0 {
                sessions.remove(&self.thread);
            }
        }
    }
}
