//! Serves an agent on standard input and output with the Agent Client Protocol, so that an editor can launch it.
//!
//! ```no_run
//! use trilogue_sdk::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), AgentError> {
//!     let echo = agent_fn("echo", "Repeats your message.", |turn, context| async move {
//!         context.text(turn.text()).await
//!     });
//!     trilogue_sdk::stdio::serve(echo).await
//! }
//! ```
//!
//! Nothing is stored: sessions, their history and their state last as long as the process.
//! The agent's output becomes session updates. Its questions become permission requests or forms. If the editor supports neither for a question, the question becomes the last text of the turn, and the next prompt answers it.
//! Values are not checked against the schemas of the card; only a server does that.

mod connection;
mod ports;
mod session;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::agent::Agent;
use crate::agent_client::peer::{self, Peer};
use crate::error::AgentError;
use connection::{RequestHandler, StdioConnection};

/// Options for serving an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The limits of the connection.
    pub peer: peer::Options,
    /// The maximum number of sessions at the same time.
    pub max_sessions: usize,
    /// The maximum number of messages that a session's history keeps. The oldest are dropped first.
    pub max_history_messages: usize,
    /// How long a cancelled turn may take to end before it is dropped.
    pub cancel_grace: Duration,
}

/// Serves an agent on standard input and output until the editor closes the input.
///
/// Nothing else may write to standard output meanwhile. Write logs to standard error.
///
/// # Errors
/// If the agent's card cannot be built.
pub async fn serve(agent: impl Agent) -> Result<(), AgentError> {
    serve_over(tokio::io::stdin(), tokio::io::stdout(), agent, Options::default()).await
}

/// Serves like [`serve`], over any two byte streams.
pub async fn serve_over<R, W>(
    read: R,
    write: W,
    agent: impl Agent,
    options: Options,
) -> Result<(), AgentError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_shared(read, write, Arc::new(agent), options).await
}

/// Serves an agent that other connections use too.
pub(crate) async fn serve_shared<R, W>(
    read: R,
    write: W,
    agent: Arc<dyn Agent>,
    options: Options,
) -> Result<(), AgentError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let card = agent.card().build()?;
    let limits = options.peer.clone();
    let connection = Arc::new(StdioConnection::new(agent, card, options));
    let requests = Arc::new(RequestHandler(Arc::clone(&connection)));
    let peer = Peer::start(read, write, requests, limits);
    peer.wait_for_end().await;
    connection.end();
    peer.close();
    peer.wait_for_flush().await;
    Ok(())
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            peer: peer::Options { cancels_dropped: true, ..peer::Options::agent() },
            max_sessions: 1_024,
            max_history_messages: 10_000,
            cancel_grace: Duration::from_secs(10),
        }
    }
}
