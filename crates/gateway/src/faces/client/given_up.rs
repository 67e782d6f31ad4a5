//! The end of a session that cannot be shown any more.

use std::sync::Arc;

use trilogue_domain::{Code, Error, Outcome};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::jsonrpc::{self, ErrorObject};
use trilogue_wire::native::local::Control;

use super::calls::write_withdrawal;
use super::link::Lines;
use super::pump::Pump;
use super::question;

// === impl Pump ===

impl Pump {
    /// Nothing more comes: whoever waits is told why. Without an error the client has closed the session.
    pub(super) async fn give_up(&mut self, error: Option<&Error>) {
        let was_removed = error.is_some_and(|error| error.code() == Code::ThreadNotFound);
        let is_gone = was_removed || error.is_none();
        let error = match error {
            Some(error) => mapping::session_error(error, self.session.id()),
            None => ErrorObject::of(jsonrpc::Code::REQUEST_CANCELLED),
        };
        let prompts = {
            let mut state = self.session.state();
            state.is_over = true;
            std::mem::take(&mut state.prompts)
        };
        let mut lines = Lines::default();
        for prompt in prompts {
            let outcome = Outcome::Cancelled { reason: None };
            // With the thread the ids of its messages are gone.
            let told = prompt.user_message_id.as_deref().filter(|_| !was_removed);
            let answer = match is_gone {
                true => mapping::prompt_result(&outcome, None, told),
                false => Err(error.clone()),
            };
            self.link.write_answer(&mut lines, &prompt.request, &answer);
        }
        self.session.settled.notify_waiters();
        let starts = self.catching_up.take().into_iter().chain(self.next.drain(..));
        for (request, _) in starts.filter_map(|start| start.request) {
            self.link.write_answer(&mut lines, &request, &Err(error.clone()));
        }
        let lane = self.link.known_lane(&self.session.thread.id);
        let open = lane.as_ref().and_then(|lane| lane.session());
        let is_ours = open.as_ref().is_some_and(|open| Arc::ptr_eq(open, &self.session));
        let mut left = Vec::new();
        if is_ours || open.is_none() {
            // Nothing can be answered in it any more. Where it was opened again, what is asked is asked there.
            left = self.link.pending.leave(&self.session.thread.id);
        }
        for (number, _) in &left {
            write_withdrawal(&mut lines, *number);
        }
        if !lines.bytes.is_empty() {
            self.link.send(lines, Control::Boundary).await;
        }
        if !was_removed {
            for (_, question) in &left {
                question::leave(&self.link, question).await;
            }
        }
        if let Some(lane) = lane.filter(|_| is_ours) {
            lane.set_session(None);
        }
    }
}
