//! WebSockets, as two streams of lines: each text message is one line.
//!
//! The address, the name look-up and TLS of a connection are those of the HTTP client.

mod handshake;
mod lines;
mod liveness;
mod messages;
mod send_progress;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::{Notify, watch};
pub use tokio_tungstenite::tungstenite::protocol::Role as WebSocketRole;

pub use messages::{CloseCode, MessageReader, MessageSizes, MessageWriter, ReceivedMessage};

/// The limits of a WebSocket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebSocketOptions {
    /// How long the connection and the handshake may take together.
    pub handshake_timeout: Duration,
    /// The maximum size of a received message, and of each of its frames, in bytes.
    pub max_message_bytes: usize,
    /// How long the other side may send nothing before it gets a ping.
    pub ping_interval: Duration,
    /// How long the other side may then send nothing before the connection ends, and how long it may take nothing of our output.
    pub pong_timeout: Duration,
    /// The same after this machine has slept, which often breaks connections: it sends a ping as soon as it is awake. `None`: it does not look for that, which saves a look at the clocks each second.
    pub wake_timeout: Option<Duration>,
}

/// An open WebSocket. It closes when `write` is shut down or dropped; the messages that the other side sent before are still read.
#[derive(Debug)]
pub struct WebSocket {
    /// The messages of the other side, one a line. Line breaks within a message, which JSON has only between its tokens, become spaces.
    pub read: DuplexStream,
    /// Takes lines, each of which becomes a message.
    pub write: DuplexStream,
    pub end: WebSocketEnd,
}

/// Reports why a WebSocket ended, and ends it.
#[derive(Clone, Debug)]
pub struct WebSocketEnd {
    reason: watch::Receiver<Option<WebSocketClosed>>,
    aborted: Arc<Notify>,
}

/// Why a WebSocket ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WebSocketClosed {
    /// This side closed it.
    Here,
    /// The other side closed it, with a status code and a reason. No code: the message had none.
    There { code: Option<u16>, reason: String },
    /// The other side broke the protocol or a limit. It got a close message with the code.
    Invalid { code: u16, reason: String },
    /// The other side sent nothing for this long, not even the answer to a ping.
    Silent(Duration),
    /// The other side took nothing of our output for this long.
    Stalled(Duration),
    /// The connection broke.
    Lost(String),
}

// === impl WebSocketOptions ===

impl Default for WebSocketOptions {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(15),
            max_message_bytes: 16 * 1024 * 1024,
            ping_interval: Duration::from_secs(20),
            pong_timeout: Duration::from_secs(20),
            wake_timeout: None,
        }
    }
}

// === impl WebSocket ===

impl WebSocket {
    /// Carries messages over a connection whose handshake is done, in either role.
    pub async fn start<S>(connection: S, role: WebSocketRole, options: &WebSocketOptions) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        lines::start(connection, role, options).await
    }

    /// Returns the value of `sec-websocket-accept` for a client's `sec-websocket-key`.
    #[must_use]
    pub fn accept_key(key: &[u8]) -> String {
        tokio_tungstenite::tungstenite::handshake::derive_accept_key(key)
    }
}

// === impl WebSocketEnd ===

impl WebSocketEnd {
    /// Returns why the connection ended; `None` while it is open.
    #[must_use]
    pub fn reason(&self) -> Option<WebSocketClosed> {
        self.reason.borrow().clone()
    }

    /// Ends the connection at once, without a close message.
    pub fn abort(&self) {
        self.aborted.notify_one();
    }

    /// Waits until the connection has ended.
    pub async fn wait(&self) -> WebSocketClosed {
        let mut reason = self.reason.clone();
        let ended = reason.wait_for(Option::is_some).await;
        ended.ok().and_then(|reason| reason.clone()).unwrap_or(WebSocketClosed::Here)
    }
}

// === impl WebSocketClosed ===

/// Writes a verb phrase that completes "the connection …".
impl fmt::Display for WebSocketClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str("was closed by this side"),
            Self::There { code, reason } => {
                f.write_str("was closed by the other side")?;
                if let Some(code) = code {
                    write!(f, " with code {code}")?;
                }
                if !reason.is_empty() {
                    write!(f, ": {}", reason.escape_debug())?;
                }
                Ok(())
            }
            Self::Invalid { reason, .. } => {
                write!(f, "was closed because of the other side's message: {reason}")
            }
            Self::Silent(limit) => write!(f, "was silent for {} s", limit.as_secs_f32()),
            Self::Stalled(limit) => {
                write!(f, "took no output for {} s", limit.as_secs_f32())
            }
            Self::Lost(reason) => write!(f, "broke: {reason}"),
        }
    }
}
