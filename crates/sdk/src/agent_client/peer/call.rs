use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use tokio::sync::oneshot;
use trilogue_wire::jsonrpc::{ErrorObject, Id};

use super::{CANCEL_REQUEST, Peer, RawJson};

/// A call that waits for its answer. Dropping it gives up waiting, and says so to the other side where
/// [`Options::cancels_dropped`](super::Options::cancels_dropped) asks for that.
#[derive(Debug)]
pub struct Call {
    peer: Peer,
    id: u64,
    answer: oneshot::Receiver<Result<RawJson, CallFailure>>,
    /// Whether the other side was asked to give up on it.
    is_cancelled: AtomicBool,
}

/// Why a call has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallFailure {
    /// The other side refused.
    #[error(transparent)]
    Refused(#[from] ErrorObject),
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
    /// The answer came, and cannot be read.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// Too many calls wait for their answers, or too much waits to be written.
    #[error("too much waits for the other side")]
    TooMany,
}

// === impl Call ===

impl Call {
    pub(super) const fn new(
        peer: Peer,
        id: u64,
        answer: oneshot::Receiver<Result<RawJson, CallFailure>>,
    ) -> Self {
        Self { peer, id, answer, is_cancelled: AtomicBool::new(false) }
    }

    /// The id under which it was sent.
    #[must_use]
    pub fn id(&self) -> Id<'static> {
        Id::number(self.id)
    }

    /// Asks the other side to give up on it. The answer comes all the same. Waits for nothing.
    ///
    /// # Errors
    /// As [`Peer::notify_now`].
    pub fn cancel(&self) -> Result<(), CallFailure> {
        if self.is_cancelled.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.peer.notify_now(CANCEL_REQUEST, &json!({ "requestId": self.id }))
    }
}

impl Future for Call {
    type Output = Result<RawJson, CallFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(context);
        answer.map(|answer| answer.unwrap_or(Err(CallFailure::Closed)))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.peer.forget(self.id) && self.peer.0.options.cancels_dropped {
            // Nobody is left to hear it when the connection has ended.
            let _: Result<(), CallFailure> = self.cancel();
        }
    }
}
