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
    fn asked(&self, request: Request) -> Room;

    /// Takes a notification.
    fn told(&self, notification: Notification) -> Room;

    /// Hears that a call was answered, at its place among what is told and asked: whoever waits for the answer has it afterwards.
    fn answered(&self) -> Room {
        Room::Enough
    }

    /// Hears of a line that was no message, for whoever wants to log it.
    fn puzzled(&self, invalid: &Invalid<'_>) {
        let _ = invalid;
    }

    /// Hears of a line that was longer than is taken, at its place among the others. [`Self::puzzled`] has heard of it too, and a request was answered.
    fn passed_over(&self, oversize: Oversize) -> Room {
        let _ = oversize;
        Room::Enough
    }
}

/// Whether there is room for more.
pub enum Room {
    /// There is.
    Enough,
    /// There is none before this is done: reading goes on afterwards.
    Wait(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Answers no request, and hears nothing.
#[derive(Clone, Copy, Debug)]
pub struct Deaf;

// === impl Deaf ===

impl Handler for Deaf {
    fn asked(&self, request: Request) -> Room {
        let method = request.method().to_owned();
        request.answer(async move { Err::<(), _>(ErrorObject::method_not_found(&method)) });
        Room::Enough
    }

    fn told(&self, _: Notification) -> Room {
        Room::Enough
    }
}

// === impl Room ===

impl Room {
    pub(super) async fn made(self) {
        match self {
            Self::Enough => {}
            Self::Wait(done) => done.await,
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enough => "Enough",
            Self::Wait(_) => "Wait",
        })
    }
}
