//! The end of the editor's output: it still gets responses for a while.

use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::{Code, Error};
use trilogue_wire::jsonrpc::ErrorObject;

use super::Proxy;

/// How long an editor that has closed its output still gets responses, from the first connection on: it may be a script. For a prompt this ends when its turn is stored.
const LAST_RESPONSES: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct InputEnd {
    is_reached: bool,
    /// Whether there was a connection. Connecting has a time limit of its own.
    was_connected: bool,
    deadline: Option<Instant>,
}

// === impl InputEnd ===

impl InputEnd {
    pub(super) fn on_connect(&mut self, now: Instant) {
        self.was_connected = true;
        self.set_deadline(now);
    }

    fn set_deadline(&mut self, now: Instant) {
        if self.is_reached && self.was_connected {
            self.deadline.get_or_insert(now + LAST_RESPONSES);
        }
    }
}

// === impl Proxy ===

impl Proxy {
    pub(in crate::local::proxy) fn on_input_end(&mut self, now: Instant) {
        self.input_end.is_reached = true;
        self.input_end.set_deadline(now);
    }

    /// The editor is gone: nothing waits for responses.
    pub(in crate::local::proxy) fn on_editor_gone(&mut self) {
        self.input_end.is_reached = true;
        self.journal.drain();
    }

    pub(in crate::local::proxy) fn is_listening(&self) -> bool {
        !self.input_end.is_reached
    }

    pub(in crate::local::proxy) fn has_ended(&self, now: Instant) -> bool {
        let is_over = self.input_end.deadline.is_some_and(|at| at <= now);
        self.input_end.is_reached && (is_over || self.journal.awaited_requests().next().is_none())
    }

    /// When [`Proxy::on_deadline`] has something to do, or the proxy ends.
    pub(in crate::local::proxy) fn deadline(&self) -> Option<Instant> {
        [self.parked_until, self.input_end.deadline].into_iter().flatten().min()
    }

    /// Fails the requests without a response with an error that `to_object` converts.
    pub(in crate::local::proxy) fn conclude(
        &mut self,
        to_object: impl FnOnce(&Error) -> ErrorObject,
    ) -> Result<(), Error> {
        let awaited: Vec<_> = self.journal.awaited_requests().cloned().collect();
        if awaited.is_empty() {
            return Ok(());
        }
        let message =
            format!("the input ended, and the server did not respond within {LAST_RESPONSES:?}");
        let error = Error::new(Code::AwaitTimeout, message).hint(
            "keep the input open until the responses have arrived; whether the requests were processed is unknown",
        );
        let object = to_object(&error);
        for id in &awaited {
            self.write_error(id, &object);
        }
        Err(error)
    }
}
