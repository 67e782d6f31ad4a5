//! The end of a pump: responds to every request that waits for it.

use std::sync::Arc;

use trilogue_domain::{Code, Error, Outcome};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::jsonrpc::{self, ErrorObject};
use trilogue_wire::native::local::Control;

use super::super::super::asking::question;
use super::{OutgoingLines, Pump};

// === impl Pump ===

impl Pump {
    /// Responds to all open requests. Without an error, the client has closed the session.
    pub(super) async fn close(&mut self, error: Option<&Error>) {
        let was_removed = error.is_some_and(|error| error.code() == Code::ThreadNotFound);
        let is_gone = was_removed || error.is_none();
        let error = match error {
            Some(error) => mapping::session_error(error, self.session.id()),
            None => ErrorObject::of(jsonrpc::Code::REQUEST_CANCELLED),
        };
        // Under one lock: a prompt that is accepted later sees `is_over` and responds itself.
        let prompts = {
            let mut state = self.session.state();
            state.is_over = true;
            std::mem::take(&mut state.prompts)
        };
        let mut lines = OutgoingLines::default();
        for prompt in prompts {
            let cancelled = Outcome::Cancelled { reason: None };
            // The ids of messages were erased with the thread.
            let id = prompt.user_message_id.as_deref().filter(|_| !was_removed);
            let result = match is_gone {
                true => mapping::prompt_result(&cancelled, None, id),
                false => Err(error.clone()),
            };
            self.connection.write_response(&mut lines, &prompt.request, &result);
        }
        self.session.settled.notify_waiters();
        let replays = self.replay.take().into_iter().chain(self.next_replays.drain(..));
        for (request, _) in replays.filter_map(|start| start.request) {
            self.connection.write_response(&mut lines, &request, &Err(error.clone()));
        }
        let queue = self.connection.queues.get(&self.session.thread.id);
        let open = queue.as_ref().and_then(|queue| queue.session());
        let is_current = open.as_ref().is_some_and(|open| Arc::ptr_eq(open, &self.session));
        // If the client has opened the session again, its questions belong to the new pump.
        let questions = match is_current || open.is_none() {
            true => self.connection.pending.take_session(&self.session.thread.id),
            false => Vec::new(),
        };
        for (number, _) in &questions {
            lines.withdrawal(*number);
        }
        if !lines.bytes.is_empty() {
            self.connection.send(lines, Control::Boundary).await;
        }
        if !was_removed {
            for (_, question) in &questions {
                question::leave(&self.connection, question).await;
            }
        }
        if let Some(queue) = queue.filter(|_| is_current) {
            queue.set_session(None);
        }
    }
}
