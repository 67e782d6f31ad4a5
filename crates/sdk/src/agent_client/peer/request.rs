use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use tokio_util::sync::CancellationToken;
use trilogue_wire::jsonrpc::{Code, ErrorObject, Id, Payload};

use super::{CallFailure, Peer, RawJson, lock};

/// Something that the other side says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The method.
    pub method: Cow<'static, str>,
    /// What it carries: an object or an array; `{}` where there is nothing.
    pub params: RawJson,
}

/// Something that the other side asks. One that is dropped without an answer is answered with an internal error.
pub struct Request {
    peer: Peer,
    /// `None` when it was answered.
    id: Option<Id<'static>>,
    method: Cow<'static, str>,
    params: RawJson,
    cancelled: CancellationToken,
}

/// An answer on its way to what is to be written, where it counts as a request that is in work.
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

    /// The method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// What it carries: an object or an array; `{}` where there is nothing.
    #[must_use]
    pub const fn params(&self) -> &RawJson {
        &self.params
    }

    /// The id, as the other side wrote it.
    #[must_use]
    pub fn id(&self) -> Id<'static> {
        self.id.clone().unwrap_or(Id::NULL)
    }

    /// The connection that it came over.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Is cancelled when the other side gives up on it, or is gone.
    #[must_use]
    pub const fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Answers with a result. An absent one is `{}`.
    pub async fn respond<P: Payload + ?Sized>(self, result: &P) {
        let result = RawJson::of(result);
        self.finish(Ok(result)).await;
    }

    /// Answers with an error.
    pub async fn refuse(self, error: ErrorObject) {
        self.finish(Err(error)).await;
    }

    /// Answers with what comes of this, in a task of its own. Where the other side gives up before, that is dropped and the answer says so.
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
        // Whoever has read the answer may use the id again at once, so that it is free before.
        let _answering = Answering::of(&self.peer, &id);
        // Nobody is left to hear it when the connection has ended.
        let _: Result<(), CallFailure> = self.peer.respond(&id, answer.as_ref()).await;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let _answering = Answering::of(&self.peer, &id);
        let error = ErrorObject::of(Code::INTERNAL_ERROR);
        // Dropping cannot wait for room; the number of requests in work bounds what is written here.
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
