//! Threads: a conversation with metadata, a head and one log.

use std::sync::Arc;

use crate::id::{MessageId, RunId, ThreadId};
use crate::limits::MAX_TITLE_CHARS;

/// The metadata member that names a thread's agent.
pub const AGENT_MEMBER: &str = "trilogue.agent";
/// The metadata member with the title that a user gave the thread.
pub const TITLE_MEMBER: &str = "trilogue.title";
/// The metadata member with the newest title from the agent. A title from a user has priority.
pub const AGENT_TITLE_MEMBER: &str = "trilogue.agent_title";

/// The member of a session's binding which says that a program on this machine has opened its folders. A restored store does not have it.
pub const OPENED_HERE_MEMBER: &str = "openedHere";

/// The metadata member with a client's instructions for the agent, a [`SystemPrompt`]: `{"mode": "append" or "override", "text": …}`.
pub const SYSTEM_PROMPT_MEMBER: &str = "trilogue.system_prompt";

/// Instructions of a client for an agent, in a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemPrompt {
    /// Whether they replace the agent's own instructions. Otherwise they are added to them.
    pub overrides: bool,
    /// The instructions.
    pub text: String,
}

/// A history from a client: references, which are read when their content is needed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientHistory {
    /// The messages, oldest first; at most [`crate::limits::MAX_GIVEN_ENTRIES`].
    pub entries: Vec<Reference>,
    /// The address of the state, if it is elsewhere.
    pub state: Option<Arc<str>>,
}

/// A reference to one message of a history.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reference {
    /// A message of a thread of this tenant. The thread is needed because agents choose message ids, and two threads may have the same one.
    Message {
        /// The thread. `None` in an entry from an older version: the message is then in the thread that has this history.
        thread: Option<ThreadId>,
        /// The id, which is unique in the thread.
        id: MessageId,
    },
    /// The result value of a run of this tenant.
    Result(RunId),
    /// An absolute http or https URL elsewhere, at most [`crate::limits::MAX_ADDRESS_BYTES`].
    Address(Arc<str>),
}

// === impl Reference ===

impl Reference {
    /// Adds the thread that an older version left out. `own` is the thread that has this history.
    #[must_use]
    pub fn in_thread(&self, own: &ThreadId) -> Self {
        match self {
            Self::Message { thread: None, id } => {
                Self::Message { thread: Some(own.clone()), id: id.clone() }
            }
            other => other.clone(),
        }
    }

    /// Returns the size of the text, in bytes.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Message { thread, id } => {
                id.as_str().len() + thread.as_ref().map_or(0, |thread| thread.as_str().len())
            }
            Self::Result(id) => id.as_str().len(),
            Self::Address(address) => address.len(),
        }
    }
}

/// The activity of a thread, derived from its runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ThreadActivity {
    /// No run is open. The newest run ended well or was cancelled, or the thread has no run.
    Idle,
    /// A run is queued, scheduled or running.
    Busy,
    /// The newest run waits for an answer.
    Interrupted,
    /// The newest run failed or timed out.
    Failed,
}

/// Why a thread's head moved. A thread's history is the path to its head, not its log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeadMove {
    /// A run completed.
    Completion,
    /// A client set values.
    Patch,
    /// A run was rolled back.
    Rollback,
    /// The thread is a copy.
    Copy,
    /// A client replaced the history.
    Replacement,
}

/// Returns a title in its stored form: one line of at most [`MAX_TITLE_CHARS`] characters, without control characters and without characters that hide text or change its direction. A cut title ends with `…`. Returns `None` if no character is left.
#[must_use]
pub fn title(text: &str) -> Option<String> {
    let is_kept = |letter: &char| {
        !letter.is_control()
            && !matches!(letter,
                '\u{00AD}'
                | '\u{061C}'
                | '\u{180E}'
                | '\u{200B}'..='\u{200F}'
                | '\u{202A}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
                | '\u{FFF9}'..='\u{FFFB}'
                | '\u{E0000}'..='\u{E007F}')
    };
    let (mut title, mut count) = (String::new(), 0);
    for word in text.split_whitespace() {
        let mut letters = word.chars().filter(is_kept).peekable();
        let space = (count > 0 && letters.peek().is_some()).then_some(' ');
        for letter in space.into_iter().chain(letters) {
            if count == MAX_TITLE_CHARS {
                title.pop();
                title.push('…');
                return Some(title);
            }
            title.push(letter);
            count += 1;
        }
    }
    (count > 0).then_some(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        for (text, kept) in [
            (" A\n title\t", Some("A title")),
            ("\u{1b}[31mred\u{202E}", Some("[31mred")),
            ("a \u{200B} b", Some("a b")),
            ("\u{61C}a\u{AD}\u{180E}\u{206F}b\u{FFF9}\u{FFFB}\u{E0001}\u{E007F}", Some("ab")),
            (" \u{7} \n", None),
            ("", None),
        ] {
            assert_eq!(title(text).as_deref(), kept, "{text:?}");
        }
        let long = title(&"ä".repeat(MAX_TITLE_CHARS + 1)).unwrap();
        assert_eq!(long, format!("{}…", "ä".repeat(MAX_TITLE_CHARS - 1)));
        let fits = "b".repeat(MAX_TITLE_CHARS);
        assert_eq!(title(&fits), Some(fits));
    }
}
