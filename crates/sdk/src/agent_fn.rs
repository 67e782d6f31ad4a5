//! Agents that consist of one function.

use std::fmt;
use std::future::Future;

use async_trait::async_trait;

use crate::agent::{Agent, Outcome, Turn};
use crate::card::Card;
use crate::context::Context;
use crate::error::AgentError;

/// An agent that consists of one function. Made by [`agent_fn`].
#[derive(Clone)]
pub struct AgentFn<F> {
    card: Card,
    function: F,
}

/// Makes an agent from a function. The agent reads and writes messages, unless you set another card with [`AgentFn::with_card`].
///
/// ```
/// use trilogue_sdk::prelude::*;
///
/// let echo = agent_fn("echo", "Repeats your message.", |turn, context| async move {
///     context.text(turn.text()).await
/// });
/// assert!(echo.card().build().is_ok());
/// ```
pub fn agent_fn<F, R, O>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: F,
) -> AgentFn<F>
where
    F: Fn(Turn, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, AgentError>> + Send,
    O: Into<Outcome>,
{
    AgentFn { card: Card::chat(name, description), function }
}

// === impl AgentFn ===

impl<F> AgentFn<F> {
    /// Returns the same function with another card.
    #[must_use]
    pub fn with_card(self, card: Card) -> Self {
        Self { card, ..self }
    }
}

#[async_trait]
impl<F, R, O> Agent for AgentFn<F>
where
    F: Fn(Turn, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, AgentError>> + Send,
    O: Into<Outcome>,
{
    fn card(&self) -> Card {
        self.card.clone()
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        (self.function)(turn, context).await.map(Into::into)
    }
}

impl<F> fmt::Debug for AgentFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentFn").field("card", &self.card).finish_non_exhaustive()
    }
}
