use serde::Serialize;

use super::metadata::json_object;
use super::{ErrorBody, Json, Message, MessagePart, Run, RunStatus};
use crate::json::member::required;
use crate::json::object::find_members;
use crate::json::words::words;
use crate::json::{Path, Read, Violation};

/// Declares the events, each with its one member.
macro_rules! events {
    ($( $(#[$attr:meta])* $variant:ident { $member:ident: $type:ty } = $word:literal by $read:path; )*) => {
        /// An event of a run. `type` selects the variant. Events about the run contain its state at that time.
        /// An event of an unknown type is read as a generic one with all its members.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        #[serde(tag = "type")]
        pub enum Event {
            $( $(#[$attr])* #[serde(rename = $word)] $variant { $member: $type }, )*
        }

        words! {
            pub enum EventKind {
                $( $variant = $word; )*
            }
        }

        impl Event {
            pub const fn kind(&self) -> EventKind {
                match self {
                    $( Self::$variant { .. } => EventKind::$variant, )*
                }
            }

            fn read_member(kind: EventKind, json: Option<&str>, at: &Path<'_>) -> Result<Self, Violation> {
                Ok(match kind {
                    $( EventKind::$variant => Self::$variant { $member: $read(json, at)? }, )*
                })
            }
        }

        impl EventKind {
            pub const fn member(self) -> &'static str {
                match self {
                    $( Self::$variant => stringify!($member), )*
                }
            }
        }
    };
}

events! {
    MessageCreated { message: Message } = "message.created" by required;
    MessagePart { part: MessagePart } = "message.part" by required;
    MessageCompleted { message: Message } = "message.completed" by required;
    /// An event that the protocol does not define: a JSON object.
    Generic { generic: Json } = "generic" by required_object;
    RunCreated { run: Box<Run> } = "run.created" by required;
    RunInProgress { run: Box<Run> } = "run.in-progress" by required;
    RunAwaiting { run: Box<Run> } = "run.awaiting" by required;
    RunCompleted { run: Box<Run> } = "run.completed" by required;
    RunFailed { run: Box<Run> } = "run.failed" by required;
    RunCancelled { run: Box<Run> } = "run.cancelled" by required;
    /// The stream ends here because of an error. The run may continue.
    Error { error: ErrorBody } = "error" by required;
}

// === impl Event ===

impl Event {
    /// Returns the event for a run that has ended or awaits an answer; `None` while it is running.
    pub fn of_standing(run: Run) -> Option<Self> {
        let run = Box::new(run);
        match run.status {
            RunStatus::Awaiting => Some(Self::RunAwaiting { run }),
            RunStatus::Completed => Some(Self::RunCompleted { run }),
            RunStatus::Failed => Some(Self::RunFailed { run }),
            RunStatus::Cancelled => Some(Self::RunCancelled { run }),
            RunStatus::Created | RunStatus::InProgress | RunStatus::Cancelling => None,
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
        let kind: EventKind = match required(kind, &at.key("type")) {
            // An event type of a later protocol version is still an event.
            Err(_) if kind.is_some_and(|kind| kind.starts_with('"')) => {
                return Ok(Self::Generic { generic: required_object(Some(json), at)? });
            }
            kind => kind?,
        };
        let member = match kind.member() {
            "message" => message,
            "part" => part,
            "generic" => generic,
            "run" => run,
            _ => error,
        };
        Self::read_member(kind, member, &at.key(kind.member()))
    }
}

// === impl EventKind ===

impl EventKind {
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::RunCompleted | Self::RunFailed | Self::RunCancelled)
    }
}

fn required_object(json: Option<&str>, at: &Path<'_>) -> Result<Json, Violation> {
    json_object(json, at)?.ok_or_else(|| at.violation("is missing"))
}
