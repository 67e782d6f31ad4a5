//! Serves an agent over WebSockets with the Agent Client Protocol, without a server of Trilogue.
//!
//! ```no_run
//! use trilogue_sdk::prelude::*;
//! use trilogue_sdk::websocket;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), AgentError> {
//!     let echo = agent_fn("echo", "Repeats your message.", |turn, context| async move {
//!         context.text(turn.text()).await
//!     });
//!     websocket::serve("127.0.0.1:8080", echo, websocket::Options::default()).await
//! }
//! ```
//!
//! A client connects to `ws://127.0.0.1:8080/`, with any path. Sessions last as long as their connection: nothing is stored.
//! The listener speaks no TLS. Put a proxy before it, or listen on the loopback address only.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::Semaphore;

use crate::agent::Agent;
use crate::agent_client::network::{AcceptOptions, accept};
use crate::error::AgentError;
use crate::stdio;

/// The options for serving an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Who may connect, and the limits of the transport.
    pub accept: AcceptOptions,
    /// The limits of the agent on each connection.
    pub agent: stdio::Options,
    /// The maximum number of connections at the same time. Further clients wait.
    pub max_connections: usize,
}

/// Serves an agent at this address, until the listener fails.
///
/// # Errors
/// If the address cannot be listened on, or the agent's card cannot be built.
pub async fn serve(
    address: impl ToSocketAddrs,
    agent: impl Agent,
    options: Options,
) -> Result<(), AgentError> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        AgentError::agent_failed(format!("the address cannot be listened on: {error}"))
    })?;
    serve_on(listener, agent, options).await
}

/// Serves like [`serve`], on a listener.
///
/// # Errors
/// If the listener fails, or the agent's card cannot be built.
pub async fn serve_on(
    listener: TcpListener,
    agent: impl Agent,
    options: Options,
) -> Result<(), AgentError> {
    agent.card().build()?;
    let agent: Arc<dyn Agent> = Arc::new(agent);
    let permits = options.max_connections.clamp(1, Semaphore::MAX_PERMITS);
    let (connections, options) = (Arc::new(Semaphore::new(permits)), Arc::new(options));
    loop {
        // The semaphore is never closed.
        let permit = Arc::clone(&connections).acquire_owned().await;
        let (stream, _) = listener.accept().await.map_err(|error| {
            AgentError::agent_failed(format!("the listener has failed: {error}"))
        })?;
        let (agent, options) = (Arc::clone(&agent), Arc::clone(&options));
        tokio::spawn(async move {
            // A client that fails the handshake got the reason.
            drop(serve_client(stream, agent, &options).await);
            drop(permit);
        });
    }
}

async fn serve_client(
    stream: TcpStream,
    agent: Arc<dyn Agent>,
    options: &Options,
) -> Result<(), AgentError> {
    let connection = accept(stream, &options.accept)
        .await
        .map_err(|error| AgentError::agent_failed(error.message))?;
    stdio::serve_shared(connection.read, connection.write, agent, options.agent.clone()).await
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            accept: AcceptOptions::default(),
            agent: stdio::Options::default(),
            max_connections: 256,
        }
    }
}
