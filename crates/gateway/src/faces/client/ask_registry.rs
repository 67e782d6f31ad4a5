//! How many clients are being asked about each interrupt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use trilogue_domain::lock;
use trilogue_domain::{InterruptId, ThreadKey};

/// How many clients are being asked about each interrupt, over all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct AskRegistry(Arc<Mutex<HashMap<Subject, AskCount>>>);

/// An interrupt. The thread is part of it because other threads can use the same id.
type Subject = (ThreadKey, InterruptId);

#[derive(Debug, Default)]
struct AskCount {
    /// How many clients may still answer.
    open: usize,
    /// Whether a client has declined that waits for the answer to its own prompt.
    has_declined: bool,
}

/// One client that is being asked, until it answers, declines or disconnects.
#[derive(Debug)]
pub(crate) struct AskTicket {
    registry: AskRegistry,
    subject: Subject,
    is_returned: AtomicBool,
}

// === impl AskRegistry ===

impl AskRegistry {
    /// Counts a client that is being asked.
    pub(crate) fn join(&self, thread: ThreadKey, interrupt: &InterruptId) -> AskTicket {
        let subject = (thread, interrupt.clone());
        self.lock().entry(subject.clone()).or_default().open += 1;
        AskTicket { registry: self.clone(), subject, is_returned: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Subject, AskCount>> {
        lock(&self.0)
    }
}

// === impl AskTicket ===

impl AskTicket {
    pub(crate) fn interrupt(&self) -> &InterruptId {
        &self.subject.1
    }

    pub(crate) fn thread(&self) -> ThreadKey {
        self.subject.0
    }

    /// Counts the client as declined. Returns `true` if no other client is being asked and a declined one waits for the turn: then the interrupt is
    /// declined. Without such a client, the question stays open for the one that began the run.
    pub(crate) fn decline(&self, waits_for_turn: bool) -> bool {
        self.put_back(waits_for_turn)
    }

    /// Counts the client as disconnected. Returns `true` like [`Self::decline`].
    pub(crate) fn leave(&self) -> bool {
        self.put_back(false)
    }

    fn put_back(&self, declines: bool) -> bool {
        if self.is_returned.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut counts = self.registry.lock();
        let Some(count) = counts.get_mut(&self.subject) else { return false };
        count.open = count.open.saturating_sub(1);
        count.has_declined |= declines;
        if count.open > 0 {
            return false;
        }
        let has_declined = count.has_declined;
        counts.remove(&self.subject);
        has_declined
    }
}

impl Drop for AskTicket {
    fn drop(&mut self) {
        self.leave();
    }
}
