//! What the client was asked and has not answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use trilogue_domain::{Interrupt, InterruptId, Json};
use trilogue_runtime::CallError;

/// What the client was asked and has not answered, by the number that the request has as its id.
#[derive(Debug, Default)]
pub(super) struct Pending {
    last: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    asked: HashMap<u64, Asked>,
    is_closed: bool,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Asked {
    /// An agent.
    Call(oneshot::Sender<Result<Json, CallError>>),
    /// Whoever is to answer an interrupt.
    Question(Arc<Question>),
}

/// An interrupt that the client was asked about.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) interrupt: Interrupt,
    pub(super) form: Form,
}

/// How the client was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Permission,
    Elicitation,
}

// === impl Pending ===

impl Pending {
    /// A number that no request has had.
    pub(super) fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for the answer to this request. `false` when no answer comes any more.
    pub(super) fn wait(&self, number: u64, asked: Asked) -> bool {
        let mut waiting = self.lock();
        if !waiting.is_closed {
            waiting.asked.insert(number, asked);
        }
        !waiting.is_closed
    }

    /// Who waits for the answer to this request; nobody does any more.
    pub(super) fn take(&self, number: u64) -> Option<Asked> {
        self.lock().asked.remove(&number)
    }

    /// Whether the client is being asked about an interrupt.
    pub(super) fn asks(&self, id: &InterruptId) -> bool {
        self.lock().asked.values().any(|asked| asked.is_about(id))
    }

    /// Takes the question about an interrupt back, and says which request it was.
    pub(super) fn withdraw(&self, id: &InterruptId) -> Option<u64> {
        let mut waiting = self.lock();
        let number = *waiting.asked.iter().find(|(_, asked)| asked.is_about(id))?.0;
        waiting.asked.remove(&number);
        Some(number)
    }

    /// Nobody waits any more: the client is gone.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.asked.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Asked ===

impl Asked {
    fn is_about(&self, id: &InterruptId) -> bool {
        matches!(self, Self::Question(question) if question.interrupt.id == *id)
    }
}
