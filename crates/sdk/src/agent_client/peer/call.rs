use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde_json::json;
use tokio::sync::oneshot;
use trilogue_wire::jsonrpc::{ErrorObject, Id};

use super::{CANCEL_REQUEST, Peer, Text};

/// A call that waits for its answer. Dropping it gives up waiting.
#[derive(Debug)]
pub struct Call {
    peer: Peer,
    id: u64,
    answer: oneshot::Receiver<Result<Text, Failed>>,
}

/// Why a call has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failed {
    /// The other side refused.
    #[error(transparent)]
    Refused(#[from] ErrorObject),
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
    /// The answer came, and cannot be read.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// Too many calls wait for their answers.
    #[error("too many calls wait for their answers")]
    TooMany,
}

// === impl Call ===

impl Call {
    pub(super) const fn new(
        peer: Peer,
        id: u64,
        answer: oneshot::Receiver<Result<Text, Failed>>,
    ) -> Self {
        Self { peer, id, answer }
    }

    /// The id under which it was sent.
    #[must_use]
    pub fn id(&self) -> Id<'static> {
        Id::number(self.id)
    }

    /// Asks the other side to give up on it. The answer comes all the same.
    ///
    /// # Errors
    /// [`Failed::Closed`].
    pub async fn cancel(&self) -> Result<(), Failed> {
        self.peer.notify(CANCEL_REQUEST, &json!({ "requestId": self.id })).await
    }
}

impl Future for Call {
    type Output = Result<Text, Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        answer.map(|answer| answer.unwrap_or(Err(Failed::Closed)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.peer.forget(self.id);
    }
}
