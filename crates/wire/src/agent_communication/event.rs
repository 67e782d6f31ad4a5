use serde::Serialize;

use super::{ErrorBody, Json, Message, MessagePart, Run};

/// What happens in a run, told apart by `type`. Every event about the run carries it as it then stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    /// A message begins.
    #[serde(rename = "message.created")]
    MessageCreated {
        /// The message.
        message: Message,
    },
    /// A message gets a part.
    #[serde(rename = "message.part")]
    MessagePart {
        /// The part.
        part: MessagePart,
    },
    /// A message is complete.
    #[serde(rename = "message.completed")]
    MessageCompleted {
        /// The message.
        message: Message,
    },
    /// Something that the protocol has no word for: a JSON object.
    #[serde(rename = "generic")]
    Generic {
        /// The object.
        generic: Json,
    },
    /// The run was created.
    #[serde(rename = "run.created")]
    RunCreated {
        /// The run as it stands.
        run: Box<Run>,
    },
    /// The agent works.
    #[serde(rename = "run.in-progress")]
    RunInProgress {
        /// The run as it stands.
        run: Box<Run>,
    },
    /// The run waits.
    #[serde(rename = "run.awaiting")]
    RunAwaiting {
        /// The run as it stands.
        run: Box<Run>,
    },
    /// The run ended well.
    #[serde(rename = "run.completed")]
    RunCompleted {
        /// The run as it stands.
        run: Box<Run>,
    },
    /// The run ended with an error.
    #[serde(rename = "run.failed")]
    RunFailed {
        /// The run as it stands.
        run: Box<Run>,
    },
    /// The run was stopped.
    #[serde(rename = "run.cancelled")]
    RunCancelled {
        /// The run as it stands.
        run: Box<Run>,
    },
    /// The stream ends here because of an error; the run may go on.
    #[serde(rename = "error")]
    Error {
        /// What happened.
        error: ErrorBody,
    },
}

/// The types of events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventKind {
    /// See [`Event::MessageCreated`].
    MessageCreated,
    /// See [`Event::MessagePart`].
    MessagePart,
    /// See [`Event::MessageCompleted`].
    MessageCompleted,
    /// See [`Event::Generic`].
    Generic,
    /// See [`Event::RunCreated`].
    RunCreated,
    /// See [`Event::RunInProgress`].
    RunInProgress,
    /// See [`Event::RunAwaiting`].
    RunAwaiting,
    /// See [`Event::RunCompleted`].
    RunCompleted,
    /// See [`Event::RunFailed`].
    RunFailed,
    /// See [`Event::RunCancelled`].
    RunCancelled,
    /// See [`Event::Error`].
    Error,
}

// === impl Event ===

impl Event {
    /// Its type.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::MessageCreated { .. } => EventKind::MessageCreated,
            Self::MessagePart { .. } => EventKind::MessagePart,
            Self::MessageCompleted { .. } => EventKind::MessageCompleted,
            Self::Generic { .. } => EventKind::Generic,
            Self::RunCreated { .. } => EventKind::RunCreated,
            Self::RunInProgress { .. } => EventKind::RunInProgress,
            Self::RunAwaiting { .. } => EventKind::RunAwaiting,
            Self::RunCompleted { .. } => EventKind::RunCompleted,
            Self::RunFailed { .. } => EventKind::RunFailed,
            Self::RunCancelled { .. } => EventKind::RunCancelled,
            Self::Error { .. } => EventKind::Error,
        }
    }

    /// The run that the event carries.
    #[must_use]
    pub fn run(&self) -> Option<&Run> {
        match self {
            Self::RunCreated { run }
            | Self::RunInProgress { run }
            | Self::RunAwaiting { run }
            | Self::RunCompleted { run }
            | Self::RunFailed { run }
            | Self::RunCancelled { run } => Some(run),
            _ => None,
        }
    }

    /// Writes the event as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::splice::json(out, self);
    }
}

// === impl EventKind ===

impl EventKind {
    /// Every type.
    pub const ALL: [Self; 11] = [
        Self::MessageCreated,
        Self::MessagePart,
        Self::MessageCompleted,
        Self::Generic,
        Self::RunCreated,
        Self::RunInProgress,
        Self::RunAwaiting,
        Self::RunCompleted,
        Self::RunFailed,
        Self::RunCancelled,
        Self::Error,
    ];

    /// The type on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MessageCreated => "message.created",
            Self::MessagePart => "message.part",
            Self::MessageCompleted => "message.completed",
            Self::Generic => "generic",
            Self::RunCreated => "run.created",
            Self::RunInProgress => "run.in-progress",
            Self::RunAwaiting => "run.awaiting",
            Self::RunCompleted => "run.completed",
            Self::RunFailed => "run.failed",
            Self::RunCancelled => "run.cancelled",
            Self::Error => "error",
        }
    }

    /// The member that carries what the event is about.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::MessageCreated | Self::MessageCompleted => "message",
            Self::MessagePart => "part",
            Self::Generic => "generic",
            Self::Error => "error",
            _ => "run",
        }
    }

    /// The type of this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether the run has ended with this event.
    #[must_use]
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::RunCompleted | Self::RunFailed | Self::RunCancelled)
    }
}
