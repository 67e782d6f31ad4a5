use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use tokio_util::sync::CancellationToken;
use trilogue_wire::jsonrpc::{Code, ErrorObject, Id, Payload};

use super::{CallFailure, Peer, RawJson, lock};

/// A notification from the other side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The method.
    pub method: Cow<'static, str>,
    /// The params: an object or an array; `{}` if absent.
    pub params: RawJson,
}

/// A request from the other side. Dropping it without an answer sends an internal error.
pub struct Request {
    peer: Peer,
    /// `None` after the request was answered.
    id: Option<Id<'static>>,
    method: Cow<'static, str>,
    params: RawJson,
    cancelled: CancellationToken,
}

/// A response on its way to the outbox. Until it is there, its request counts as open.
struct Answering<'a>(&'a Peer);

// === impl Request ===

impl Request {
    pub(super) const fn new(
        peer: Peer,
        id: Id<'static>,
        method: Cow<'static, str>,
        params: RawJson,
        cancelled: CancellationToken,
    ) -> Self {
        Self { peer, id: Some(id), method, params, cancelled }
    }

    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the params: an object or an array; `{}` if absent.
    #[must_use]
    pub const fn params(&self) -> &RawJson {
        &self.params
    }

    /// Returns the id as the other side wrote it.
    #[must_use]
    pub fn id(&self) -> Id<'static> {
        self.id.clone().unwrap_or(Id::NULL)
    }

    /// Returns the connection of the request.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the token that is cancelled when the other side cancels the request or the connection ends.
    #[must_use]
    pub const fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Responds with a result. An absent result is `{}`.
    pub async fn respond<P: Payload + ?Sized>(self, result: &P) {
        let result = RawJson::of(result);
        self.finish(Ok(result)).await;
    }

    /// Responds with an error.
    pub async fn refuse(self, error: ErrorObject) {
        self.finish(Err(error)).await;
    }

    /// Responds with the result of this future, in a separate task. If the other side cancels the request first, the future is dropped and the response reports the cancellation.
    pub fn answer<F, P>(self, answer: F)
    where
        F: Future<Output = Result<P, ErrorObject>> + Send + 'static,
        P: Payload,
    {
        tokio::spawn(async move {
            let answer = tokio::select! {
                biased;
                answer = answer => answer.map(|result| RawJson::of(&result)),
                () = self.cancelled.cancelled() => Err(ErrorObject::of(Code::REQUEST_CANCELLED)),
            };
            self.finish(answer).await;
        });
    }

    async fn finish(mut self, answer: Result<RawJson, ErrorObject>) {
        let Some(id) = self.id.take() else { return };
        // The other side may use the id again as soon as it has read the response, so the id must be free before.
        let _answering = Answering::of(&self.peer, &id);
        // If the connection has ended, the response is not needed.
        let _: Result<(), CallFailure> = self.peer.respond(&id, answer.as_ref()).await;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let _answering = Answering::of(&self.peer, &id);
        let error = ErrorObject::of(Code::INTERNAL_ERROR);
        // Dropping cannot wait for room. The limit on open requests also limits these bytes.
        let _: Result<(), CallFailure> = self.peer.0.outbox.push(|lines| lines.error(&id, &error));
    }
}

// === impl Answering ===

impl<'a> Answering<'a> {
    fn of(peer: &'a Peer, id: &Id<'static>) -> Self {
        let mut requests = lock(&peer.0.requests);
        if let Some(request) = requests.in_work.remove(id) {
            requests.bytes -= request.bytes;
        }
        requests.answering += 1;
        Self(peer)
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        lock(&self.0.0.requests).answering -= 1;
        self.0.0.outbox.wake();
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.id)
            .field("method", &self.method)
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}
