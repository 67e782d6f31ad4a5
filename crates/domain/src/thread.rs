//! Threads: a conversation with metadata, a head and one log.

use std::sync::Arc;

use crate::id::{MessageId, RunId};

/// The member of a thread's metadata that names its agent.
pub const AGENT_MEMBER: &str = "trilogue.agent";

/// A history that a client brings: references, which are read when somebody needs what they say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// Its messages, oldest first; at most [`crate::limits::MAX_GIVEN_ENTRIES`].
    pub entries: Vec<Reference>,
    /// Where its state lies, when that is elsewhere.
    pub state: Option<Arc<str>>,
}

/// Where one message of a history is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reference {
    /// A message of this tenant.
    Message(MessageId),
    /// What a run of this tenant answered with a value.
    Result(RunId),
    /// Somewhere else: an absolute http or https address, at most [`crate::limits::MAX_ADDRESS_BYTES`].
    Address(Arc<str>),
}

/// How a thread stands: derived from its runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
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
