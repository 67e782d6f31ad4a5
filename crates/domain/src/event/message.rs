use std::sync::Arc;

use crate::content::{Part, Role, Times};
use crate::id::MessageId;

/// Something said or thought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MessageEvent {
    /// A message begins.
    Started {
        /// Its id.
        message: MessageId,
        /// Who sends it.
        role: Role,
        /// When it was made, where its sender states it.
        times: Option<Times>,
    },
    /// Text that continues the message's open text part, or opens one.
    Delta {
        /// The message.
        message: MessageId,
        /// The text.
        text: Arc<str>,
    },
    /// A whole part.
    Part {
        /// The message.
        message: MessageId,
        /// The part.
        part: Part,
    },
    /// The message is complete.
    Completed {
        /// The message.
        message: MessageId,
    },
    /// Reasoning that is shown but is no part of any message.
    Thought {
        /// Its id, which is unique in the thread like that of a message. All pieces of one thought have it; `None` in logs of older versions.
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

    /// The message or thought that it is a piece of; `None` for a thought without an id.
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

    /// As [`Self::message`], to be changed.
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
