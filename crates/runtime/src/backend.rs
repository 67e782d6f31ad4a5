//! What the runtime knows of an agent: the trait [`Backend`], and the context that a run gets.

use std::fmt;

use async_trait::async_trait;
pub use trilogue_domain::Input;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Answer, Failure, Interrupt, Json};

use crate::context::RunContext;
use crate::session::Sessions;

/// An agent of any kind.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// What the agent says of itself.
    fn card(&self) -> &AgentCard;

    /// Whether the agent runs in this process: it then gives up its thread's turn while it waits, and a synchronous short run costs one commit.
    fn is_native(&self) -> bool;

    /// What happens when a thread's head moves behind what this agent was told.
    fn rewind(&self) -> Rewind {
        Rewind::Free
    }

    /// Checks what a run is given before the run exists, and brings it into the form that the agent takes.
    ///
    /// # Errors
    /// `invalid_input`, naming the path of what does not fit.
    fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        let _ = config;
        Ok(input)
    }

    /// Checks the content of an answer whose form fits the interrupt already.
    ///
    /// # Errors
    /// `answer_invalid`, naming the path of what does not fit.
    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        let _ = (interrupt, answer);
        Ok(())
    }

    /// Checks a configuration on its own, as a configured instance holds it.
    ///
    /// # Errors
    /// `config_schema_violation`, naming the path of what does not fit.
    fn check_config(&self, config: &Json) -> Result<()> {
        let _ = config;
        Ok(())
    }

    /// Checks a thread's state against the schema that the agent declares for it; one that declares none takes any.
    ///
    /// # Errors
    /// `thread_state_schema_violation`, naming the path of what does not fit. Where another agent left the state, the caller is told `thread_state_incompatible` with the same violations.
    fn check_state(&self, state: &Json) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// The sessions that the agent keeps by itself, where it is one that does.
    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }

    /// Executes one turn. Dropping the future cancels the agent hard; [`RunContext::cancelled`] asks it first.
    ///
    /// # Errors
    /// What the run's caller is told.
    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure>;
}

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

/// What an agent's own memory allows when a thread's head moves behind what the agent was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewind {
    /// The agent remembers nothing of its own.
    Free,
    /// It cannot forget: the head does not move.
    Refuse,
    /// It is told again from the new head on, in a new session.
    Prime,
}
