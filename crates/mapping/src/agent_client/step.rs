//! Steps of hosted agents for protocols that show a whole step: a thought, or a tool call with its input and output.

use std::sync::Arc;

use trilogue_domain::event::{Original, ToolStatus};
use trilogue_domain::{Json, Trajectory, limits};
use trilogue_wire::agent_client::splice::{self, members};

use super::UPDATE;
use super::original::{OTHER_TOOL, ToolCallFields};

/// The longest merged tool call, in bytes. If it grows longer, only the newest update is kept.
const MAX_MERGED_BYTES: usize = limits::MAX_EVENT_BYTES;

/// Returns the id of the thought that a chunk belongs to, if its agent gave one: chunks with another id are another thought.
pub(crate) fn thought_id(original: &Original) -> Option<Arc<str>> {
    if *original.dialect != *UPDATE {
        return None;
    }
    let id = splice::message_id(std::str::from_utf8(&original.bytes).ok()?)?;
    Some(Arc::from(&*id))
}

/// Merges one more update into a tool call: a member that the update omits stays unchanged.
pub(crate) fn merge_update(before: Option<&str>, update: &str) -> Arc<str> {
    let Some(before) = before.filter(|it| it.len() + update.len() <= MAX_MERGED_BYTES) else {
        return Arc::from(update);
    };
    let mut merged = before.to_owned();
    for member in members(update) {
        if member.key == "sessionUpdate" || member.value == "null" {
            continue;
        }
        if let Some(more) = splice::set(&merged, &[&member.key], member.value) {
            merged = more;
        }
    }
    Arc::from(merged)
}

/// Sets the members of a step from a merged tool call.
pub(crate) fn overlay_step(step: &mut Trajectory, call: &str) {
    let call = ToolCallFields::of(call);
    let is_unnamed = step.tool_name.as_deref().is_none_or(|tool| tool == OTHER_TOOL);
    if let Some(name) = call.name() {
        step.tool_name = Some(name.into_owned());
    } else if is_unnamed {
        step.tool_name = Some(call.tool());
    }
    if let Some(title) = call.title().filter(|title| !title.is_empty()) {
        step.message = Some(title.into_owned());
    }
    if let Some(input) = call.input() {
        step.tool_input = Some(input);
    }
}

/// Returns how a tool call ended that had already ended when it began.
pub(crate) fn ended_at_start(call: &str) -> Option<(ToolStatus, Option<Json>)> {
    let call = ToolCallFields::of(call);
    Some((call.end()?, call.output()))
}
