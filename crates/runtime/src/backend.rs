//! What the runtime knows of an agent: the trait [`Backend`], and the context that a run gets.

use std::fmt;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, Original};
use trilogue_domain::{
    AgentCard, Answer, Failure, Interrupt, Json, Message, Resolution, RunId, ThreadId,
};

/// An agent of any kind.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// What the agent says of itself.
    fn card(&self) -> &AgentCard;

    /// Whether the agent runs in this process: it then gives up its thread's turn while it waits, and a synchronous short run costs one commit.
    fn is_native(&self) -> bool;

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

/// A run's input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Messages, oldest first.
    Messages(Vec<Message>),
    /// One JSON value.
    Value(Json),
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Stopped;

/// What a run's agent can do. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RunContext {
    _todo: (),
}

#[allow(missing_docs, unused_variables, clippy::unused_async)]
impl RunContext {
    /// The run.
    pub fn run(&self) -> &RunId {
        unimplemented!()
    }
    /// The thread.
    pub fn thread(&self) -> &ThreadId {
        unimplemented!()
    }
    /// The configuration that this run was given.
    pub fn config(&self) -> Option<&Json> {
        unimplemented!()
    }
    /// Adds an event to the run. Returns when it is in the draft; waits while the draft is full.
    ///
    /// # Errors
    /// [`Stopped`] when the run was stopped; an event that is too large is the error inside.
    pub async fn emit(
        &self,
        body: Body,
        original: Option<Original>,
    ) -> Result<Result<()>, Stopped> {
        unimplemented!()
    }
    /// Waits until everything emitted so far is durable.
    pub async fn commit(&self) -> Result<(), Stopped> {
        unimplemented!()
    }
    /// Raises an interrupt that survives as long as this task, and waits for its end.
    pub async fn ask(&self, interrupt: Interrupt) -> Result<Resolution, Stopped> {
        unimplemented!()
    }
    /// The thread's messages on the path to the head this run is based on, oldest first, without this run's own.
    pub async fn history(&self) -> Result<Vec<Message>> {
        unimplemented!()
    }
    /// The thread's state at the head this run is based on, or as this run last set it.
    pub async fn load_state(&self) -> Result<Option<Json>> {
        unimplemented!()
    }
    /// Whether the run was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        unimplemented!()
    }
    /// Returns when the run is asked to stop.
    pub async fn cancelled(&self) {
        unimplemented!()
    }
}
