//! Threads: a conversation with metadata, a head and one log.

use std::sync::Arc;

use crate::id::{MessageId, RunId, ThreadId};
use crate::limits::MAX_TITLE_CHARS;

/// The member of a thread's metadata that names its agent.
pub const AGENT_MEMBER: &str = "trilogue.agent";
/// The member of a thread's metadata that is the title which somebody gave it.
pub const TITLE_MEMBER: &str = "trilogue.title";
/// The member of a thread's metadata that is the title which its agent gave it last. One that somebody gave comes before it.
pub const AGENT_TITLE_MEMBER: &str = "trilogue.agent_title";

/// A history that a client brings: references, which are read when somebody needs what they say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientHistory {
    /// Its messages, oldest first; at most [`crate::limits::MAX_GIVEN_ENTRIES`].
    pub entries: Vec<Reference>,
    /// Where its state lies, when that is elsewhere.
    pub state: Option<Arc<str>>,
}

/// Where one message of a history is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reference {
    /// A message of a thread of this tenant: agents choose ids of messages, and two threads may have the same one.
    Message {
        /// `None` in an entry that an older version stored: its message is in the thread whose history it is in.
        thread: Option<ThreadId>,
        /// Unique in the thread.
        id: MessageId,
    },
    /// What a run of this tenant answered with a value.
    Result(RunId),
    /// Somewhere else: an absolute http or https address, at most [`crate::limits::MAX_ADDRESS_BYTES`].
    Address(Arc<str>),
}

// === impl Reference ===

impl Reference {
    /// The reference of a history of this thread, with the thread that an older version left out.
    #[must_use]
    pub fn in_thread(&self, own: &ThreadId) -> Self {
        match self {
            Self::Message { thread: None, id } => {
                Self::Message { thread: Some(own.clone()), id: id.clone() }
            }
            other => other.clone(),
        }
    }

    /// The size of its text, in bytes.
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

/// What goes on in a thread, derived from its runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ThreadActivity {
    /// No run is open, and the newest ended well, was cancelled, or there is none.
    Idle,
    /// A run is queued, scheduled or at work.
    Busy,
    /// The newest run waits for an answer.
    Interrupted,
    /// The newest run failed or timed out.
    Failed,
}

/// Why a thread's head moved. History is the path to the head, not the log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeadMove {
    /// A run completed.
    Completion,
    /// Somebody set values.
    Patch,
    /// A run was rolled back.
    Rollback,
    /// The thread is a copy.
    Copy,
    /// A client brought another history.
    Replacement,
}

/// A title as it is kept: one line of at most [`MAX_TITLE_CHARS`] characters, the last of them `…` where it was cut, without control characters and those that change the direction of text or hide in it. `None` where nothing is left.
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
