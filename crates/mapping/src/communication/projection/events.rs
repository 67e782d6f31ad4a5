//! Folds each event of the log into the shown run.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{
    Event, InterruptEvent, MessageEvent, Original, PlanContent, PlanEntry, RunEvent, StateEvent,
};
use trilogue_domain::{
    Body, Content, Interrupt, InterruptId, Json, MessageId, Outcome, Part, Resolution, RunStatus,
    ThreadId, limits,
};
use trilogue_wire::agent_communication::{EventKind, RunStatus as WireStatus, Time, splice, sse};

use super::message::{Kind, MessagePiece, RenderedMessage};
use super::{AwaitedInterrupt, Projection, RunMessage, render_event};
use crate::agent_client::{PART, carried_update, thought_id, update_of};
use crate::communication::part::write_part;
use crate::communication::{
    EXTENSION, await_message, error, face_name, role_of, status, uuid_of, wire_role,
};
use crate::message_members::split_further;
use crate::native::{
    event::{SUBAGENT, subagent},
    hex,
    message::PATH_SEGMENT,
};
use crate::shape;
use crate::time;

// === impl Projection ===

impl Projection {
    pub(super) fn fold(&mut self, event: &Event, thread: &ThreadId, out: &mut Vec<Bytes>) {
        let at = time(event.at);
        match &event.body {
            Body::Run(body) => self.run_event(body, at, thread, out),
            Body::Message(MessageEvent::Thought { message, text }) => {
                let given = message.as_ref().map(|message| Arc::from(message.as_str()));
                let id = given.or_else(|| event.original.as_ref().and_then(thought_id));
                self.thought(id, text, at, out);
            }
            Body::Message(body) => self.message_event(body, at, thread, out),
            Body::Tool(body) => {
                let original = event.original.as_ref();
                let is_part = original.is_some_and(|original| *original.dialect == *PART);
                let update = (original.and_then(update_of), is_part);
                self.tool_event(body, update, at, thread, out);
            }
            Body::Interrupt(body) => self.interrupt_event(body, at, thread, out),
            Body::State(body) => {
                self.state_event(body, event.original.as_ref().and_then(update_of), out);
            }
            Body::Opaque => self.push_generic(&opaque(event.original.as_ref()), out),
            Body::Thread(_) => {}
        }
    }

    fn run_event(&mut self, event: &RunEvent, at: Time, thread: &ThreadId, out: &mut Vec<Bytes>) {
        match event {
            RunEvent::Created { run, agent, .. } => {
                self.head.run_id = uuid_of(run.as_str());
                self.head.session_id = uuid_of(thread.as_str());
                self.head.agent_name = Arc::from(face_name(agent));
                self.head.role = role_of(agent);
                self.head.created_at = at;
                self.push_run_event(EventKind::RunCreated, out);
            }
            RunEvent::Started => {
                self.has_started = true;
                self.head.status = WireStatus::InProgress;
                self.push_run_event(EventKind::RunInProgress, out);
            }
            RunEvent::Resumed => {
                self.pending.clear();
                self.head.status = WireStatus::InProgress;
                self.push_run_event(EventKind::RunInProgress, out);
            }
            RunEvent::Cancelling { reason: _ } => {
                self.pending.clear();
                self.head.status = WireStatus::Cancelling;
            }
            RunEvent::Result(value) => self.result(value, at, thread, out),
            RunEvent::Ended(outcome) => {
                self.end_calls(at, thread, out);
                self.end(outcome, at, out);
            }
        }
    }

    fn end(&mut self, outcome: &Outcome, at: Time, out: &mut Vec<Bytes>) {
        let completed = matches!(outcome, Outcome::Completed);
        while let Some(open) = self.open.take() {
            if completed || open.kind == Kind::Steps {
                self.complete(&open, open.end(at), out);
            } else {
                // Unfinished messages are shown up to their last piece.
                let json = open.whole(None);
                self.messages.push(RunMessage {
                    id: open.id,
                    kind: open.kind,
                    json,
                    complete: false,
                });
            }
            self.open_next(out);
        }
        self.pending.clear();
        self.head.status = status(outcome.status());
        self.head.error = error(outcome);
        self.head.finished_at = Some(at);
        self.push_run_event(ending(outcome.status()), out);
    }

