use trilogue_domain::thread::AGENT_MEMBER;
use trilogue_domain::{AgentName, RunId, RunStatus, ThreadActivity, ThreadId};

use crate::rows::ThreadRow;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadFilter {
    /// Top-level metadata members that must be equal: key and canonical JSON text of the value.
    pub metadata: Vec<(String, String)>,
    /// Top-level members of the state at the head that must be equal, in the same form. A state that is derived from messages matches nothing.
    pub values: Vec<(String, String)>,
    pub activity: Option<ThreadActivity>,
    /// Only threads of this agent: their metadata names it as [`AGENT_MEMBER`], or they contain a run of it.
    pub agent: Option<AgentName>,
    /// Also damaged threads whose rows can still be read: [`crate::port::Read::damage`] tells them apart.
    pub with_damaged: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationFilter {
    pub agent: AgentName,
    /// Top-level metadata members that must be equal: key and canonical JSON text of the value.
    pub metadata: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunFilter {
    pub thread: Option<ThreadId>,
    pub agent: Option<AgentName>,
    /// Only runs in one of these statuses. Empty means any status.
    pub statuses: Vec<RunStatus>,
    /// Top-level metadata members that must be equal: key and canonical JSON text of the value.
    pub metadata: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterruptFilter {
    pub thread: Option<ThreadId>,
    pub run: Option<RunId>,
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
