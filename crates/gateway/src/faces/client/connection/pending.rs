//! Requests to the client that it has not answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use trilogue_domain::lock;
use trilogue_domain::{Interrupt, InterruptId, Json, RunKey, ThreadId};
use trilogue_runtime::CallError;

use super::super::ask_registry::AskTicket;

/// The most unanswered requests to one client. Further ones are refused.
const MAX_PENDING: usize = 4_096;

/// The receivers of the client's replies, by the number that each request has as its id.
#[derive(Debug, Default)]
pub(crate) struct PendingReplies {
    last: AtomicU64,
    table: Mutex<PendingTable>,
}

#[derive(Debug, Default)]
struct PendingTable {
    replies: HashMap<u64, PendingReply>,
    is_closed: bool,
}

/// The receiver of a reply.
#[derive(Debug)]
pub(crate) enum PendingReply {
    /// An agent.
    Call(oneshot::Sender<Result<Json, CallError>>),
    /// An interrupt.
    Question(Arc<PendingQuestion>),
}

/// Why a request to the client is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskRefusal {
    /// The client is gone.
    Closed,
    /// The client has left too many requests unanswered.
    Full,
}

/// A request to the client about an interrupt.
#[derive(Debug)]
pub(crate) struct PendingQuestion {
    pub(crate) interrupt: Interrupt,
    pub(crate) form: QuestionForm,
    pub(crate) session: ThreadId,
    /// The run that waits.
    pub(crate) run: RunKey,
    /// Counts the client among those that are being asked.
    pub(crate) ticket: AskTicket,
    /// Set when the client cancels the turn: later replies are ignored.
    is_over: AtomicBool,
}

/// The request that asks the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QuestionForm {
    Permission,
    Elicitation,
}

// === impl PendingReplies ===

impl PendingReplies {
    /// Returns an unused request number.
    pub(crate) fn next(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers the receiver of the reply to this request.
    pub(crate) fn add(&self, number: u64, reply: PendingReply) -> Result<(), AskRefusal> {
        let mut table = self.lock();
        if table.is_closed {
            return Err(AskRefusal::Closed);
        }
        if table.replies.len() >= MAX_PENDING {
            return Err(AskRefusal::Full);
        }
        table.replies.insert(number, reply);
        Ok(())
    }

    /// Removes and returns the receiver of the reply to this request.
    pub(crate) fn take(&self, number: u64) -> Option<PendingReply> {
        self.lock().replies.remove(&number)
    }

    /// Whether the client is being asked about an interrupt.
    pub(crate) fn asks(&self, id: &InterruptId) -> bool {
        self.lock().replies.values().any(|reply| reply.is_about(id))
    }

    /// Removes the question about an interrupt. Returns the number of its request.
    pub(crate) fn withdraw(&self, id: &InterruptId) -> Option<u64> {
        let mut table = self.lock();
        let number = *table.replies.iter().find(|(_, reply)| reply.is_about(id))?.0;
        table.replies.remove(&number);
        Some(number)
    }

    /// Ignores the replies to these questions: a client that cancels a turn must reply to its questions, but such a reply chooses nothing.
    pub(crate) fn ignore(&self, is_meant: impl Fn(&PendingQuestion) -> bool) {
        for reply in self.lock().replies.values() {
            if let PendingReply::Question(question) = reply
                && is_meant(question)
            {
                question.is_over.store(true, Ordering::Release);
            }
        }
    }

    /// Removes and returns the questions of a session.
    pub(crate) fn take_session(&self, session: &ThreadId) -> Vec<(u64, Arc<PendingQuestion>)> {
        let mut taken = Vec::new();
        self.lock().replies.retain(|number, reply| match reply {
            PendingReply::Question(question) if question.session == *session => {
                taken.push((*number, Arc::clone(question)));
                false
            }
            _ => true,
        });
        taken
    }

    /// Refuses further requests because the client is gone. Returns its questions.
    pub(crate) fn close(&self) -> Vec<Arc<PendingQuestion>> {
        let mut table = self.lock();
        table.is_closed = true;
        let questions = table.replies.drain().filter_map(|(_, reply)| match reply {
            PendingReply::Question(question) => Some(question),
            PendingReply::Call(_) => None,
        });
        questions.collect()
    }

    fn lock(&self) -> MutexGuard<'_, PendingTable> {
        lock(&self.table)
    }
}

// === impl PendingReply ===

impl PendingReply {
    fn is_about(&self, id: &InterruptId) -> bool {
        matches!(self, Self::Question(question) if question.interrupt.id == *id)
    }
}

// === impl PendingQuestion ===

impl PendingQuestion {
    pub(crate) fn new(
        interrupt: &Interrupt,
        form: QuestionForm,
        session: &ThreadId,
        run: RunKey,
        ticket: AskTicket,
    ) -> Self {
        let (interrupt, session) = (interrupt.clone(), session.clone());
        Self { interrupt, form, session, run, ticket, is_over: AtomicBool::new(false) }
    }

    /// Whether the client has cancelled the turn that asks.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