    fn message_event(
        &mut self,
        event: &MessageEvent,
        at: Time,
        thread: &ThreadId,
        out: &mut Vec<Bytes>,
    ) {
        if !self.has_started && !self.show.input {
            return;
        }
        match event {
            MessageEvent::Started { message, role, times }
                if self.has_started && role.is_user() =>
            {
                // An answer is a message of the run, but not of its agent.
                let id = Some(message.clone());
                let answer = RenderedMessage::new(id, Kind::Input, wire_role(role), at, *times);
                self.answer_message = self.show.input.then_some(answer);
            }
            MessageEvent::Started { message, role, times } => {
                let kind = if self.has_started { Kind::Output } else { Kind::Input };
                let id = Some(message.clone());
                match &mut self.open {
                    Some(open) if open.kind == Kind::Steps => {
                        open.become_message(id, kind, *times);
                    }
                    _ => {
                        let role =
                            if self.has_started { self.head.role.clone() } else { wire_role(role) };
                        self.begin(RenderedMessage::new(id, kind, role, at, *times), out);
                    }
                }
            }
            MessageEvent::Delta { message, text } => {
                self.add(message, MessagePiece::Text(Arc::clone(text)), out);
            }
            MessageEvent::Part { message, part } => {
                let split = split_further(part);
                let part = match &split {
                    Some((None, _)) => None,
                    Some((Some(part), _)) => Some(part),
                    None => Some(part),
                };
                if let Some(part) = part {
                    let part = self.render(part, thread);
                    self.add(message, MessagePiece::Part(part), out);
                }
                if let Some((_, further)) = split {
                    self.add_further(message, further);
                }
            }
            MessageEvent::Completed { message } => self.completed(message, at, out),
            // Thoughts are steps, see [`Self::thought`].
            MessageEvent::Thought { .. } => {}
        }
    }

    /// Opens a message, or holds it back until the open one is complete.
    pub(super) fn begin(&mut self, message: RenderedMessage, out: &mut Vec<Bytes>) {
        if self.open.is_some() {
            self.queued_messages.push_back(message);
            return;
        }
        if self.has_started {
            out.push(render_event(EventKind::MessageCreated, &message.head()));
            for item in message.items() {
                out.push(render_event(EventKind::MessagePart, &item.as_part()));
            }
        }
        self.open = Some(message);
    }

    fn add(&mut self, message: &MessageId, item: MessagePiece, out: &mut Vec<Bytes>) {
        let is_it = |growing: &RenderedMessage| growing.id.as_ref() == Some(message);
        if let Some(heard) = self.answer_message.as_mut().filter(|heard| is_it(heard)) {
            heard.add(item);
        } else if let Some(open) = self.open.as_mut().filter(|open| is_it(open)) {
            if self.has_started {
                out.push(render_event(EventKind::MessagePart, &item.as_part()));
            }
            open.add(item);
        } else if let Some(held) = self.queued_messages.iter_mut().rfind(|held| is_it(held)) {
            held.add(item);
        }
    }

    fn add_further(&mut self, message: &MessageId, members: Map<String, Value>) {
        let mut growing =
            self.answer_message.iter_mut().chain(&mut self.open).chain(&mut self.queued_messages);
        if let Some(growing) = growing.rfind(|growing| growing.id.as_ref() == Some(message)) {
            growing.add_further(members);
        }
    }

    fn completed(&mut self, message: &MessageId, at: Time, out: &mut Vec<Bytes>) {
        let is_it = |growing: &RenderedMessage| growing.id.as_ref() == Some(message);
        if let Some(heard) = self.answer_message.take_if(|heard| is_it(heard)) {
            let json = heard.whole(heard.end(at));
            self.messages.push(RunMessage { id: heard.id, kind: heard.kind, json, complete: true });
        } else if let Some(open) = self.open.take_if(|open| is_it(open)) {
            self.complete(&open, open.end(at), out);
            self.open_next(out);
        } else if let Some(held) = self.queued_messages.iter_mut().rfind(|held| is_it(held)) {
            held.ended = Some(held.end(at));
        }
    }

    /// Opens held-back messages, up to the first that is not complete.
    fn open_next(&mut self, out: &mut Vec<Bytes>) {
        while self.open.is_none() {
            let Some(next) = self.queued_messages.pop_front() else { return };
            self.begin(next, out);
            let Some(open) = self.open.take_if(|open| open.ended.is_some()) else { return };
            self.complete(&open, open.ended.flatten(), out);
        }
    }

