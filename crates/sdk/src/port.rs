//! The ports that a [`Context`](crate::Context) is built over.
//!
//! Whoever runs agents implements them; an author never meets them.
//! They are object-safe, so that a context is one type whatever runs the agent.
//! Emitting has a path without allocation, [`Output::try_emit`]; only an event that finds no room costs a boxed future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use trilogue_domain::{Body, Interrupt, Json, Message, Resolution};

use crate::error::AgentError;

/// A future of a port.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where an agent's events go.
pub trait Output: Send + Sync + fmt::Debug {
    /// Takes the event at once where there is room. `false` where not: [`Output::emit`] takes it then.
    ///
    /// Events are logged in the order in which they were taken.
    ///
    /// # Errors
    /// [`AgentError::stopped`] when the run was stopped; an event that the log refuses.
    fn try_emit(&self, body: &Body) -> Result<bool, AgentError>;

    /// Takes the event as soon as there is room.
    fn emit(&self, body: Body) -> PortFuture<'_, Result<(), AgentError>>;

    /// Waits until every event taken so far is durable.
    ///
    /// # Errors
    /// [`AgentError::stopped`] when the run was stopped.
    fn commit(&self) -> PortFuture<'_, Result<(), AgentError>>;
}

/// Whom an agent asks.
pub trait Interrupts: Send + Sync + fmt::Debug {
    /// Raises the interrupt and waits for its end.
    ///
    /// # Errors
    /// [`AgentError::stopped`] when the run was stopped.
    fn ask(&self, interrupt: Interrupt) -> PortFuture<'_, Result<Resolution, AgentError>>;
}

/// What an agent remembers of its thread.
pub trait Memory: Send + Sync + fmt::Debug {
    /// The messages before this run, oldest first.
    fn history(&self) -> PortFuture<'_, Result<Vec<Message>, AgentError>>;

    /// The thread's state, or what this run last set it to.
    fn load_state(&self) -> PortFuture<'_, Result<Option<Json>, AgentError>>;
}

/// How an agent learns that it should stop.
pub trait Cancellation: Send + Sync + fmt::Debug {
    /// Whether the run was asked to stop.
    fn is_cancelled(&self) -> bool;

    /// Returns when the run is asked to stop.
    fn cancelled(&self) -> PortFuture<'_, ()>;
}

/// Whom the run works for, where that is a program that takes calls: an editor with its files and terminals.
///
/// Calls are live only: nothing of them is in the log.
pub trait ClientCalls: Send + Sync + fmt::Debug {
    /// Who would take a call now. `None` where nobody would.
    fn call_target(&self) -> Option<CallTarget>;

    /// Asks it. `params` is an object whose session id is left empty.
    ///
    /// # Errors
    /// What it refuses with, or that nobody is there.
    fn call(&self, method: &str, params: Json) -> PortFuture<'_, Result<Json, CallRefusal>>;
}

/// A program that takes calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallTarget {
    /// The dialect in which it is called, as an original has it: [`CallTarget::EDITOR`] for the Agent Client Protocol.
    pub dialect: Arc<str>,
    /// The dialect's version.
    pub version: u32,
    /// What it can do, in the words of its dialect: an object.
    pub capabilities: Json,
}

/// Why a call was refused, in the words of the other side.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} ({code})")]
pub struct CallRefusal {
    /// The dialect's number for it.
    pub code: i32,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub data: Option<Json>,
}

/// All ports of one run. Implemented for whatever implements each of them.
pub trait Host: Output + Interrupts + Memory + Cancellation + ClientCalls {}

impl<T: Output + Interrupts + Memory + Cancellation + ClientCalls> Host for T {}

// === impl CallTarget ===

impl CallTarget {
    /// The dialect of an editor: the Agent Client Protocol's.
    pub const EDITOR: &'static str = "agent-client";
}
