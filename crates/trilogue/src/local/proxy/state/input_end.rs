//! The end: the editor says nothing more, and is answered for a while.

use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::{Code, Error};
use trilogue_wire::jsonrpc::ErrorObject;

use super::Proxy;

/// How long an editor that says nothing more is still answered, from the first connection on: it may be a script. A prompt is waited for until its turn has begun.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// What is known of the end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// The editor says nothing more.
    has_begun: bool,
    /// There was a connection. Before, what finds or starts a server says how long that may take.
    has_met: bool,
    /// When the editor is answered no longer.
    at: Option<Instant>,
}

// === impl Ending ===

impl Ending {
    /// There is a connection.
    pub(super) fn meet(&mut self, now: Instant) {
        self.has_met = true;
        self.set(now);
    }

    fn set(&mut self, now: Instant) {
        if self.has_begun && self.has_met {
            self.at.get_or_insert(now + LAST_ANSWERS);
        }
    }
}

// === impl Proxy ===

impl Proxy {
    /// The editor says nothing more. What it has asked is answered, if that happens soon.
    pub(in crate::local::proxy) fn end(&mut self, now: Instant) {
        self.ending.has_begun = true;
        self.ending.set(now);
    }

    /// The editor is gone: nobody is there to be answered.
    pub(in crate::local::proxy) fn leave(&mut self) {
        self.ending.has_begun = true;
        self.book.drain();
    }

    /// Whether the editor may still say something.
    pub(in crate::local::proxy) fn is_listening(&self) -> bool {
        !self.ending.has_begun
    }

    /// Whether nobody waits for anything any more.
    pub(in crate::local::proxy) fn has_ended(&self, now: Instant) -> bool {
        let is_over = self.ending.at.is_some_and(|at| at <= now);
        self.ending.has_begun && (is_over || self.book.awaited().next().is_none())
    }

    /// When [`Proxy::tick`] has something to do, or it is over.
    pub(in crate::local::proxy) fn deadline(&self) -> Option<Instant> {
        [self.parked_until, self.ending.at].into_iter().flatten().min()
    }

    /// It is over: what was not answered in time is answered with an error, put into words by `told`.
    ///
    /// # Errors
    /// When there was something.
    pub(in crate::local::proxy) fn conclude(
        &mut self,
        told: impl FnOnce(&Error) -> ErrorObject,
    ) -> Result<(), Error> {
        let awaited: Vec<_> = self.book.awaited().cloned().collect();
        if awaited.is_empty() {
            return Ok(());
        }
        let message =
            format!("the input ended, and the server has not answered within {LAST_ANSWERS:?}");
        let error = Error::new(Code::AwaitTimeout, message).hint(
            "keep the input open until the answers are there; whether what was asked is done is not known",
        );
        let told = told(&error);
        for id in &awaited {
            self.write_error(id, &told);
        }
        Err(error)
    }
}
