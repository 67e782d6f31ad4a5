//! Thoughts and tool calls as steps: parts of the open message, or of a message that the next one continues.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use trilogue_domain::event::{ToolEvent, ToolStatus};
use trilogue_domain::{Json, Part, PartMetadata, ThreadId, Trajectory};
use trilogue_wire::agent_communication::{EventKind, Time, splice};

use super::events::push_update;
use super::message::{Kind, MessagePiece, RenderedMessage, ThoughtPiece};
use super::{Projection, render_event};
use crate::agent_client::{carried, ended_at_start, merge_update, overlay_step};

/// The most open tool calls of a run; beyond that the oldest is shown in its present state.
const MAX_OPEN_CALLS: usize = 1_024;
/// Follows the title of a failed tool call.
const FAILED: &str = "the tool failed";

/// A tool call that has not ended.
#[derive(Clone, Debug)]
pub(super) struct UnendedCall {
    call: String,
    step: Trajectory,
    /// Its agent's merged updates, which contain more than a step.
    update: Option<Arc<str>>,
}

// === impl Projection ===

impl Projection {
    /// Adds a piece of a thought.
    pub(super) fn thought(
        &mut self,
        id: Option<Arc<str>>,
        text: &Arc<str>,
        at: Time,
        out: &mut Vec<Bytes>,
    ) {
        if self.has_started {
            let (text, is_strict) = (Arc::clone(text), self.show.strict);
            self.add_step(MessagePiece::Thought(ThoughtPiece { id, text, is_strict }), at, out);
        }
    }

    /// Shows a tool call as one part, at its end. Until then its changes are generic events.
    pub(super) fn tool_event(
        &mut self,
        event: &ToolEvent,
        (update, is_part): (Option<&str>, bool),
        at: Time,
        thread: &ThreadId,
        out: &mut Vec<Bytes>,
    ) {
        match event {
            ToolEvent::Started { call, tool, title, input, message: _ } => {
                self.calls.retain(|open| open.call != *call);
                if self.calls.len() >= MAX_OPEN_CALLS {
                    let oldest = self.calls.remove(0);
                    self.show_call(oldest.overlaid(), at, thread, out);
                }
                let step = Trajectory {
                    message: Some(title.clone()).filter(|title| !title.is_empty()),
                    tool_name: Some(tool.clone()),
                    tool_input: input.clone(),
                    tool_output: None,
                };
                let open = UnendedCall { call: call.clone(), step, update: update.map(Arc::from) };
                match update.and_then(ended_at_start) {
                    Some((status, output)) => {
                        self.end_call(open, status, output.as_ref(), at, thread, out);
                    }
                    None => {
                        self.push_call_start(&open, out);
                        self.calls.push(open);
                    }
                }
            }
            ToolEvent::Updated { call, content } => {
                let open = self.calls.iter_mut().find(|open| open.call == *call);
                match (open, update) {
                    (Some(open), Some(update)) => {
                        open.update = Some(merge_update(open.update.as_deref(), update));
                    }
                    // The next event ends the call with the content of this one.
                    (None, Some(update)) if ended_at_start(update).is_some() => {
                        let (call, step) = (call.clone(), Trajectory::default());
                        self.calls.push(UnendedCall { call, step, update: Some(update.into()) });
                    }
                    _ => {}
                }
                let parts: Vec<Bytes> =
                    content.iter().map(|part| self.render(part, thread)).collect();
                let mut object = format!(
                    "{{\"kind\":\"tool\",\"call_id\":{},\"content\":[",
                    Value::from(call.as_str())
                )
                .into_bytes();
                splice::separated(&mut object, &parts);
                object.push(b']');
                push_update(&mut object, update);
                object.push(b'}');
                self.push_generic(&object, out);
            }
            ToolEvent::Ended { call, status, output } => {
                let open = self.calls.iter().position(|open| open.call == *call);
                let mut open = match open {
                    Some(place) => self.calls.remove(place),
                    None => {
                        let step = Trajectory::default();
                        UnendedCall { call: call.clone(), step, update: None }
                    }
                };
                if let Some(update) = update {
                    open.update = Some(merge_update(open.update.as_deref(), update));
                }
                // The event before has the content of the same update.
                let of_content = open.update.as_deref().filter(|_| is_part && output.is_none());
                let of_content = of_content.and_then(ended_at_start).and_then(|(_, it)| it);
                let output = output.as_ref().or(of_content.as_ref());
                self.end_call(open, *status, output, at, thread, out);
            }
        }
    }

    /// Shows the calls that were still open when their run ended.
    pub(super) fn end_calls(&mut self, at: Time, thread: &ThreadId, out: &mut Vec<Bytes>) {
        for open in std::mem::take(&mut self.calls) {
            self.show_call(open.overlaid(), at, thread, out);
        }
    }

    fn end_call(
        &mut self,
        open: UnendedCall,
        status: ToolStatus,
        output: Option<&Json>,
        at: Time,
        thread: &ThreadId,
        out: &mut Vec<Bytes>,
    ) {
        let mut open = open.overlaid();
        open.step.tool_output = output.cloned();
        if status == ToolStatus::Failed {
            let title = open.step.message.take();
            open.step.message = Some(match title {
                Some(title) => format!("{title}: {FAILED}"),
                None => FAILED.to_owned(),
            });
        }
        self.show_call(open, at, thread, out);
    }

    fn show_call(&mut self, open: UnendedCall, at: Time, thread: &ThreadId, out: &mut Vec<Bytes>) {
        let mut part = Part::annotation(PartMetadata::Trajectory(open.step));
        part.extra = open.update.as_deref().and_then(carried);
        let part = self.render(&part, thread);
        self.add_step(MessagePiece::Part(part), at, out);
    }

    /// Adds an event that a tool call has begun.
    fn push_call_start(&self, open: &UnendedCall, out: &mut Vec<Bytes>) {
        let Trajectory { message, tool_name, tool_input, tool_output: _ } = &open.step;
        let head = json!({
            "kind": "tool", "call_id": open.call, "status": "in_progress",
            "tool_name": tool_name, "message": message,
        });
        let mut object = head.to_string().into_bytes();
        object.pop();
        if let Some(input) = tool_input {
            object.extend_from_slice(b",\"tool_input\":");
            object.extend_from_slice(input.as_bytes());
        }
        push_update(&mut object, open.update.as_deref());
        object.push(b'}');
        self.push_generic(&object, out);
    }

    /// Adds a step to the open message, or begins a message that the next one continues.
    fn add_step(&mut self, piece: MessagePiece, at: Time, out: &mut Vec<Bytes>) {
        if self.open.is_none() {
            let role = self.head.role.clone();
            self.begin(RenderedMessage::new(None, Kind::Steps, role, at, None), out);
        }
        out.push(render_event(EventKind::MessagePart, &piece.as_part()));
        if let Some(open) = &mut self.open {
            open.add(piece);
        }
    }
}

// === impl UnendedCall ===

impl UnendedCall {
    /// Returns the call with the changes from its agent's updates since it began.
    fn overlaid(mut self) -> Self {
        if let Some(update) = &self.update {
            overlay_step(&mut self.step, update);
        }
        self
    }
}
