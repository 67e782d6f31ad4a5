//! Who is asked about an interrupt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use trilogue_domain::{InterruptId, ThreadKey};

use super::link::lock;

/// How many clients are being asked about each interrupt, over all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Voices(Arc<Mutex<HashMap<Subject, Poll>>>);

/// An interrupt, wherever its id is used again.
type Subject = (ThreadKey, InterruptId);

#[derive(Debug, Default)]
struct Poll {
    /// How many may still answer.
    asked: usize,
    /// Whether one of those who were asked would not be.
    refused: bool,
}

/// One client that is asked, until it answers, refuses or is gone.
#[derive(Debug)]
pub(super) struct Voice {
    voices: Voices,
    subject: Subject,
    is_out: AtomicBool,
}

// === impl Voices ===

impl Voices {
    /// Counts a client among those who are asked.
    pub(super) fn join(&self, thread: ThreadKey, interrupt: &InterruptId) -> Voice {
        let subject = (thread, interrupt.clone());
        lock(&self.0).entry(subject.clone()).or_default().asked += 1;
        Voice { voices: self.clone(), subject, is_out: AtomicBool::new(false) }
    }
}

// === impl Voice ===

impl Voice {
    pub(super) fn interrupt(&self) -> &InterruptId {
        &self.subject.1
    }

    pub(super) fn thread(&self) -> ThreadKey {
        self.subject.0
    }

    /// The client will not be asked. `true` where nobody else is.
    pub(super) fn refuse(&self) -> bool {
        self.go_out(true)
    }

    /// The client is gone. `true` where nobody else is asked, and one of those who were would not be.
    pub(super) fn leave(&self) -> bool {
        self.go_out(false)
    }

    fn go_out(&self, refuses: bool) -> bool {
        if self.is_out.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut polls = lock(&self.voices.0);
        let Some(poll) = polls.get_mut(&self.subject) else { return false };
        poll.asked = poll.asked.saturating_sub(1);
        poll.refused |= refuses;
        if poll.asked > 0 {
            return false;
        }
        let refused = poll.refused;
        polls.remove(&self.subject);
        refused
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.leave();
    }
}
