use std::fmt;
use std::future::Future;
use std::pin::Pin;

use trilogue_wire::jsonrpc::{ErrorObject, Invalid, Oversize};

use super::{Notification, Request};

/// What the other side's requests and notifications are given to, in the order in which they come.
///
/// All functions are called by the task that reads, so they return at once: work is done in tasks of its own, as with
/// [`Request::answer`], and what has to stay in order is put into a bounded queue.
pub trait Handler: Send + Sync + fmt::Debug + 'static {
    /// Takes a request. It is answered by the [`Request`]; one that is dropped without an answer is answered with an error.
    fn on_request(&self, request: Request) -> Backpressure;

    /// Takes a notification.
    fn on_notification(&self, notification: Notification) -> Backpressure;

    /// Hears that a call was answered, at its place among what is told and asked: whoever waits for the answer has it afterwards.
    fn on_response(&self) -> Backpressure {
        Backpressure::Ready
    }

    /// Called with each line that is not JSON: programs print other things too.
    fn on_noise(&self, line: &[u8]) {
        let _ = line;
    }

    /// Hears of a line that was no message, for whoever wants to log it.
    fn on_invalid(&self, invalid: &Invalid<'_>) {
        let _ = invalid;
    }

    /// Hears of a line that was longer than is taken, at its place among the others. [`Self::on_invalid`] has heard of it too, and a request was answered.
    fn on_oversize(&self, oversize: Oversize) -> Backpressure {
        let _ = oversize;
        Backpressure::Ready
    }
}

/// Whether there is room for more.
pub enum Backpressure {
    /// There is.
    Ready,
    /// There is none before this is done: reading goes on afterwards.
    Full(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Answers no request, and hears nothing.
#[derive(Clone, Copy, Debug)]
pub struct RefuseAll;

// === impl Deaf ===

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

// === impl Room ===

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