    fn complete(
        &mut self,
        message: &RenderedMessage,
        completed_at: Option<Time>,
        out: &mut Vec<Bytes>,
    ) {
        let json = message.whole(completed_at);
        if self.has_started {
            out.push(render_event(EventKind::MessageCompleted, &json));
        }
        self.messages.push(RunMessage {
            id: message.id.clone(),
            kind: message.kind,
            json,
            complete: true,
        });
    }

    /// Shows a value as a separate message.
    fn result(&mut self, value: &Json, at: Time, thread: &ThreadId, out: &mut Vec<Bytes>) {
        let parts: Vec<Bytes> =
            shape::output(value).iter().map(|part| self.render(part, thread)).collect();
        if let Some(mut open) = self.open.take_if(|open| open.kind == Kind::Steps) {
            open.become_message(None, Kind::Result, None);
            for part in parts {
                out.push(render_event(EventKind::MessagePart, &part));
                open.add(MessagePiece::Part(part));
            }
            self.complete(&open, Some(at), out);
            return;
        }
        let mut message =
            RenderedMessage::new(None, Kind::Result, self.head.role.clone(), at, None);
        parts.into_iter().for_each(|part| message.add(MessagePiece::Part(part)));
        message.ended = Some(Some(at));
        self.queued_messages.push_back(message);
        self.open_next(out);
    }

    fn interrupt_event(
        &mut self,
        event: &InterruptEvent,
        at: Time,
        thread: &ThreadId,
        out: &mut Vec<Bytes>,
    ) {
        match event {
            InterruptEvent::Raised(interrupt) => {
                if self.head.status == WireStatus::Cancelling {
                    return;
                }
                self.pending.push(Arc::new(self.ask(interrupt, at, thread)));
                self.head.status = WireStatus::Awaiting;
                if self.pending.len() == 1 {
                    self.push_run_event(EventKind::RunAwaiting, out);
                }
            }
            InterruptEvent::Resolved { interrupt, resolution } => {
                self.resolved(interrupt, resolution, out);
            }
            InterruptEvent::RuleApplied { rule, allowed, origin } => {
                let mut rule = json!({ "kind": "rule", "rule": rule, "allowed": allowed });
                if let Some(origin) = origin {
                    rule["origin"] = origin.as_str().into();
                }
                self.push_generic(rule.to_string().as_bytes(), out);
            }
        }
    }

    fn resolved(&mut self, interrupt: &InterruptId, resolution: &Resolution, out: &mut Vec<Bytes>) {
        let place = self.pending.iter().position(|waiting| waiting.interrupt.id == *interrupt);
        let Some(place) = place else { return };
        self.pending.remove(place);
        if self.head.status != WireStatus::Awaiting {
            return;
        }
        if self.pending.is_empty() {
            // It may have to wait for its turn, but it does not wait for an answer.
            self.head.status = WireStatus::InProgress;
        } else if place == 0 && goes_on(resolution) {
            self.push_run_event(EventKind::RunAwaiting, out);
        }
    }

    fn ask(&self, interrupt: &Interrupt, at: Time, thread: &ThreadId) -> AwaitedInterrupt {
        let parts =
            await_message::parts(interrupt, self.show.strict, |blob| self.link(blob, thread));
        let mut message = Vec::new();
        splice::message(&mut message, &self.head.role, parts, Some(at), Some(at));
        AwaitedInterrupt { interrupt: interrupt.clone(), message }
    }

