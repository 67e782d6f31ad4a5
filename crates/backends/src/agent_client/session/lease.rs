use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::session::Session;
use crate::agent_client::process::ProcessLease;

/// Keeps a session from being closed or opened again, and its process from being stopped, until it is dropped.
pub(crate) struct SessionLease {
    session: Arc<Session>,
    _process: ProcessLease,
}

// === impl SessionLease ===

impl SessionLease {
    pub(crate) fn new(session: Arc<Session>, process: ProcessLease) -> Self {
        session.enter();
        Self { session, _process: process }
    }

    /// `None` if the session's process is being stopped.
    pub(crate) fn of(session: &Arc<Session>) -> Option<Self> {
        let process = session.process().lease()?;
        Some(Self::new(Arc::clone(session), process))
    }
}

impl Deref for SessionLease {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        self.session.leave();
    }
}

impl fmt::Debug for SessionLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionLease").field(&self.session).finish()
    }
}
