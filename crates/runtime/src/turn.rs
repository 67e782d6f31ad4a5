//! What an agent is asked to do in one turn, and how that ends.

use trilogue_domain::{Answer, Input, Interrupt, Json};

/// What an agent is asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Begin.
    Start {
        /// What it was given.
        input: Input,
    },
    /// Go on after a suspension.
    Resume {
        /// What was asked.
        interrupt: Box<Interrupt>,
        /// What was answered.
        answer: Answer,
        /// What the agent left when it suspended.
        saved: Json,
    },
}

/// How a turn of an agent ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The run is complete.
    Completed,
    /// The run waits for an answer without holding a task; it survives restarts.
    Suspended {
        /// What is asked.
        interrupt: Box<Interrupt>,
        /// What the agent needs to go on.
        saved: Json,
    },
}

/// The run was stopped while the agent was at work: whatever it does next is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// Why an event or a question was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The run was stopped.
    #[error("the run was stopped")]
    Stopped,
    /// It breaks a limit or a rule; the run goes on.
    #[error(transparent)]
    Refused(#[from] trilogue_domain::Error),
}
