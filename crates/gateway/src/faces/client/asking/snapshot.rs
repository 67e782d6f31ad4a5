//! Records which question a client knew when its prompt arrived: a prompt answers only a question that came before it.

use trilogue_domain::{InterruptId, ThreadId, Timestamp};
use trilogue_store::rows::InterruptRow;

use super::super::connection::ClientConnection;
use super::super::connection::queue::SessionQueue;

#[derive(Clone, Debug)]
pub(crate) enum QuestionSnapshot {
    /// The question that the client had received, if any.
    Received(Option<InterruptId>),
    /// The client had not received the session yet: any question raised by this time counts.
    RaisedBy(Timestamp),
}

// === impl QuestionSnapshot ===

impl QuestionSnapshot {
    pub(crate) fn of_queue(connection: &ClientConnection, queue: &SessionQueue) -> Self {
        let Some(session) = queue.session() else { return Self::now(connection) };
        let state = session.state();
        if !state.knows_questions {
            return Self::now(connection);
        }
        Self::Received(state.question.as_ref().map(|question| question.id.clone()))
    }

    pub(crate) fn of_session(connection: &ClientConnection, session: &ThreadId) -> Self {
        match connection.queues.get(session) {
            Some(queue) => Self::of_queue(connection, &queue),
            None => Self::now(connection),
        }
    }

    fn now(connection: &ClientConnection) -> Self {
        Self::RaisedBy(connection.state.clock.now())
    }

    pub(crate) fn includes(&self, row: &InterruptRow) -> bool {
        match self {
            Self::Received(question) => question.as_ref() == Some(&row.interrupt.id),
            Self::RaisedBy(time) => row.raised_at <= *time,
        }
    }
}
