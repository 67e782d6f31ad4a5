//! The messages of a WebSocket, in either role: the limits of what arrives, and the close code for what breaks them.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
pub use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};

use super::WebSocketClosed;

/// The most pings and pongs of the other side in [`CONTROL_WINDOW`]: each ping costs a reply.
const MAX_CONTROL_FRAMES: usize = 200;
const CONTROL_WINDOW: Duration = Duration::from_secs(1);
/// The buffer for bytes that arrive after the close message, which are dropped.
const DRAIN_BYTES: usize = 8 * 1024;

/// The sizes of one connection, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageSizes {
    /// The maximum size of a received message, and of each of its frames.
    pub max_message: usize,
    /// The initial read buffer. Larger frames get larger buffers while they arrive.
    pub read_buffer: usize,
    /// Frames are joined until one write has this many bytes.
    pub write_buffer: usize,
}

/// Reads the messages of a connection whose handshake is done.
pub struct MessageReader<S> {
    stream: SplitStream<WebSocketStream<S>>,
    /// The end of the window in which control frames are counted, and their number in it.
    control_window: (Instant, usize),
}

/// Sends messages on the same connection.
pub struct MessageWriter<S> {
    sink: SplitSink<WebSocketStream<S>, Message>,
}

/// What arrives next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceivedMessage {
    Text(Bytes),
    /// A ping or a pong. Pings are answered.
    Control,
    /// Nothing more arrives. After [`WebSocketClosed::Invalid`], send its code with [`MessageReader::close`].
    End(WebSocketClosed),
}

// === impl MessageReader ===

impl<S: AsyncRead + AsyncWrite + Unpin> MessageReader<S> {
    /// Begins to carry messages. If the connection fails with [`io::ErrorKind::QuotaExceeded`], the other side gets [`CloseCode::Again`].
    pub async fn start(
        connection: S,
        role: Role,
        sizes: &MessageSizes,
    ) -> (Self, MessageWriter<S>) {
        let config = WebSocketConfig::default()
            .max_message_size(Some(sizes.max_message))
            .max_frame_size(Some(sizes.max_message))
            .read_buffer_size(sizes.read_buffer)
            .write_buffer_size(sizes.write_buffer);
        let socket = WebSocketStream::from_raw_socket(connection, role, Some(config)).await;
        let (sink, stream) = socket.split();
        (Self { stream, control_window: (Instant::now(), 0) }, MessageWriter { sink })
    }

    /// Returns what arrives next. A call can be dropped without a loss.
    pub async fn next(&mut self) -> ReceivedMessage {
        let end = match self.stream.next().await {
            Some(Ok(Message::Text(text))) => return ReceivedMessage::Text(text.into()),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                if !self.has_too_many_control_frames() {
                    return ReceivedMessage::Control;
                }
                invalid(CloseCode::Policy, "too many pings")
            }
            Some(Ok(Message::Binary(_))) => {
                invalid(CloseCode::Unsupported, "messages are text frames")
            }
            Some(Ok(Message::Close(frame))) => close_reason(frame),
            Some(Err(error)) => failure(error),
            None => unannounced_end(),
        };
        ReceivedMessage::End(end)
    }

    /// Sends a close message, and reads until the other side has ended the connection: otherwise the system could drop the message. What arrives is dropped.
    pub async fn close(
        self,
        mut writer: MessageWriter<S>,
        code: CloseCode,
        reason: &str,
        limit: Duration,
    ) {
        let closing = async {
            let frame = CloseFrame { code, reason: reason.into() };
            if writer.sink.send(Message::Close(Some(frame))).await.is_err() {
                // The other side has closed the connection, or is gone: at most the reply to its close message is left to send.
                drop(writer.sink.close().await);
            }
            let Ok(mut socket) = self.stream.reunite(writer.sink) else { return };
            let connection = socket.get_mut();
            let mut rest = [0; DRAIN_BYTES];
            if connection.shutdown().await.is_ok() {
                while connection.read(&mut rest).await.is_ok_and(|read| read > 0) {}
            }
        };
        drop(timeout(limit, Box::pin(closing)).await);
    }

    fn has_too_many_control_frames(&mut self) -> bool {
        let now = Instant::now();
        let (end, count) = &mut self.control_window;
        if now >= *end {
            (*end, *count) = (now + CONTROL_WINDOW, 0);
        }
        *count += 1;
        *count > MAX_CONTROL_FRAMES
    }
}

impl<S> fmt::Debug for MessageReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageReader").finish_non_exhaustive()
    }
}

fn close_reason(frame: Option<CloseFrame>) -> WebSocketClosed {
    let (code, reason) = frame.map(|frame| (frame.code.into(), frame.reason.to_string())).unzip();
    WebSocketClosed::There { code, reason: reason.unwrap_or_default() }
}

fn unannounced_end() -> WebSocketClosed {
    WebSocketClosed::Lost("it ended without a close message".to_owned())
}

fn invalid(code: CloseCode, reason: impl Into<String>) -> WebSocketClosed {
    WebSocketClosed::Invalid { code: code.into(), reason: reason.into() }
}

fn failure(error: SocketError) -> WebSocketClosed {
    match error {
        SocketError::Capacity(error) => invalid(CloseCode::Size, error.to_string()),
        SocketError::Utf8(error) => invalid(CloseCode::Invalid, error),
        // The connection ended in the middle, so no message can be sent.
        SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => unannounced_end(),
        SocketError::Protocol(error) => invalid(CloseCode::Protocol, error.to_string()),
        SocketError::Io(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
            invalid(CloseCode::Again, "too many bytes of messages are on their way")
        }
        error => WebSocketClosed::Lost(error.to_string()),
    }
}

// === impl MessageWriter ===

impl<S: AsyncRead + AsyncWrite + Unpin> MessageWriter<S> {
    /// Adds a line, without its end, as a message. What is not UTF-8 becomes the replacement character.
    pub async fn feed(&mut self, line: Bytes) -> io::Result<()> {
        let text = Utf8Bytes::try_from(line.clone())
            .unwrap_or_else(|_| Utf8Bytes::from(String::from_utf8_lossy(&line).into_owned()));
        self.sink.feed(Message::Text(text)).await.map_err(to_io)
    }

    pub async fn feed_ping(&mut self) -> io::Result<()> {
        self.sink.feed(Message::Ping(Bytes::new())).await.map_err(to_io)
    }

    /// Adds the close message of a side that has said everything.
    pub(super) async fn feed_close(&mut self) -> io::Result<()> {
        let frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        self.sink.feed(Message::Close(Some(frame))).await.map_err(to_io)
    }

    /// Sends what was added.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.sink.flush().await.map_err(to_io)
    }

    /// Completes the closing handshake, if there is anything to complete.
    pub(super) async fn finish(&mut self) {
        // The reason of the end is already known.
        drop(self.sink.close().await);
    }
}

impl<S> fmt::Debug for MessageWriter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageWriter").finish_non_exhaustive()
    }
}

fn to_io(error: SocketError) -> io::Error {
    match error {
        SocketError::Io(error) => error,
        error => io::Error::other(error),
    }
}
