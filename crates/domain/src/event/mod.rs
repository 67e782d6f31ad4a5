//! The events of a thread, in six families.
//!
//! A protocol never adds a variant.
//! Updates that have no variant are [`StateEvent::Custom`] if Trilogue makes them, and [`Body::Opaque`] if a peer sent them.

mod interrupt;
mod message;
mod run;
mod state;
mod thread;
mod tool;

use std::sync::Arc;

use bytes::Bytes;

pub use interrupt::InterruptEvent;
pub use message::MessageEvent;
pub use run::RunEvent;
pub use state::{PlanContent, PlanEntry, StateEvent, Subagent, SubagentState, TURN_RESULT};
pub use thread::ThreadEvent;
pub use tool::{ToolEvent, ToolStatus};

use crate::id::RunKey;
use crate::time::Timestamp;

/// One event of a thread's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The number in the thread, from 1. Numbers are assigned without gaps and never reused.
    pub number: u64,
    /// The run that the event belongs to.
    pub run: Option<RunKey>,
    /// The number in the run, from 1; zero if the event belongs to no run.
    pub run_number: u64,
    /// When the event happened.
    pub at: Timestamp,
    /// The content of the event.
    pub body: Body,
    /// The peer's own bytes, if a peer sent the event.
    pub original: Option<Original>,
}

/// The content of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// An event of the run itself.
    Run(RunEvent),
    /// An event of a message or a thought.
    Message(MessageEvent),
    /// An event of a tool call.
    Tool(ToolEvent),
    /// An event of an interrupt.
    Interrupt(InterruptEvent),
    /// An event of the state, a plan, or an update of the agent's own kind.
    State(StateEvent),
    /// An event of the thread.
    Thread(ThreadEvent),
    /// A peer's event that has no variant here. Only its original says what it is.
    Opaque,
}

/// The bytes that a peer sent, with their dialect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Original {
    /// The dialect: a short opaque word.
    pub dialect: Arc<str>,
    /// The dialect's version.
    pub version: u32,
    /// The smallest object that carries the event, without ids that are only valid on the connection.
    pub bytes: Bytes,
}

// === impl Body ===

impl Body {
    /// Returns the event's name in the native API and in exports: `family.kind`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(event) => event.name(),
            Self::Message(event) => event.name(),
            Self::Tool(event) => event.name(),
            Self::Interrupt(event) => event.name(),
            Self::State(event) => event.name(),
            Self::Thread(event) => event.name(),
            Self::Opaque => "opaque",
        }
    }

    /// Returns `true` if the event ends its run.
    #[must_use]
    pub fn is_run_end(&self) -> bool {
        matches!(self, Self::Run(RunEvent::Ended(_)))
    }
}
