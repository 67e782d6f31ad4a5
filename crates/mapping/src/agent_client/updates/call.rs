//! Converts tool calls to updates.

use serde_json::json;
use trilogue_domain::event::{ToolEvent, ToolStatus};
use trilogue_domain::{Content, Json, Outcome, Part, RunKey, Trajectory};
use trilogue_wire::agent_client::{ToolKind, splice};

use super::chunk::{Chunk, member};
use super::{EventPosition, Update, Updates};
use crate::agent_client::block::{push_block, quoted};
use crate::agent_client::relay::derive_uuid;
use crate::agent_client::{Gate, PART_EXTENSION};

#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    run: Option<RunKey>,
    /// Its id in its run.
    call: String,
    /// Its id in the session.
    shown_id: String,
    has_content: bool,
    /// Its agent sends the protocol's own updates, and gets no generated one when the run ends well.
    is_original: bool,
}

/// The most remembered tool calls; beyond that the oldest are forgotten.
const MAX_OPEN: usize = 1_024;

// === impl Updates ===

impl Updates {
    /// Renders a step of an agent whose steps are part of its messages.
    pub(super) fn step(
        &mut self,
        step: &Trajectory,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        if let Some(text) = &step.message {
            let id = derive_uuid(place.within, &place.number.to_string()).hyphenated().to_string();
            self.text(Chunk::Thought, &id, text, out);
        }
        let Some(tool) = &step.tool_name else { return };
        let known = |open: &OpenCall| open.run == place.run && open.call == *tool;
        let open = self.calls.iter().rposition(known);
        match (open, &step.tool_output) {
            (Some(open), Some(output)) => {
                let open = self.calls.swap_remove(open);
                self.push_call_end(&open, ToolStatus::Completed, Some(output), out);
            }
            (_, output) => {
                let shown =
                    derive_uuid(place.within, &format!("tool {}", place.number)).to_string();
                self.push_call_start(&shown, tool, "", step.tool_input.as_ref(), out);
                let (run, call) = (place.run, tool.clone());
                let open =
                    OpenCall { run, call, shown_id: shown, has_content: false, is_original: false };
                match output {
                    Some(_) => {
                        self.push_call_end(&open, ToolStatus::Completed, output.as_ref(), out)
                    }
                    None => self.remember_call(open),
                }
            }
        }
    }

    pub(super) fn tool_event(
        &mut self,
        event: &ToolEvent,
        place: EventPosition<'_>,
        out: &mut Vec<Update>,
    ) {
        self.thoughts.retain(|(run, _)| *run != place.run);
        match event {
            ToolEvent::Started { call, tool, title, input, message: _ } => {
                let shown = shown_call(call, place.within);
                self.push_call_start(&shown, tool, title, input.as_ref(), out);
                let (run, call) = (place.run, call.clone());
                let is_original = false;
                let has_content = self.called.is_some();
                self.remember_call(OpenCall {
                    run,
                    call,
                    shown_id: shown,
                    has_content,
                    is_original,
                });
            }
            ToolEvent::Updated { call, content } => {
                let open = self.open_call(call, place.run);
                let mut update = begin_call("tool_call_update", &open.shown_id);
                member(&mut update, "status", "\"in_progress\"");
                member(&mut update, "content", &self.tool_content(content));
                self.update(&update, Gate::Always, out);
                let known = self.calls.iter_mut().find(|known| known.shown_id == open.shown_id);
                if let Some(known) = known {
                    known.has_content = !content.is_empty();
                }
            }
            ToolEvent::Ended { call, status, output } => {
                let open = self.open_call(call, place.run);
                self.calls.retain(|known| known.shown_id != open.shown_id);
                self.push_call_end(&open, *status, output.as_ref(), out);
            }
        }
    }

    /// Returns an open call, or one that began as an original with this id.
    fn open_call(&self, call: &str, run: Option<RunKey>) -> OpenCall {
        let known = self.calls.iter().rfind(|open| open.run == run && open.call == call);
        known.cloned().unwrap_or_else(|| OpenCall {
            run,
            call: call.to_owned(),
            shown_id: call.to_owned(),
            has_content: true,
            is_original: true,
        })
    }

