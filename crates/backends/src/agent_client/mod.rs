//! Agents of the Agent Client Protocol: child processes that speak it on their standard streams, or agents behind connections to other servers. A connection counts as a process of the agent.
//!
//! The modules, each of which uses only those before it:
//!
//! | module | purpose |
//! |---|---|
//! | `launch`, `meta` | the settings of an agent, and the `_meta` that it gets |
//! | `failure`, `diagnosis` | failures as runs and clients get them, with hints |
//! | `host` | the process or the connection of an agent |
//! | [`process`] | starts, initializes, authenticates, counts and stops processes |
//! | [`routing`] | finds the session or client of each message; the queue of a session |
//! | [`session`] | the actor of a session, its modes, its transcript, and the answers to its requests |
//! | [`opening`] | opens, reopens, sets up and closes the session of a thread |
//! | [`turns`] | prompts the agent for a run, and cancels the prompt |
//! | `sessions` | requests of clients of the agent's own protocol, outside of runs |
//! | `agent` | [`AgentClient`], the backend that joins these modules |
//!
//! # Invariants
//! - Messages of a session are handled in the order in which they arrive, and a run ends after its last update is logged.
//! - An update is logged unchanged, except that its session id is removed, a missing message id is added, and a title that the agent made from this server's own text is removed.
//! - A session is bound before its first prompt. A session that the agent has lost is never replaced without notice to the clients.
//! - The params with which a client opened a session are kept only in memory, except the working directory.

mod agent;
mod diagnosis;
mod failure;
mod host;
mod launch;
mod meta;
mod network;
mod opening;
mod process;
mod routing;
mod session;
mod sessions;
mod turns;

pub use agent::AgentClient;
pub use launch::{
    ClientMeta, ClientTools, Launch, OnRewind, Processes, PromptCitations, RemoteAgent,
    SessionDefaults,
};
pub use trilogue_mapping::agent_client::card;
