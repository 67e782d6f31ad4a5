//! The runtime's view of an agent: the trait [`Backend`], and the context that a run gets.

use std::fmt;

use async_trait::async_trait;
pub use trilogue_domain::Input;
use trilogue_domain::error::Result;
use trilogue_domain::time::Timestamp;
use trilogue_domain::{AgentCard, Answer, Failure, Interrupt, Json, Principal, ThreadKey};

use crate::context::RunContext;
use crate::request::RunCaller;
use crate::session::Sessions;
use crate::turn::{Ending, Turn};

#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    fn card(&self) -> &AgentCard;

    /// Returns the card with what the agent, if it is a program, has reported about itself since the server started. `None` if it has reported nothing.
    fn learned_card(&self) -> Option<AgentCard> {
        None
    }

    /// Whether the agent runs in this process: it then gives up the turn while it waits, and a short synchronous run costs one commit.
    fn is_native(&self) -> bool;

    /// Whether lists contain the agent. Clients can still use an unlisted one by its name.
    fn is_listed(&self) -> bool {
        true
    }

    /// Returns whether the agent can be used now, or `None` if this is unknown before its first use.
    fn availability(&self) -> Option<Availability> {
        None
    }

    /// Returns how a process of the agent last failed, if no turn has completed since.
    fn last_failure(&self) -> Option<ProcessFailure> {
        None
    }

    /// Returns how the agent reacts when a thread's head moves to a point before messages that it has seen.
    fn rewind(&self) -> Rewind {
        Rewind::Free
    }

    /// Gets from the agent itself what [`Backend::admit`] needs to know for this input, if that is necessary.
    async fn learn(&self, by: &Principal, input: &Input) {
        let _ = (by, input);
    }

    /// Checks an input before the run exists, and converts it to the agent's form.
    /// Errors: `invalid_input`, with the path of the invalid member.
    fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        let _ = config;
        Ok(input)
    }

    /// Checks that a caller can use this configuration, which can only narrow the caller's rights, and returns it as the run gets it.
    /// Errors: `forbidden`, with the setting or the missing right.
    async fn authorize(&self, caller: &RunCaller<'_>, config: Json) -> Result<Json> {
        let _ = caller;
        Ok(config)
    }

    /// Checks the content of an answer whose form already matches the interrupt.
    /// Errors: `answer_invalid`, with the path of the invalid member.
    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        let _ = (interrupt, answer);
        Ok(())
    }

    /// Checks a configuration on its own, as a configured instance contains it.
    /// Errors: `config_schema_violation`, with the path of the invalid member.
    fn check_config(&self, config: &Json) -> Result<()> {
        let _ = config;
        Ok(())
    }

    /// Checks a thread's state against the agent's declared schema; an agent without one accepts any state.
    /// Errors: `thread_state_schema_violation`, with the path of the invalid member. If another agent left the state, the caller gets `thread_state_incompatible` with the same violations.
    fn check_state(&self, state: &Json) -> Result<()> {
        let _ = state;
        Ok(())
    }

    /// Returns the sessions of an agent that keeps its own.
    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }

    /// Checks that the agent can cancel the work that it does on a thread by itself.
    /// Errors: `subagent_not_cancellable`.
    fn check_cancel(&self, thread: ThreadKey) -> Result<()> {
        let _ = thread;
        Ok(())
    }

    /// Called when a run ends that was active elsewhere or waited for an answer, without the agent taking part. `saved` is what the agent kept or saved.
    async fn abandon(&self, saved: Json) {
        drop(saved);
    }

    /// Executes one turn. Dropping the future cancels the agent forcibly; before that, [`RunContext::cancelled`] asks it to stop.
    /// Fails with the failure that the run's caller gets.
    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure>;
}

/// Whether an agent can be used now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Availability {
    Available,
    Unavailable {
        /// The reason, in a sentence without a full stop.
        reason: String,
    },
}

/// How a process of an agent failed: it did not start, or exited before a turn had completed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessFailure {
    pub at: Timestamp,
    /// What happened, with the status of the exit and the end of its output. Not for every caller: the output may be about other principals' runs.
    pub reason: String,
}

/// How an agent with its own memory reacts when a thread's head moves behind what the agent has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewind {
    /// The agent has no memory.
    Free,
    /// It cannot forget, so the head must not move.
    Refuse,
    /// It is primed from the new head in a new session.
    Prime,
}

// === impl Availability ===

impl Availability {
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    /// Returns why the agent cannot be used, or `None` if it can.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Available => None,
            Self::Unavailable { reason } => Some(reason),
        }
    }
}
