//! Sub-agents of hosted agents for clients that show none: one tool call for each, in the session that the client has open.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, InterruptEvent, MessageEvent, RunEvent, StateEvent, Subagent};
use trilogue_domain::{Body, MessageId};
use trilogue_mapping::agent_client as mapping;

use super::super::super::asking::question;
use super::children::ChildForm;
use super::{OutgoingLines, Pump};

/// How much of a sub-agent's last message its tool call shows, in bytes.
const MAX_TEXT_BYTES: usize = 4 * 1024;
/// Follows a text that was cut.
const CUT: &str = "…";

/// The last message of a sub-agent's agent.
#[derive(Debug, Default)]
pub(in super::super) struct LastMessage {
    message: Option<MessageId>,
    text: String,
    is_cut: bool,
}

// === impl LastMessage ===

impl LastMessage {
    fn begin(&mut self, message: &MessageId) {
        *self = Self { message: Some(message.clone()), ..Self::default() };
    }

    fn push(&mut self, message: &MessageId, text: &str) {
        if self.message.as_ref() != Some(message) || self.is_cut {
            return;
        }
        let room = MAX_TEXT_BYTES.saturating_sub(self.text.len());
        let end = text.floor_char_boundary(room);
        self.text.push_str(text.get(..end).unwrap_or_default());
        if end < text.len() {
            self.is_cut = true;
            self.text.push_str(CUT);
        }
    }
}

// === impl Pump ===

impl Pump {
    /// Whether this is the pump of a sub-agent of which the client sees a tool call only.
    pub(super) fn is_folded(&self) -> bool {
        matches!(&self.role, Some(role) if matches!(role.form, ChildForm::Folded(_)))
    }

    /// Adds the tool call that stands for a sub-agent, if it changes.
    pub(super) fn push_call(&mut self, subagent: &Subagent, lines: &mut OutgoingLines) {
        let known = self.followed.calls.get(&subagent.thread);
        let call = mapping::SubagentCall::of(subagent, known);
        let update = known.is_none_or(|known| !known.looks_like(&call));
        let update = update.then(|| call.update(&subagent.thread, known.is_none()));
        self.followed.calls.insert(subagent.thread.clone(), call);
        if let Some(update) = update {
            self.push_update(self.session.asks_in.as_str(), update, lines);
        }
    }

    /// Takes an event of a sub-agent: the client gets its questions, and what it said last when its work ends.
    pub(super) async fn fold_event(
        &mut self,
        event: &Event,
        lines: &mut OutgoingLines,
    ) -> Result<()> {
        match &event.body {
            Body::State(StateEvent::Subagent(_)) => {
                return self.subagent_event(event, None, lines).await;
            }
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                let Some(key) = event.run.filter(|_| self.replay.is_none()) else { return Ok(()) };
                let run = self.run_id(key, event).await?;
                let asking = self.question_for_client(interrupt).await;
                if self.asks(run.as_ref(), interrupt, &asking).await? {
                    self.ask(key, interrupt, asking, lines);
                }
                return Ok(());
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, .. }) => {
                question::withdraw(&self.connection, &self.session, interrupt, lines);
                return Ok(());
            }
            _ => {}
        }
        let Some(ChildForm::Folded(last)) = self.role.as_mut().map(|role| &mut role.form) else {
            return Ok(());
        };
        match &event.body {
            Body::Message(MessageEvent::Started { message, role, .. }) if !role.is_user() => {
                last.begin(message);
            }
            Body::Message(MessageEvent::Delta { message, text }) => last.push(message, text),
            Body::Message(MessageEvent::Part { message, part }) => {
                last.push(message, part.as_text().unwrap_or_default());
            }
            Body::Run(RunEvent::Ended(_)) if !last.text.is_empty() => {
                let update = mapping::subagent_call_text(&self.session.thread.id, &last.text);
                self.push_update(self.session.asks_in.as_str(), update, lines);
            }
            _ => {}
        }
        Ok(())
    }
}
