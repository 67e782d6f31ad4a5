use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use trilogue_wire::jsonrpc::{ErrorObject, Oversize, Reason};

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

    /// Called before the message of a line, with the number of bytes that the other side has sent up to the end of that line.
    fn on_line_end(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Called when a response arrives, in message order. The caller gets the response after this returns.
    fn on_response(&self) -> Backpressure {
        Backpressure::Ready
    }

    /// Called with input that is not a message, or that had to be changed to be read, in message order.
    fn on_ignored(&self, input: IgnoredInput<'_>) -> Backpressure {
        let _ = input;
        Backpressure::Ready
    }

    /// Called for each line above the size limit, in message order. A request was answered before.
    fn on_oversize(&self, oversize: Oversize) -> Backpressure {
        let _ = oversize;
        Backpressure::Ready
    }
}

/// Input that did not reach a receiver as it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IgnoredInput<'a> {
    /// Why.
    pub reason: IgnoredReason,
    /// The bytes as they arrived: a line without its end, or the part of a line that is not a message.
    pub bytes: &'a Bytes,
}

/// Why input did not reach a receiver as it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IgnoredReason {
    /// Text that is not JSON, or text around the messages of a line: programs also print other text.
    Noise,
    /// The line is not UTF-8. Its message was kept: U+FFFD replaces the broken bytes, and the message follows.
    ReplacedBytes,
    /// The line is not a valid message.
    Invalid(Reason),
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

// === impl IgnoredReason ===

impl IgnoredReason {
    /// Returns the reason as a short stable word, for example for a metric's label.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Noise => "noise",
            Self::ReplacedBytes => "replaced_bytes",
            Self::Invalid(reason) => reason.word(),
        }
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
