//! For agent authors and callers: the [`Agent`] trait with its [`Context`], and clients of the protocols.
//!
//! An agent is a value with a [`Card`] and one function, [`Agent::run`].
//! It writes its output through the [`Context`]. Every event is in the durable log before a client reads it.
//!
//! ```
//! use trilogue_sdk::prelude::*;
//!
//! struct Echo;
//!
//! #[async_trait]
//! impl Agent for Echo {
//!     fn card(&self) -> Card {
//!         Card::chat("echo", "Says what it hears.")
//!     }
//!
//!     async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
//!         context.text(turn.text()).await?;
//!         Ok(Outcome::Completed)
//!     }
//! }
//! ```
//!
//! # Invariants
//! - This crate opens no connection and knows no server. The context uses the ports in [`port`], the clients use [`client::Transport`], and an [`agent_client::Client`] uses two byte streams, a program that you give it to start, or a connection to an address that you give it.
//! - Several tasks can use a context at the same time. The output of each task stays in order.

#![warn(missing_docs)]

pub mod agent;
#[cfg(feature = "peer")]
pub mod agent_client;
mod agent_fn;
pub mod card;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod content_type;
pub mod context;
pub mod error;
pub mod fault;
#[cfg(feature = "process")]
mod leader;
pub mod port;
pub mod question;
pub mod recorder;
#[cfg(feature = "stdio")]
pub mod stdio;
pub mod typed;
#[cfg(all(feature = "ws", feature = "stdio"))]
pub mod websocket;

pub use agent::{Agent, Input, Outcome, Turn, run_turn};
pub use agent_fn::{AgentFn, agent_fn};
pub use async_trait::async_trait;
pub use card::Card;
pub use context::{
    AgentCall, CallOutput, Context, Decision, Editor, EditorTerminal, MessageWriter, NewAgentCall,
    RunInfo, Source, ToolCall,
};
pub use error::AgentError;
pub use fault::AgentFault;
#[cfg(feature = "process")]
pub use leader::Leader;
pub use question::Question;
pub use schemars::{self, JsonSchema};
pub use serde_json::json;
pub use typed::{IntoSchema, from_json, schema_of, to_json};

pub use trilogue_domain::agent::{Abilities, DeclaredError, DeclaredInterrupt};
pub use trilogue_domain::event::{PlanContent, PlanEntry, ToolStatus};
pub use trilogue_domain::interrupt::{Effect, PermissionOption};
pub use trilogue_domain::{
    AgentCard, AgentName, Answer, Citation, Code, Content, InputKind, Interrupt, InterruptId,
    InterruptKind, Json, Message, MessageId, Part, PartMetadata, PrincipalId, Resolution, Role,
    RunId, Survives, ThreadId, Timestamp, Trajectory,
};
pub use trilogue_domain::{SystemPrompt, SystemPromptAbility};

/// The imports that an agent's source file usually needs.
///
/// It contains the crate `schemars`, because `#[derive(JsonSchema)]` needs a crate with that name.
pub mod prelude {
    pub use crate::{
        Agent, AgentError, AgentFault, Answer, Card, Content, Context, Input, Json, JsonSchema,
        Message, Outcome, Part, Question, Source, Turn, agent_fn, async_trait, from_json, json,
        schema_of, schemars, to_json,
    };
}
