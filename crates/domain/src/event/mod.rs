//! Events: what happens in a thread, in six families.
//!
//! A protocol never adds a variant.
//! What the vocabulary has no word for is [`StateEvent::Custom`] when we make it and [`Body::Opaque`] when a peer sent it.

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
pub use state::{PlanEntry, StateEvent};
pub use thread::ThreadEvent;
pub use tool::{ToolEvent, ToolStatus};

use crate::id::RunKey;
use crate::time::Timestamp;

/// One event of a thread's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number in the thread, from 1, without gaps when assigned and never reused.
    pub number: u64,
    /// The run it belongs to.
    pub run: Option<RunKey>,
    /// Its number in the run, from 1; zero when it belongs to no run.
    pub run_number: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub body: Body,
    /// The peer's own bytes, where a peer sent it.
    pub original: Option<Original>,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Something about the run itself.
    Run(RunEvent),
    /// Something said or thought.
    Message(MessageEvent),
    /// Something about a tool call.
    Tool(ToolEvent),
    /// Something about an interrupt.
    Interrupt(InterruptEvent),
    /// Something about state, plans, or the agent's own updates.
    State(StateEvent),
    /// Something about the thread.
    Thread(ThreadEvent),
    /// A peer's variant that the vocabulary has no word for: only the original says what it is.
    Opaque,
}

/// The bytes that a peer sent, and in which language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Original {
    /// The dialect: a short opaque word.
    pub dialect: Arc<str>,
    /// The dialect's version.
    pub version: u32,
    /// The smallest object that carries the event, with connection-bound ids cut out.
    pub bytes: Bytes,
}

// === impl Body ===

impl Body {
    /// The event's name on our own face and in exports: `family.kind`.
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

    /// Whether this ends its run.
    #[must_use]
    pub fn is_run_end(&self) -> bool {
        matches!(self, Self::Run(RunEvent::Ended(_)))
    }
}
