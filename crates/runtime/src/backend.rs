//! The runtime's view of an agent: the trait [`Backend`], and the context that a run gets.

use std::fmt;

use async_trait::async_trait;
pub use trilogue_domain::Input;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Answer, Failure, Interrupt, Json, Principal};

use crate::context::RunContext;
use crate::request::RunCaller;
use crate::session::Sessions;
use crate::turn::{Ending, Turn};

#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    fn card(&self) -> &AgentCard;

    /// The card with what the agent itself has said since the server started, where it is a program that says so. `None` if nothing was learnt.
    fn learned_card(&self) -> Option<AgentCard> {
        None
    }

    /// Whether the agent runs in this process: it then gives up the turn while it waits, and a short synchronous run costs one commit.
    fn is_native(&self) -> bool;

    /// Whether lists name it. One that is not listed can be used by its name.
    fn is_listed(&self) -> bool {
        true
    }

    /// Whether it can be used now, as far as the server knows. `None` for an agent that nothing is known of before it is used.
    fn availability(&self) -> Option<Availability> {
        None
    }

    /// What happens when a thread's head moves behind what this agent has seen.
    fn rewind(&self) -> Rewind {
        Rewind::Free
    }

    /// Learns what [`Backend::admit`] needs to know for this input, if that takes the agent itself.
    async fn learn(&self, by: &Principal, input: &Input) {
        let _ = (by, input);
    }

    /// Checks an input before the run exists, and converts it to the form that the agent takes.
    /// Errors: `invalid_input`, naming the path of what does not fit.
    fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        let _ = config;
        Ok(input)
    }

    /// Checks that a caller may give this configuration, which can only narrow what the caller may do, and returns it as the run gets it.
    /// Errors: `forbidden`, naming the setting or the right that is missing.
    async fn authorize(&self, caller: &RunCaller<'_>, config: Json) -> Result<Json> {
        let _ = caller;
        Ok(config)
    }

    /// Checks the content of an answer whose form fits the interrupt already.
    /// Errors: `answer_invalid`, naming the path of what does not fit.
    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        let _ = (interrupt, answer);
        Ok(())
    }

    /// Checks a configuration on its own, as a configured instance holds it.
    /// Errors: `config_schema_violation`, naming the path of what does not fit.
    fn check_config(&self, config: &Json) -> Result<()> {
        let _ = config;
        Ok(())
    }

    /// Checks a thread's state against the schema that the agent declares for it; one that declares none takes any.
    /// Errors: `thread_state_schema_violation`, naming the path of what does not fit. Where another agent left the state, the caller is told `thread_state_incompatible` with the same violations.
    fn check_state(&self, state: &Json) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// The sessions of an agent that keeps its own.
    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }

    /// A run ended that was at work elsewhere or waited for an answer, and its agent was not told: `saved` is what it kept or saved.
    async fn abandon(&self, saved: Json) {
        drop(saved);
    }

    /// Executes one turn. Dropping the future cancels the agent hard; [`RunContext::cancelled`] asks it first.
    /// Fails with the failure that the run's caller gets.
    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure>;
}

/// Whether an agent can be used now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Availability {
    Available,
    Unavailable {
        /// Why, in a sentence without a full stop.
        reason: String,
    },
}

/// How an agent with its own memory reacts when a thread's head moves behind what the agent has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewind {
    /// The agent remembers nothing of its own.
    Free,
    /// It cannot forget: the head must not move.
    Refuse,
    /// It is primed from the new head, in a new session.
    Prime,
}

// === impl Availability ===

impl Availability {
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    /// Why the agent cannot be used; `None` where it can.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Available => None,
            Self::Unavailable { reason } => Some(reason),
        }
    }
}
