//! A session that somebody works with.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::process::Use;
use super::session::Session;

/// Keeps a session from being closed or opened anew, and its process from being stopped, until it is dropped.
pub(super) struct Working {
    session: Arc<Session>,
    _used: Use,
}

// === impl Working ===

impl Working {
    pub(super) fn new(session: Arc<Session>, used: Use) -> Self {
        session.enter();
        Self { session, _used: used }
    }

    /// The session; `None` where its process is about to end.
    pub(super) fn with(session: &Arc<Session>) -> Option<Self> {
        let used = session.process().hold()?;
        Some(Self::new(Arc::clone(session), used))
    }
}

impl Deref for Working {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.session.leave();
    }
}

impl fmt::Debug for Working {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Working").field(&self.session).finish()
    }
}
