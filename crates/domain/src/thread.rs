//! Threads: a conversation with metadata, a head and one log.

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
