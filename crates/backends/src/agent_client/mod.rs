//! Agents of the Agent Client Protocol: child processes that speak it on their standard streams.
//!
//! The rooms, each of which uses only those before it: [`process`] and [`routing`], [`session`], [`opening`], [`turns`].
//!
//! # Invariants
//! - Messages of a session are handled in the order in which they came, and a run ends after the last of its updates is logged.
//! - An update is logged as it came, without its session id, with a message id, and without a title that the agent made of this server's own words.
//! - A session is bound before its first prompt. A session that the agent has lost is never replaced silently.
//! - The params with which a client opened a session are kept in memory only, but for the working directory.

mod agent;
mod diagnosis;
mod failure;
mod launch;
mod meta;
mod opening;
mod process;
mod routing;
mod session;
mod sessions;
mod turns;

pub use agent::AgentClient;
pub use launch::{
    ClientMeta, ClientTools, Launch, OnRewind, Processes, PromptCitations, SessionDefaults,
};
pub use trilogue_mapping::agent_client::card;
