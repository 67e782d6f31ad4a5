//! Cursors: the places at which a client can copy the session's history.

use std::collections::HashMap;

use trilogue_domain::event::{Event, MessageEvent, RunEvent, StateEvent, ToolEvent};
use trilogue_domain::{Body, MessageId, Outcome, RunId, RunKey, ThreadId};
use trilogue_mapping::agent_client::{self as mapping, IdFormat};
use trilogue_wire::agent_client::{
    CursorAnchor, CursorCapabilities, CursorCompactionAnchor, CursorMessageAnchor, CursorPosition,
    CursorToolCallAnchor, CursorUpdate, Patch, SessionUpdate, Supported,
};

/// The most cursors of a run; the places after them get none.
const MAX_CURSORS: usize = 256;
/// The most runs whose places are remembered until they end.
const MAX_RUNS: usize = 64;

/// The places in open runs. Their cursors are sent when the run has completed, because only then can the history be copied there.
#[derive(Debug)]
pub(super) struct Cursors {
    thread: ThreadId,
    ids: IdFormat,
    open: HashMap<RunKey, Vec<(u64, CursorAnchor)>>,
    /// The incomplete messages of users.
    user_messages: Vec<MessageId>,
}

/// Returns the id of the cursor behind an event.
pub(crate) fn cursor_id(number: u64) -> String {
    format!("after-{number}")
}

/// Returns the number of the event behind which a cursor is.
pub(crate) fn event_of_cursor(id: &str) -> Option<u64> {
    id.strip_prefix("after-")?.parse().ok().filter(|number| cursor_id(*number) == id)
}

// === impl Cursors ===

impl Cursors {
    pub(super) fn new(thread: &ThreadId, ids: IdFormat) -> Self {
        Self { thread: thread.clone(), ids, open: HashMap::new(), user_messages: Vec::new() }
    }

    /// Adds the next event. Returns the updates about cursors that follow it.
    pub(super) fn push(&mut self, event: &Event, run: Option<&RunId>) -> Vec<SessionUpdate> {
        let Some(key) = event.run else { return Vec::new() };
        if let Body::Run(RunEvent::Ended(outcome)) = &event.body {
            let places = self.open.remove(&key).unwrap_or_default();
            return match outcome {
                Outcome::Completed => places.into_iter().map(new_cursor).collect(),
                _ => Vec::new(),
            };
        }
        let Some(anchor) = self.anchor(event, run) else { return Vec::new() };
        if self.open.len() >= MAX_RUNS && !self.open.contains_key(&key) {
            return Vec::new();
        }
        let places = self.open.entry(key).or_default();
        if places.len() < MAX_CURSORS {
            places.push((event.number, anchor));
        }
        Vec::new()
    }

    /// Returns what ends with this event.
    fn anchor(&mut self, event: &Event, run: Option<&RunId>) -> Option<CursorAnchor> {
        const AFTER: CursorPosition = CursorPosition::After;
        Some(match &event.body {
            Body::Message(MessageEvent::Started { message, role, .. }) => {
                if role.is_user() && self.user_messages.len() < MAX_RUNS {
                    self.user_messages.push(message.clone());
                }
                return None;
            }
            Body::Message(MessageEvent::Completed { message }) => {
                let id = mapping::shown_id(self.ids, self.thread.as_str(), message.as_str());
                let anchor = CursorMessageAnchor::new(id.into_owned(), AFTER);
                let count = self.user_messages.len();
                self.user_messages.retain(|known| known != message);
                match self.user_messages.len() < count {
                    true => CursorAnchor::UserMessage(anchor),
                    false => CursorAnchor::AgentMessage(anchor),
                }
            }
            Body::Tool(ToolEvent::Ended { call, .. }) => {
                let within = run.map_or_else(|| self.thread.as_str(), RunId::as_str);
                let call = match &event.original {
                    Some(_) => call.clone(),
                    None => mapping::shown_call(call, within),
                };
                CursorAnchor::ToolCall(CursorToolCallAnchor::new(call, AFTER))
            }
            Body::State(StateEvent::Custom { kind, data }) if kind == "compaction_update" => {
                let data = data.to_value();
                if data.get("status")?.as_str()? != "completed" {
                    return None;
                }
                let id = data.get("compactionId")?.as_str()?;
                CursorAnchor::Compaction(CursorCompactionAnchor::new(id, AFTER))
            }
            _ => return None,
        })
    }
}

fn new_cursor((number, anchor): (u64, CursorAnchor)) -> SessionUpdate {
    let fork =
        CursorCapabilities { fork: Some(Supported::default()), ..CursorCapabilities::default() };
    SessionUpdate::Cursor(Box::new(CursorUpdate {
        capabilities: Patch::Set(fork),
        anchor: Some(anchor),
        ..CursorUpdate::new(cursor_id(number))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_of_this_form_are_cursors() {
        assert_eq!(event_of_cursor(&cursor_id(7)), Some(7));
        for id in ["", "7", "after-", "after-07", "after-+7", "after-7 ", "before-7"] {
            assert_eq!(event_of_cursor(id), None, "{id}");
        }
    }
}
