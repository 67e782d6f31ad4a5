use std::fmt;
use std::future::Future;
use std::pin::Pin;

use trilogue_wire::jsonrpc::{ErrorObject, Invalid, Oversize};

use super::{Notification, Request};

/// Receives the other side's requests and notifications in the order in which they arrive.
///
/// The task that reads the connection calls all functions, so they must return at once. Do the work in separate tasks, as with
/// [`Request::answer`], and put work that must stay in order into a bounded queue.
pub trait Handler: Send + Sync + fmt::Debug + 'static {
    /// Called with a request. Answer it through the [`Request`]; dropping it without an answer sends an error.
    fn on_request(&self, request: Request) -> Backpressure;

    /// Called with a notification.
    fn on_notification(&self, notification: Notification) -> Backpressure;

    /// Called when a response arrives, in message order. The caller gets the response after this returns.
    fn on_response(&self) -> Backpressure {
        Backpressure::Ready
    }

    /// Called with each line that is not JSON: programs also print other text.
    fn on_noise(&self, line: &[u8]) {
        let _ = line;
    }

    /// Called with each line that is not a valid message, so that you can log it.
    fn on_invalid(&self, invalid: &Invalid<'_>) {
        let _ = invalid;
    }

    /// Called for each line above the size limit, in message order. [`Self::on_invalid`] was called before, and a request was answered.
    fn on_oversize(&self, oversize: Oversize) -> Backpressure {
        let _ = oversize;
        Backpressure::Ready
    }
}

/// Whether the handler can take more messages.
pub enum Backpressure {
    /// There is room for more.
    Ready,
    /// The handler is full. Reading continues when this future completes.
    Full(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Refuses every request and ignores the rest.
#[derive(Clone, Copy, Debug)]
pub struct RefuseAll;

// === impl RefuseAll ===

impl Handler for RefuseAll {
    fn on_request(&self, request: Request) -> Backpressure {
        let method = request.method().to_owned();
        request.answer(async move { Err::<(), _>(ErrorObject::method_not_found(&method)) });
        Backpressure::Ready
    }

    fn on_notification(&self, _: Notification) -> Backpressure {
        Backpressure::Ready
    }
}

// === impl Backpressure ===

impl Backpressure {
    pub(super) async fn ready(self) {
        match self {
            Self::Ready => {}
            Self::Full(done) => done.await,
        }
    }
}

impl fmt::Debug for Backpressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready => "Ready",
            Self::Full(_) => "Full",
        })
    }
}
