//! The sub-agents that a client knows from its sessions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use trilogue_domain::ThreadId;
use trilogue_domain::lock;

use super::session::ClientSession;

/// How many sub-agents of a client are remembered. Beyond that the oldest are forgotten, first those whose work has ended. They then count as other threads.
const MAX_ANNOUNCED: usize = 1_024;

/// The sub-agents that a client knows from its sessions, oldest first. It did not open their sessions itself, so it can change them only as announced.
#[derive(Debug, Default)]
pub(crate) struct AnnouncedChildren(Mutex<VecDeque<AnnouncedChild>>);

#[derive(Debug)]
struct AnnouncedChild {
    thread: ThreadId,
    /// The session that the client has opened.
    root: ThreadId,
    can_cancel: bool,
    /// Its session while its updates are sent.
    session: Weak<ClientSession>,
}

// === impl AnnouncedChildren ===

impl AnnouncedChildren {
    pub(crate) fn announce(&self, thread: &ThreadId, root: &ThreadId, can_cancel: bool) {
        let mut children = self.lock();
        if let Some(known) = children.iter_mut().find(|known| known.thread == *thread) {
            known.can_cancel = can_cancel;
            return;
        }
        if children.len() >= MAX_ANNOUNCED {
            let ended = children.iter().position(|known| known.session.strong_count() == 0);
            let oldest = children.remove(ended.unwrap_or(0));
            if let Some(session) = oldest.and_then(|oldest| oldest.session.upgrade()) {
                session.stop.cancel();
            }
        }
        children.push_back(AnnouncedChild {
            thread: thread.clone(),
            root: root.clone(),
            can_cancel,
            session: Weak::new(),
        });
    }

    /// Records the session of an announced child whose updates are sent from now on.
    pub(crate) fn follow(&self, session: &Arc<ClientSession>) {
        let mut children = self.lock();
        if let Some(known) = children.iter_mut().find(|it| it.thread == session.thread.id) {
            known.session = Arc::downgrade(session);
        }
    }

    /// Returns the session of a child whose updates are sent.
    pub(crate) fn session(&self, thread: &ThreadId) -> Option<Arc<ClientSession>> {
        let known = self.lock();
        known.iter().find(|known| known.thread == *thread)?.session.upgrade()
    }

    /// Whether the client may cancel the runs of a thread; `None` if the thread is not known as a child.
    pub(crate) fn can_cancel(&self, thread: &ThreadId) -> Option<bool> {
        self.lock().iter().find(|known| known.thread == *thread).map(|known| known.can_cancel)
    }

    /// Makes a child an ordinary thread, because the client opens it itself. Its updates no longer come from its parent's pump.
    pub(crate) fn forget(&self, thread: &ThreadId) {
        let mut children = self.lock();
        let Some(place) = children.iter().position(|known| known.thread == *thread) else { return };
        let session = children.remove(place).and_then(|known| known.session.upgrade());
        drop(children);
        if let Some(session) = session {
            session.stop.cancel();
        }
    }

    /// Forgets all children below a session that the client has opened.
    pub(crate) fn forget_below(&self, root: &ThreadId) {
        self.lock().retain(|known| known.root != *root);
    }

    /// Marks the client as active in the children's sessions: it can still answer.
    pub(crate) fn touch(&self) {
        let sessions: Vec<_> = self.lock().iter().filter_map(|it| it.session.upgrade()).collect();
        sessions.iter().for_each(|session| session.touch());
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<AnnouncedChild>> {
        lock(&self.0)
    }
}
