//! The filters of listings.

use trilogue_domain::thread::AGENT_MEMBER;
use trilogue_domain::{AgentName, RunId, RunStatus, ThreadActivity, ThreadId};

use crate::rows::ThreadRow;

/// Selects threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadFilter {
    /// Top-level metadata members that must be equal: key and canonical JSON text of the value.
    pub metadata: Vec<(String, String)>,
    /// Top-level members of the state at the head that must be equal, likewise. A state that is derived from messages matches nothing.
    pub values: Vec<(String, String)>,
    /// Only threads with this activity.
    pub activity: Option<ThreadActivity>,
    /// Only those of this agent: their metadata names it as [`AGENT_MEMBER`], or a run of it is in them.
    pub agent: Option<AgentName>,
}

/// Selects configured instances.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationFilter {
    /// Only of this agent.
    pub agent: AgentName,
    /// Top-level metadata members that must be equal: key and canonical JSON text of the value.
    pub metadata: Vec<(String, String)>,
}

/// Selects runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunFilter {
    /// Only of this thread.
    pub thread: Option<ThreadId>,
    /// Only of this agent.
    pub agent: Option<AgentName>,
    /// Only in one of these statuses; in any where there is none.
    pub statuses: Vec<RunStatus>,
    /// Top-level metadata members that must be equal: key and canonical JSON text of the value.
    pub metadata: Vec<(String, String)>,
}

/// Selects interrupts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterruptFilter {
    /// Only of this thread.
    pub thread: Option<ThreadId>,
    /// Only of this run.
    pub run: Option<RunId>,
    /// Only those that are pending.
    pub pending: bool,
}

// === impl ThreadRow ===

impl ThreadRow {
    /// The agent that its metadata names as [`AGENT_MEMBER`].
    #[must_use]
    pub fn agent(&self) -> Option<AgentName> {
        if self.metadata.as_bytes().len() <= AGENT_MEMBER.len() {
            return None;
        }
        let metadata = self.metadata.to_value();
        metadata.get(AGENT_MEMBER)?.as_str().and_then(|name| AgentName::parse(name).ok())
    }
}
