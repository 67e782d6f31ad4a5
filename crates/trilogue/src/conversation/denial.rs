//! Whether a denied call ended a turn.

use std::collections::HashMap;

use serde_json::Value;
use trilogue_wire::native::{Effect, EventBody, Resolution};

/// The agent's result of a turn, in the log.
const TURN_RESULT: &str = "turn_result";
/// The reasons of a turn's end that a denied call can lead to.
const STOPPED: [&str; 2] = ["cancelled", "refusal"];

/// Follows the agent's actions after a call was denied.
#[derive(Debug, Default)]
pub(super) struct DenialTracker {
    /// The options that reject, by the open permission request. At most as many as a run can have open.
    rejecting: HashMap<String, Vec<String>>,
    is_denied: bool,
    /// Whether the agent has said or done nothing since the last denial.
    is_last: bool,
    is_stopped: bool,
}

// === impl DenialTracker ===

impl DenialTracker {
    /// Whether a denied call ended the turn: the agent stopped because of it, or did nothing more.
    pub(super) fn has_ended_turn(&self) -> bool {
        self.is_denied && (self.is_last || self.is_stopped)
    }

    pub(super) fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::InterruptRaised(raised) if raised.interrupt.kind == "permission" => {
                let options = raised.interrupt.options.iter();
                let rejecting = options.filter(|option| option.effect == Effect::Reject);
                let ids = rejecting.map(|option| option.id.clone()).collect();
                self.rejecting.insert(raised.interrupt.id.clone(), ids);
            }
            EventBody::InterruptResolved(resolved) => {
                let rejecting = self.rejecting.remove(&resolved.interrupt_id);
                if rejecting.is_some_and(|ids| is_rejection(&resolved.resolution, &ids)) {
                    self.record_denial();
                }
            }
            EventBody::InterruptRuleApplied(applied) if !applied.allowed => self.record_denial(),
            EventBody::MessageDelta(delta) if !delta.text.trim().is_empty() => self.is_last = false,
            EventBody::MessagePart(_) | EventBody::ToolStarted(_) | EventBody::RunResult(_) => {
                self.is_last = false;
            }
            EventBody::StateCustom(update) if update.kind == TURN_RESULT => {
                let result = update.data.to_value();
                let reason = result.get("stopReason").and_then(Value::as_str);
                self.is_stopped = reason.is_some_and(|reason| STOPPED.contains(&reason));
            }
            _ => {}
        }
    }

    fn record_denial(&mut self) {
        (self.is_denied, self.is_last) = (true, true);
    }
}

fn is_rejection(resolution: &Resolution, rejecting: &[String]) -> bool {
    let answer = resolution.answer.as_ref().and_then(|answer| answer.option.as_ref());
    let option = answer.or(resolution.option.as_ref());
    option.is_some_and(|option| rejecting.contains(option))
}
