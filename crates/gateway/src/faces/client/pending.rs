//! What the client was asked and has not answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use trilogue_domain::lock;
use trilogue_domain::{Interrupt, InterruptId, Json, RunKey, ThreadId};
use trilogue_runtime::CallError;

use super::voice::Voice;

/// The most requests that one client has not answered. What agents ask it beyond that is refused.
const MAX_ASKED: usize = 4_096;

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

/// Why a client is not asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAsked {
    /// It is gone.
    Closed,
    /// It has not answered too much already.
    Full,
}

/// An interrupt that the client was asked about.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) interrupt: Interrupt,
    pub(super) form: Form,
    pub(super) session: ThreadId,
    /// The run that waits.
    pub(super) run: RunKey,
    /// Counts the client among those who are asked.
    pub(super) voice: Voice,
    /// Set when the client has ended the turn: what it answers after that is no answer.
    is_over: AtomicBool,
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

    /// Waits for the answer to this request.
    ///
    /// # Errors
    /// Where no answer comes any more, or too many are waited for.
    pub(super) fn wait(&self, number: u64, asked: Asked) -> Result<(), NotAsked> {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return Err(NotAsked::Closed);
        }
        if waiting.asked.len() >= MAX_ASKED {
            return Err(NotAsked::Full);
        }
        waiting.asked.insert(number, asked);
        Ok(())
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

    /// The client has ended what these questions belong to: it answers them because it has to, and chooses nothing by that.
    pub(super) fn give_up(&self, is_meant: impl Fn(&Question) -> bool) {
        for asked in self.lock().asked.values() {
            if let Asked::Question(question) = asked
                && is_meant(question)
            {
                question.is_over.store(true, Ordering::Release);
            }
        }
    }

    /// Takes the questions of a session: the client is not asked them any more.
    pub(super) fn leave(&self, session: &ThreadId) -> Vec<(u64, Arc<Question>)> {
        let mut left = Vec::new();
        self.lock().asked.retain(|number, asked| match asked {
            Asked::Question(question) if question.session == *session => {
                left.push((*number, Arc::clone(question)));
                false
            }
            _ => true,
        });
        left
    }

    /// Nobody waits any more: the client is gone. Gives what it was asked.
    pub(super) fn close(&self) -> Vec<Arc<Question>> {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        let left = waiting.asked.drain().filter_map(|(_, asked)| match asked {
            Asked::Question(question) => Some(question),
            Asked::Call(_) => None,
        });
        left.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

// === impl Asked ===

impl Asked {
    fn is_about(&self, id: &InterruptId) -> bool {
        matches!(self, Self::Question(question) if question.interrupt.id == *id)
    }
}

// === impl Question ===

impl Question {
    pub(super) fn new(
        interrupt: &Interrupt,
        form: Form,
        session: &ThreadId,
        run: RunKey,
        voice: Voice,
    ) -> Self {
        let (interrupt, session) = (interrupt.clone(), session.clone());
        Self { interrupt, form, session, run, voice, is_over: AtomicBool::new(false) }
    }

    /// Whether the client has ended the turn that asks.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
