use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use tokio::sync::oneshot;
use trilogue_wire::jsonrpc::{ErrorObject, Id};

use super::{CANCEL_REQUEST, Peer, RawJson};

/// A call that waits for its response. Dropping it stops waiting. With
/// [`Options::cancels_dropped`](super::Options::cancels_dropped), the other side is also asked to cancel the request.
#[derive(Debug)]
pub struct Call {
    peer: Peer,
    id: u64,
    answer: oneshot::Receiver<Result<RawJson, CallFailure>>,
    /// Whether the other side was asked to cancel the request.
    is_cancelled: AtomicBool,
}

/// Why a call has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallFailure {
    /// The other side returned an error.
    #[error(transparent)]
    Refused(#[from] ErrorObject),
    /// The connection has ended.
    #[error("the connection has ended")]
    Closed,
    /// The response arrived but cannot be read.
    #[error("the answer cannot be read: {0}")]
    Unreadable(String),
    /// Too many calls wait for their responses, or too many bytes wait to be written.
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

    /// Returns the id of the request.
    #[must_use]
    pub fn id(&self) -> Id<'static> {
        Id::number(self.id)
    }

    /// Asks the other side to cancel the request. The response still arrives. Does not wait.
    ///
    /// # Errors
    /// Like [`Peer::notify_now`].
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
            // If the connection has ended, the other side does not need to know.
            let _: Result<(), CallFailure> = self.cancel();
        }
    }
}
