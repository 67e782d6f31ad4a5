//! The history of a session that was opened again: what the agent tells of it is in the log already.

use std::time::Duration;

use tokio::time::Instant;

/// How long an agent that has answered may take to begin telling the history, where it told nothing before.
const LATE: Duration = Duration::from_secs(1);
/// How long it is quiet when the history was told.
const QUIET: Duration = Duration::from_millis(150);
/// What is said so long after the answer and after the last piece is new, where nobody prompts before.
const NEW: Duration = Duration::from_secs(5);

/// What nobody but an agent that works says: outside of turns it is history. States, titles and notices are said at any time.
const CONVERSATION: [&str; 8] = [
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "compaction_update",
    "compaction_summary_chunk",
];

/// The history as it is told again. The next prompt ends it.
#[derive(Debug, Default)]
pub(super) struct Replay {
    answered: Option<Instant>,
    /// When the last piece came.
    last: Option<Instant>,
}

// === impl Replay ===

impl Replay {
    /// The agent has said that the session is open.
    pub(super) fn answered(&mut self, now: Instant) {
        self.answered = Some(now);
    }

    /// Whether an update of this kind is a piece of the history.
    pub(super) fn takes(&mut self, kind: &str, now: Instant) -> bool {
        let is_piece = match self.answered {
            None => true,
            Some(answered) => {
                CONVERSATION.contains(&kind)
                    && now < self.last.unwrap_or(answered).max(answered) + NEW
            }
        };
        if is_piece {
            self.last = Some(now);
        }
        is_piece
    }

    /// Likewise for an update that was let go by: it may have been any.
    pub(super) fn takes_unread(&mut self, now: Instant) -> bool {
        self.takes("agent_message_chunk", now)
    }

    /// When the history has been told, if nothing more comes. `is_expected` says whether there is one.
    pub(super) fn ends(&self, is_expected: bool) -> Option<Instant> {
        match (self.last, self.answered) {
            (Some(last), _) => Some(last + QUIET),
            (None, Some(answered)) if is_expected => Some(answered + LATE),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
