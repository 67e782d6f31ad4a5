use std::sync::Arc;

use crate::content::{Part, Role, Times};
use crate::id::MessageId;

/// An event of a message or a thought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageEvent {
    /// A message begins.
    Started {
        /// The id of the message.
        message: MessageId,
        /// The author.
        role: Role,
        /// The times of the message, if its sender states them.
        times: Option<Times>,
    },
    /// Text that continues the message's open text part, or begins one.
    Delta {
        /// The id of the message.
        message: MessageId,
        /// The text.
        text: Arc<str>,
    },
    /// A whole part.
    Part {
        /// The id of the message.
        message: MessageId,
        /// The part.
        part: Part,
    },
    /// The message is complete.
    Completed {
        /// The id of the message.
        message: MessageId,
    },
    /// Reasoning that is shown but belongs to no message.
    Thought {
        /// The id, which is unique in the thread like that of a message. All pieces of one thought share it; `None` in logs of older versions.
        message: Option<MessageId>,
        /// The text.
        text: Arc<str>,
    },
}

impl MessageEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "message.started",
            Self::Delta { .. } => "message.delta",
            Self::Part { .. } => "message.part",
            Self::Completed { .. } => "message.completed",
            Self::Thought { .. } => "message.thought",
        }
    }

    /// Returns the message or thought that this is a piece of; `None` for a thought without an id.
    #[must_use]
    pub fn message(&self) -> Option<&MessageId> {
        match self {
            Self::Started { message, .. }
            | Self::Delta { message, .. }
            | Self::Part { message, .. }
            | Self::Completed { message } => Some(message),
            Self::Thought { message, .. } => message.as_ref(),
        }
    }

    /// Returns the id like [`Self::message`], as a mutable reference.
    pub fn message_mut(&mut self) -> Option<&mut MessageId> {
        match self {
            Self::Started { message, .. }
            | Self::Delta { message, .. }
            | Self::Part { message, .. }
            | Self::Completed { message } => Some(message),
            Self::Thought { message, .. } => message.as_mut(),
        }
    }
}
