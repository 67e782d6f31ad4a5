//! The kinds of agents: native and built-in ones, programs, and agents behind other servers.
//!
//! # Invariants
//! - A backend translates turns into its agent's terms, and the agent's output into events. It knows no face and no store.
//! - Input that does not fit an agent is refused before a run exists, by [`Backend::admit`](trilogue_runtime::Backend::admit).

pub mod agent_client;
pub mod agent_communication;
pub mod agent_connect;
pub mod builtin;
pub mod child;
mod loss;
pub mod native;
pub mod network;
mod output_warning;
pub mod permission;
pub mod remote;
pub mod workspace;

pub use agent_client::AgentClient;
pub use agent_communication::AgentCommunication;
pub use agent_connect::AgentConnect;
pub use native::NativeAgent;
pub use remote::Remote;
