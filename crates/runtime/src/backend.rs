//! What the runtime knows of an agent: the trait [`Backend`], and the context that a run gets.

use std::fmt;

use async_trait::async_trait;
pub use trilogue_domain::Input;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Answer, Failure, Interrupt, Json};

use crate::context::RunContext;
use crate::session::Sessions;
use crate::turn::{Ending, Turn};

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
