//! The ports that a [`Context`](crate::Context) is built over.
//!
//! The code that runs agents implements them. Agent authors do not use them.
//! They are object-safe, so that [`Context`](crate::Context) is the same type for every runner.
//! [`Output::try_emit`] does not allocate; only an event that finds no room costs a boxed future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use trilogue_domain::{
    AgentName, Answer, Body, Code, Failure, Interrupt, InterruptId, Json, Message, Part,
    Resolution, Role, RunId, SystemPrompt, ThreadId,
};

use crate::agent::Input;
use crate::error::AgentError;

/// The future that a port returns.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Takes the events of an agent.
pub trait Output: Send + Sync + fmt::Debug {
    /// Takes the event at once if there is room. Otherwise returns `false`: call [`Output::emit`] then.
    ///
    /// The log keeps the order in which events were taken.
    ///
    /// # Errors
    /// [`AgentError::run_stopped`] if the run was stopped; the log's error if it refuses the event.
    fn try_emit(&self, body: &Body) -> Result<bool, AgentError>;

    /// Waits for room, then takes the event.
    fn emit(&self, body: Body) -> PortFuture<'_, Result<(), AgentError>>;

    /// Waits until every event taken so far is durable.
    ///
    /// # Errors
    /// [`AgentError::run_stopped`] if the run was stopped.
    fn commit(&self) -> PortFuture<'_, Result<(), AgentError>>;
}

/// Takes the questions of an agent.
pub trait Interrupts: Send + Sync + fmt::Debug {
    /// Raises the interrupt and waits for its resolution.
    ///
    /// # Errors
    /// [`AgentError::run_stopped`] if the run was stopped.
    fn ask(&self, interrupt: Interrupt) -> PortFuture<'_, Result<Resolution, AgentError>>;
}

/// What an agent remembers of its thread.
pub trait Memory: Send + Sync + fmt::Debug {
    /// Returns the messages before this run, oldest first.
    fn history(&self) -> PortFuture<'_, Result<Vec<Message>, AgentError>>;

    /// Returns the state that this run set last, otherwise the thread's state.
    fn load_state(&self) -> PortFuture<'_, Result<Option<Json>, AgentError>>;

    /// Returns the client's instructions for the thread. `None` by default.
    fn system_prompt(&self) -> PortFuture<'_, Result<Option<SystemPrompt>, AgentError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Notifies an agent that it should stop.
pub trait Cancellation: Send + Sync + fmt::Debug {
    /// Returns `true` if cancellation of the run was requested.
    fn is_cancelled(&self) -> bool;

    /// Returns when cancellation of the run is requested.
    fn cancelled(&self) -> PortFuture<'_, ()>;
}

/// Calls to the client that the run works for, if it takes calls: an editor with its files and terminals.
///
/// Calls are live only: the log does not contain them.
pub trait ClientCalls: Send + Sync + fmt::Debug {
    /// Returns the client that can take a call now, or `None`.
    fn call_target(&self) -> Option<CallTarget>;

    /// Calls the client. `params` is an object whose session id is left empty.
    ///
    /// # Errors
    /// The client's refusal, or an error if no client is connected.
    fn call(&self, method: &str, params: Json) -> PortFuture<'_, Result<Json, CallRefusal>>;
}

/// A client that takes calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallTarget {
    /// The dialect of the calls, with the name that an event's original has: [`CallTarget::EDITOR`] for the Agent Client Protocol.
    pub dialect: Arc<str>,
    /// The dialect's version.
    pub version: u32,
    /// The client's capabilities, as an object of its dialect.
    pub capabilities: Json,
}

/// Why a client refused a call, in the client's own words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} ({code})")]
pub struct CallRefusal {
    /// The error number of the dialect.
    pub code: i32,
    /// The message for people.
    pub message: String,
    /// Details for programs.
    pub data: Option<Json>,
}

/// Calls to other agents of the same server.
pub trait ChildRuns: Send + Sync + fmt::Debug {
    /// Starts a run of another agent.
    ///
    /// # Errors
    /// [`no_other_agents`] if the agent runs without a server; otherwise the server's error.
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
    /// The agent to call.
    pub agent: AgentName,
    /// The input of the child run.
    pub input: Input,
    /// An existing thread; `None` for a new one.
    pub thread: Option<ThreadId>,
    /// The agent's configuration.
    pub config: Option<Json>,
    /// Whether the agent may already be among the callers.
    pub allows_recursion: bool,
    /// Whether the caller's run also raises the child's questions.
    pub passes_questions_up: bool,
}

/// A child run. Dropping it cancels the child.
pub trait ChildHandle: Send + Sync + fmt::Debug {
    /// Returns the id of the child run.
    fn run(&self) -> &RunId;

    /// Returns the id of its thread.
    fn thread(&self) -> &ThreadId;

    /// Returns the next event; `None` after the last one.
    fn next(&mut self) -> PortFuture<'_, Result<Option<Body>, AgentError>>;

    /// Waits for the end of the run. You can still read its events afterwards.
    fn end(&self) -> PortFuture<'_, Result<ChildEnd, AgentError>>;

    /// Answers a question of the child run.
    fn answer(
        &self,
        interrupt: InterruptId,
        answer: Answer,
    ) -> PortFuture<'_, Result<(), AgentError>>;

    /// Requests cancellation of the child run. Does nothing if the run has ended.
    fn cancel(&self) -> PortFuture<'_, Result<(), AgentError>>;
}

/// The result of a child run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildEnd {
    /// The agent's messages, oldest first.
    pub messages: Vec<Message>,
    /// The agent's result value, if it gave one.
    pub result: Option<Json>,
    /// The thread's state as the run set it last.
    pub values: Option<Json>,
    /// Why the run did not complete; `None` if it completed.
    pub failure: Option<Failure>,
}

// === impl ChildEnd ===

impl ChildEnd {
    /// Returns a completed run in which the agent wrote this one message.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let messages = vec![Message::new(Role::Agent, vec![Part::text(text)], None)];
        Self { messages, result: None, values: None, failure: None }
    }
}

/// Returns the error for a call by an agent that runs without a server.
#[must_use]
pub fn no_other_agents() -> AgentError {
    AgentError::new(
        Code::AgentNotFound.as_str(),
        "this agent runs without a server, so it cannot call other agents",
    )
}

/// All ports of one run. Implemented for every type that implements each of them.
pub trait Host: Output + Interrupts + Memory + Cancellation + ClientCalls + ChildRuns {}

impl<T: Output + Interrupts + Memory + Cancellation + ClientCalls + ChildRuns> Host for T {}

// === impl CallTarget ===

impl CallTarget {
    /// The dialect of an editor: the Agent Client Protocol.
    pub const EDITOR: &'static str = "agent-client";
}
