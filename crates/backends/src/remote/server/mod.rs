//! The servers of agents elsewhere: how they are started, reached and watched, whatever protocol they speak.
//!
//! All agents here that are behind one server share it, with its connections.

mod agent_server;
mod launch;
mod process;
mod request_breaker;
mod transport;

pub use agent_server::{AgentServer, Probe};
pub use launch::{DEFAULT_URL, PORT_PLACEHOLDER, PORT_VARIABLE, ServerLaunch};
pub use transport::RemoteTransport;
