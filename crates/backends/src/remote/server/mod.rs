//! Starts, reaches and watches the servers of remote agents, for all protocols.
//!
//! All agents of one server share it and its connections.

mod agent_server;
mod launch;
mod process;
mod request_breaker;
mod transport;

pub use agent_server::{AgentServer, Probe};
pub use launch::{DEFAULT_URL, PORT_PLACEHOLDER, PORT_VARIABLE, ServerLaunch};
pub use transport::RemoteTransport;
