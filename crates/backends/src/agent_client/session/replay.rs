//! The replay of a reopened session: the log already has this history.

use std::time::Duration;

use tokio::time::Instant;

/// How long an agent may take to begin the replay after its response.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// Silence of this length ends the replay.
const QUIET: Duration = Duration::from_millis(150);
/// An update this long after the response and after the last replayed one is new.
const MAX_GAP: Duration = Duration::from_secs(5);

/// The updates that an agent sends only while it works on a prompt: outside of turns they are a replay. States, titles and notices arrive at any time.
pub(super) const CONVERSATION: [&str; 13] = [
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "plan_update",
    "plan_removed",
    "compaction_update",
    "compaction_summary_chunk",
    "subagent_update",
    "session_message",
    "session_message_chunk",
];

/// A replay. The next prompt ends it.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    /// When the response arrived.
    opened_at: Option<Instant>,
    /// When the last replayed update arrived.
    last: Option<Instant>,
}

// === impl Replay ===

impl Replay {
    /// Notes the agent's response that the session is open.
    pub(super) fn set_opened_at(&mut self, now: Instant) {
        self.opened_at = Some(now);
    }

    /// Whether an update of this kind is replayed.
    pub(super) fn takes(&mut self, kind: &str, now: Instant) -> bool {
        let is_replayed = match self.opened_at {
            None => true,
            Some(opened_at) => {
                CONVERSATION.contains(&kind)
                    && now < self.last.unwrap_or(opened_at).max(opened_at) + MAX_GAP
            }
        };
        if is_replayed {
            self.last = Some(now);
        }
        is_replayed
    }

    /// As [`Self::takes`], for an update that could not be read.
    pub(super) fn takes_unreadable(&mut self, now: Instant) -> bool {
        self.takes("agent_message_chunk", now)
    }

    /// When the replay ends if no more updates arrive. `is_expected` says whether there is a history to replay.
    pub(super) fn ends(&self, is_expected: bool) -> Option<Instant> {
        match (self.last, self.opened_at) {
            (Some(last), _) => Some(last + QUIET),
            (None, Some(opened_at)) if is_expected => Some(opened_at + MAX_DELAY),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
