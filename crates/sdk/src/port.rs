//! The ports that a [`Context`](crate::Context) is built over.
//!
//! Whoever runs agents implements them; an author never meets them.
//! They are object-safe, so that a context is one type whatever runs the agent.
//! Emitting has a path without allocation, [`Output::try_emit`]; only an event that finds no room costs a boxed future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use trilogue_domain::{
    AgentName, Answer, Body, Code, Failure, Interrupt, InterruptId, Json, Message, Part,
    Resolution, Role, RunId, ThreadId,
};

use crate::agent::Input;
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

/// Calls of other agents of the same server.
pub trait ChildRuns: Send + Sync + fmt::Debug {
    /// Starts a run of another agent.
    ///
    /// # Errors
    /// [`no_other_agents`] where the agent runs without a server; what the server refuses the call with.
    fn call_agent(
        &self,
        call: NewChild,
    ) -> PortFuture<'_, Result<Box<dyn ChildHandle>, AgentError>> {
        drop(call);
        Box::pin(std::future::ready(Err(no_other_agents())))
    }
}

/// A call of another agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewChild {
    /// The agent.
    pub agent: AgentName,
    /// What it is given.
    pub input: Input,
    /// A thread that exists; a new one when `None`.
    pub thread: Option<ThreadId>,
    /// Settings of the agent.
    pub config: Option<Json>,
    /// Whether the agent may be among the callers already.
    pub allows_recursion: bool,
    /// Whether the caller's run asks what the child asks.
    pub passes_questions_up: bool,
}

/// A child run. Dropping it cancels the child.
pub trait ChildHandle: Send + Sync + fmt::Debug {
    /// The child.
    fn run(&self) -> &RunId;

    /// Its thread.
    fn thread(&self) -> &ThreadId;

    /// Its next event; `None` behind the last.
    fn next(&mut self) -> PortFuture<'_, Result<Option<Body>, AgentError>>;

    /// Waits for its end. The events stay to be read.
    fn end(&self) -> PortFuture<'_, Result<ChildEnd, AgentError>>;

    /// Answers a question of the child.
    fn answer(
        &self,
        interrupt: InterruptId,
        answer: Answer,
    ) -> PortFuture<'_, Result<(), AgentError>>;

    /// Asks the child to stop; one that has ended stays as it is.
    fn cancel(&self) -> PortFuture<'_, Result<(), AgentError>>;
}

/// What a child run left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildEnd {
    /// The agent's messages, oldest first.
    pub messages: Vec<Message>,
    /// Its answer as a value, where it gave one.
    pub result: Option<Json>,
    /// The thread's state as the run set it last.
    pub values: Option<Json>,
    /// Why it did not complete; `None` where it did.
    pub failure: Option<Failure>,
}

// === impl ChildEnd ===

impl ChildEnd {
    /// An agent that said this and completed.
    #[must_use]
    pub fn said(text: &str) -> Self {
        let messages = vec![Message::new(Role::Agent, vec![Part::text(text)], None)];
        Self { messages, result: None, values: None, failure: None }
    }
}

/// The error of a call where an agent runs alone.
#[must_use]
pub fn no_other_agents() -> AgentError {
    AgentError::new(
        Code::AgentNotFound.as_str(),
        "this agent runs without a server, so there is no other agent that it could call",
    )
}

/// All ports of one run. Implemented for whatever implements each of them.
pub trait Host: Output + Interrupts + Memory + Cancellation + ClientCalls + ChildRuns {}

impl<T: Output + Interrupts + Memory + Cancellation + ClientCalls + ChildRuns> Host for T {}

// === impl CallTarget ===

impl CallTarget {
    /// The dialect of an editor: the Agent Client Protocol's.
    pub const EDITOR: &'static str = "agent-client";
}
