use serde::Serialize;

use super::metadata::json_object;
use super::{ErrorBody, Json, Message, MessagePart, Run};
use crate::json::member::required;
use crate::json::object::find_members;
use crate::json::words::words;
use crate::json::{Path, Read, Violation};

/// An event of a run, told apart by `type`. Events about the run carry it as it was then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    #[serde(rename = "message.created")]
    MessageCreated { message: Message },
    #[serde(rename = "message.part")]
    MessagePart { part: MessagePart },
    #[serde(rename = "message.completed")]
    MessageCompleted { message: Message },
    /// An event that the protocol has no type for: a JSON object.
    #[serde(rename = "generic")]
    Generic { generic: Json },
    #[serde(rename = "run.created")]
    RunCreated { run: Box<Run> },
    #[serde(rename = "run.in-progress")]
    RunInProgress { run: Box<Run> },
    #[serde(rename = "run.awaiting")]
    RunAwaiting { run: Box<Run> },
    #[serde(rename = "run.completed")]
    RunCompleted { run: Box<Run> },
    #[serde(rename = "run.failed")]
    RunFailed { run: Box<Run> },
    #[serde(rename = "run.cancelled")]
    RunCancelled { run: Box<Run> },
    /// The stream ends here because of an error; the run may go on.
    #[serde(rename = "error")]
    Error { error: ErrorBody },
}

words! {
    pub enum EventKind {
        MessageCreated = "message.created";
        MessagePart = "message.part";
        MessageCompleted = "message.completed";
        Generic = "generic";
        RunCreated = "run.created";
        RunInProgress = "run.in-progress";
        RunAwaiting = "run.awaiting";
        RunCompleted = "run.completed";
        RunFailed = "run.failed";
        RunCancelled = "run.cancelled";
        Error = "error";
    }
}

// === impl Event ===

impl Event {
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

    pub fn write(&self, out: &mut Vec<u8>) {
        super::write::json(out, self);
    }
}

impl Read for Event {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        find_members!(json, at, {
            kind = "type",
            message = "message",
            part = "part",
            generic = "generic",
            run = "run",
            error = "error",
        } else _member => {});
        let kind: EventKind = required(kind, &at.key("type"))?;
        let at = at.key(kind.member());
        Ok(match kind {
            EventKind::MessageCreated => Self::MessageCreated { message: required(message, &at)? },
            EventKind::MessagePart => Self::MessagePart { part: required(part, &at)? },
            EventKind::MessageCompleted => {
                Self::MessageCompleted { message: required(message, &at)? }
            }
            EventKind::Generic => {
                let generic = json_object(generic, &at)?;
                Self::Generic { generic: generic.ok_or_else(|| at.violation("is missing"))? }
            }
            EventKind::RunCreated => Self::RunCreated { run: required(run, &at)? },
            EventKind::RunInProgress => Self::RunInProgress { run: required(run, &at)? },
            EventKind::RunAwaiting => Self::RunAwaiting { run: required(run, &at)? },
            EventKind::RunCompleted => Self::RunCompleted { run: required(run, &at)? },
            EventKind::RunFailed => Self::RunFailed { run: required(run, &at)? },
            EventKind::RunCancelled => Self::RunCancelled { run: required(run, &at)? },
            EventKind::Error => Self::Error { error: required(error, &at)? },
        })
    }
}

// === impl EventKind ===

impl EventKind {
    pub const fn member(self) -> &'static str {
        match self {
            Self::MessageCreated | Self::MessageCompleted => "message",
            Self::MessagePart => "part",
            Self::Generic => "generic",
            Self::Error => "error",
            _ => "run",
        }
    }

    pub const fn ends_run(self) -> bool {
        matches!(self, Self::RunCompleted | Self::RunFailed | Self::RunCancelled)
    }
}
