use std::fmt;

use serde::Serialize;

use super::{AwaitRequest, ErrorBody, Message, Time, Uuid};

/// One execution of an agent, as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Run {
    /// Its id.
    pub run_id: Uuid,
    /// The agent that runs.
    pub agent_name: String,
    /// The session it belongs to.
    pub session_id: Option<Uuid>,
    /// Where it stands.
    pub status: RunStatus,
    /// What it waits for.
    pub await_request: Option<AwaitRequest>,
    /// What the agent has said so far.
    pub output: Vec<Message>,
    /// Why it failed.
    pub error: Option<ErrorBody>,
    /// When it was created.
    pub created_at: Time,
    /// When it ended.
    pub finished_at: Option<Time>,
}

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// It has not started.
    Created,
    /// The agent works.
    InProgress,
    /// It waits for a message.
    Awaiting,
    /// It was told to stop.
    Cancelling,
    /// It was stopped.
    Cancelled,
    /// It ended well.
    Completed,
    /// It ended with an error.
    Failed,
}

/// How the answer to a request is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunMode {
    /// The run, when it has ended or waits.
    #[default]
    Sync,
    /// The run at once.
    Async,
    /// Its events as they happen.
    Stream,
}

// === impl Run ===

impl Run {
    /// Writes the run as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::splice::json(out, self);
    }
}

// === impl RunStatus ===

impl RunStatus {
    /// Every status.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::InProgress,
        Self::Awaiting,
        Self::Cancelling,
        Self::Cancelled,
        Self::Completed,
        Self::Failed,
    ];

    /// The status on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::InProgress => "in-progress",
            Self::Awaiting => "awaiting",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// The status of this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether nothing follows.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Cancelled | Self::Completed | Self::Failed)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl RunMode ===

impl RunMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Sync, Self::Async, Self::Stream];

    /// The mode on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Stream => "stream",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

impl fmt::Display for RunMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