    fn state_event(&mut self, event: &StateEvent, update: Option<&str>, out: &mut Vec<Bytes>) {
        match event {
            // The result has the final state.
            StateEvent::Values(_) | StateEvent::Output(_) => {}
            StateEvent::Plan(entries) => {
                let plan = json!({ "kind": "plan", "entries": plan_entries(entries) });
                self.push_plan(&plan, update, out);
            }
            StateEvent::PlanUpdated { plan, content } => {
                let mut shown = json!({ "kind": "plan_updated", "plan_id": plan });
                match content {
                    PlanContent::Entries(entries) => shown["entries"] = plan_entries(entries),
                    PlanContent::Markdown { text, path } => {
                        shown["markdown"] = text.as_str().into();
                        if let Some(path) = path {
                            shown["path"] = path.as_str().into();
                        }
                    }
                }
                self.push_plan(&shown, update, out);
            }
            StateEvent::PlanRemoved { plan } => {
                let removed = json!({ "kind": "plan_removed", "plan_id": plan });
                self.push_plan(&removed, update, out);
            }
            StateEvent::Subagent(one) => {
                let data = subagent(one);
                self.push_plan(&json!({ "kind": SUBAGENT, "data": data }), update, out);
            }
            // A custom event of this kind came as a generic one.
            StateEvent::Custom { kind, data } if kind == "generic" && data.is_object() => {
                self.push_generic(data.as_bytes(), out);
            }
            StateEvent::Custom { kind, data } => {
                let kind = Value::from(kind.as_str());
                let update = format!("{{\"kind\":{kind},\"data\":{}}}", data.as_str());
                self.push_generic(update.as_bytes(), out);
            }
        }
    }

    /// Adds a plan, with the update of a hosted agent from which it was made.
    fn push_plan(&self, plan: &Value, update: Option<&str>, out: &mut Vec<Bytes>) {
        let mut plan = plan.to_string().into_bytes();
        plan.pop();
        push_update(&mut plan, update);
        plan.push(b'}');
        self.push_generic(&plan, out);
    }

    pub(super) fn push_generic(&self, object: &[u8], out: &mut Vec<Bytes>) {
        if self.has_started {
            let mut object = object.to_vec();
            sse::safe(&mut object);
            out.push(render_event(EventKind::Generic, &object));
        }
    }

    pub(super) fn render(&mut self, part: &Part, thread: &ThreadId) -> Bytes {
        let length = match &part.content {
            Content::Text(text) => text.len(),
            Content::Bytes(bytes) => bytes.len(),
            Content::Empty | Content::Url(_) | Content::Blob(_) => 0,
        };
        if length > limits::INLINE_CONTENT_BYTES {
            self.inlined = self.inlined.saturating_add(length as u64);
        }
        let mut out = Vec::with_capacity(length + 160);
        write_part(part, self.show.strict, |blob| self.link(blob, thread), &mut out);
        sse::safe(&mut out);
        Bytes::from(out)
    }

    fn link(&self, blob: &BlobRef, thread: &ThreadId) -> String {
        let thread = percent_encoding::utf8_percent_encode(thread.as_str(), PATH_SEGMENT);
        format!("{}/sessions/{thread}/blobs/{}", self.show.base, hex(&blob.hash))
    }
}

/// Whether a run continues after one of its questions ended in this way; otherwise its other questions end too.
fn goes_on(resolution: &Resolution) -> bool {
    match resolution {
        Resolution::Answered { .. } | Resolution::TimedOut { option: Some(_) } => true,
        Resolution::TimedOut { option: None }
        | Resolution::Cancelled
        | Resolution::Withdrawn { .. } => false,
    }
}

fn ending(status: RunStatus) -> EventKind {
    match status {
        RunStatus::Completed => EventKind::RunCompleted,
        RunStatus::Cancelled => EventKind::RunCancelled,
        _ => EventKind::RunFailed,
    }
}

fn plan_entries(entries: &[PlanEntry]) -> Value {
    let entry = |it: &PlanEntry| json!({ "content": it.content, "status": it.status });
    entries.iter().map(entry).collect()
}

/// Adds another protocol's original to an object that is not closed yet.
pub(super) fn push_update(object: &mut Vec<u8>, update: Option<&str>) {
    if let Some(update) = update {
        object.extend_from_slice(format!(",\"{EXTENSION}\":").as_bytes());
        object.extend_from_slice(carried_update(update).as_bytes());
    }
}

fn opaque(original: Option<&Original>) -> Vec<u8> {
    let Some(original) = original else { return b"{\"kind\":\"opaque\"}".to_vec() };
    let dialect = Value::from(&*original.dialect);
    let version = original.version;
    let bytes = Json::parse(original.bytes.clone()).unwrap_or_else(|_| Json::null());
    format!(
        "{{\"kind\":\"opaque\",\"dialect\":{dialect},\"version\":{version},\"original\":{}}}",
        bytes.as_str()
    )
    .into_bytes()
}