    /// Records the tool call of a relayed update with these `params`. A call that its agent leaves open is ended with its run; an update without status opens no call, because the call may have ended before.
    pub fn record_relayed_call(&mut self, run: Option<RunKey>, params: &[u8]) {
        let update = std::str::from_utf8(params).ok().and_then(|it| splice::get(it, &["update"]));
        let Some(update) = update.filter(|_| run.is_some()) else { return };
        let (mut call, mut status, mut begins) = (None, None, false);
        for member in splice::members(update) {
            match &*member.key {
                "toolCallId" => call = splice::decode(member.value),
                "status" => status = splice::decode(member.value),
                "sessionUpdate" => begins = member.value == "\"tool_call\"",
                _ => {}
            }
        }
        let Some(call) = call else { return };
        let known = self.calls.iter().rposition(|open| open.run == run && open.shown_id == *call);
        let has_ended = !matches!(status.as_deref(), None | Some("pending" | "in_progress"));
        match known {
            Some(known) if has_ended => drop(self.calls.remove(known)),
            Some(_) => {}
            None if has_ended || status.is_none() && !begins => {}
            None => {
                let (call, shown) = (call.clone().into_owned(), call.into_owned());
                self.remember_call(OpenCall {
                    run,
                    call,
                    shown_id: shown,
                    has_content: true,
                    is_original: true,
                });
            }
        }
    }

    fn remember_call(&mut self, call: OpenCall) {
        if self.calls.len() >= MAX_OPEN {
            self.calls.remove(0);
        }
        self.calls.push(call);
    }

    fn push_call_start(
        &self,
        shown: &str,
        tool: &str,
        title: &str,
        input: Option<&Json>,
        out: &mut Vec<Update>,
    ) {
        let mut update = begin_call("tool_call", shown);
        member(&mut update, "title", &quoted(if title.is_empty() { tool } else { title }));
        member(&mut update, "name", &quoted(tool));
        if let Some(kind) = ToolKind::parse(tool) {
            member(&mut update, "kind", &quoted(kind.as_str()));
        }
        member(&mut update, "status", "\"in_progress\"");
        if let Some(thread) = &self.called {
            let content = json!([{ "type": "session", "sessionId": thread.as_str() }]);
            member(&mut update, "content", &content.to_string());
        }
        if let Some(input) = input {
            member(&mut update, "rawInput", input.as_str());
        }
        self.update(&update, Gate::Always, out);
    }

    fn push_call_end(
        &self,
        open: &OpenCall,
        status: ToolStatus,
        output: Option<&Json>,
        out: &mut Vec<Update>,
    ) {
        let status = match status {
            ToolStatus::Completed => "\"completed\"",
            ToolStatus::Failed => "\"failed\"",
        };
        let mut update = begin_call("tool_call_update", &open.shown_id);
        member(&mut update, "status", status);
        if let Some(output) = output {
            // Clients show content, but raw output only in details.
            if let Some(text) = splice::decode(output.as_str()).filter(|_| !open.has_content) {
                member(&mut update, "content", &self.tool_content(&[Part::text(&*text)]));
            }
            member(&mut update, "rawOutput", output.as_str());
        }
        self.update(&update, Gate::Always, out);
    }

    pub(super) fn end_calls(
        &mut self,
        run: Option<RunKey>,
        outcome: &Outcome,
        out: &mut Vec<Update>,
    ) {
        let status = match outcome {
            Outcome::Completed => ToolStatus::Completed,
            Outcome::Failed(_) | Outcome::Cancelled { .. } | Outcome::TimedOut { .. } => {
                ToolStatus::Failed
            }
        };
        let (left, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.calls).into_iter().partition(|open| open.run == run);
        self.calls = others;
        let is_told = |open: &&OpenCall| !open.is_original || status == ToolStatus::Failed;
        for open in left.iter().filter(is_told) {
            self.push_call_end(open, status, None, out);
        }
    }

    fn tool_content(&self, parts: &[Part]) -> String {
        let mut content = String::from("[");
        for part in parts {
            let comma = if content.len() > 1 { "," } else { "" };
            let at = content.len();
            content.push_str(comma);
            if let Some(item) = tool_item(part) {
                content.push_str(item);
                continue;
            }
            content.push_str("{\"type\":\"content\",\"content\":");
            if push_block(part, self.extension, self.relay.thread().as_str(), &mut content) {
                content.push('}');
            } else {
                content.truncate(at);
            }
        }
        content.push(']');
        content
    }
}

/// Returns a call's id in its session: the call's own if it is unique, otherwise prefixed with its run.
pub fn shown_call(call: &str, within: &str) -> String {
    let is_uuid = call.len() == 36 && uuid::Uuid::try_parse(call).is_ok();
    if is_uuid { call.to_owned() } else { format!("{within}:{call}") }
}

/// Returns a tool call's content that is not a block.
fn tool_item(part: &Part) -> Option<&str> {
    let extra = part.extra.as_ref()?;
    splice::get(extra.as_str(), &[PART_EXTENSION, "tool_content"])?;
    match &part.content {
        Content::Text(item) => Some(item),
        _ => None,
    }
}

fn begin_call(kind: &str, id: &str) -> String {
    format!("{{\"sessionUpdate\":\"{kind}\",\"toolCallId\":{}", quoted(id))
}
