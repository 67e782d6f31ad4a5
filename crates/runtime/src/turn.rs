//! One turn of an agent, and its end.

use trilogue_domain::{Answer, Input, Interrupt, Json};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    Start {
        input: Input,
    },
    Resume {
        interrupt: Box<Interrupt>,
        answer: Answer,
        /// What the agent saved when it suspended.
        saved: Json,
    },
    /// The server stopped while the agent was active elsewhere: find its work there again.
    Rejoin {
        /// What the agent kept with [`crate::RunContext::keep`].
        saved: Json,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    Completed,
    /// Waits for an answer without holding a task; survives restarts.
    Suspended {
        interrupt: Box<Interrupt>,
        /// What the agent needs to resume.
        saved: Json,
    },
}

/// The run was stopped while the agent was active: its later events are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// Why an event or an interrupt was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    #[error("the run was stopped")]
    Stopped,
    /// It breaks a limit or a rule; the run continues.
    #[error(transparent)]
    Refused(#[from] trilogue_domain::Error),
}
