//! The halves of a client's WebSocket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};
use trilogue_wire::jsonrpc::Decoder;

use super::super::options::ClientOptions;
use super::super::wire::outbox::Batch;
use super::super::wire::transport::{LineSink, Lines, MessageSource, push_message};
use super::counted::{ArrivingBytes, CountedStream};
use super::liveness::Liveness;

/// The initial read buffer of a connection, in bytes. Larger frames get larger buffers while they arrive.
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// Frames are joined until one write has this many bytes.
const WRITE_BUFFER_BYTES: usize = 32 * 1024;
/// The most pings and pongs of a client in [`CONTROL_WINDOW`]: each ping costs a reply.
const MAX_CONTROL_FRAMES: usize = 200;
const CONTROL_WINDOW: Duration = Duration::from_secs(1);
/// How long a closed connection waits for the client's end of it, so that the client receives the close frame.
const CLOSE_WAIT: Duration = Duration::from_secs(2);
/// The buffer for bytes that arrive after the close frame, which are dropped.
const DRAIN_BYTES: usize = 8 * 1024;

type FrameStream = WebSocketStream<CountedStream<TokioIo<Upgraded>>>;

/// The reading half.
pub(super) struct FrameSource {
    stream: SplitStream<FrameStream>,
    arriving: Arc<ArrivingBytes>,
    liveness: Arc<Liveness>,
    /// The end of the window in which control frames are counted, and their number in it.
    control_window: (Instant, usize),
    /// Why the server closes the connection, once the client has given a reason.
    pub(super) close: Option<CloseReason>,
}

/// The writing half.
pub(super) struct FrameSink {
    sink: SplitSink<FrameStream, Message>,
    liveness: Arc<Liveness>,
    ping_interval: Duration,
    next_ping: Instant,
}

/// A close code, and the text beside it.
pub(super) type CloseReason = (CloseCode, &'static str);

/// What arrived on a WebSocket.
#[derive(Debug)]
pub(super) enum FrameRead {
    Message(Utf8Bytes),
    /// The client has closed the connection or broken a rule.
    Closed,
    /// The connection was lost.
    Lost,
}

/// Begins to carry frames over a connection.
pub(super) async fn open(
    stream: TokioIo<Upgraded>,
    arriving: Arc<ArrivingBytes>,
    options: &ClientOptions,
) -> (FrameSource, FrameSink) {
    let stream = CountedStream { stream, arriving: Arc::clone(&arriving) };
    let socket =
        WebSocketStream::from_raw_socket(stream, Role::Server, Some(config(options))).await;
    split(socket, arriving, options)
}

fn config(options: &ClientOptions) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(options.max_line_bytes))
        .max_frame_size(Some(options.max_line_bytes))
}

fn split(
    socket: FrameStream,
    arriving: Arc<ArrivingBytes>,
    options: &ClientOptions,
) -> (FrameSource, FrameSink) {
    let (sink, stream) = socket.split();
    let liveness = Arc::new(Liveness::begin(options.pong_timeout));
    let now = Instant::now();
    let source = FrameSource {
        stream,
        arriving,
        liveness: Arc::clone(&liveness),
        control_window: (now, 0),
        close: None,
    };
    let ping_interval = options.ping_interval;
    (source, FrameSink { sink, liveness, ping_interval, next_ping: now + ping_interval })
}

/// Sends the close frame, and reads until the client has ended the connection: otherwise the system could drop the frame.
pub(super) async fn close(source: FrameSource, mut sink: FrameSink, (code, reason): CloseReason) {
    // What arrives from now on is dropped.
    source.arriving.release();
    let closing = async {
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        if sink.sink.send(Message::Close(Some(frame))).await.is_err() {
            // The client has closed the connection, or is gone: at most the reply to its close frame is left to send.
            drop(sink.sink.close().await);
        }
        let Ok(mut socket) = source.stream.reunite(sink.sink) else { return };
        let stream = &mut socket.get_mut().stream;
        let mut rest = [0; DRAIN_BYTES];
        if stream.shutdown().await.is_ok() {
            while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
        }
    };
    drop(timeout(CLOSE_WAIT, Box::pin(closing)).await);
}

// === impl FrameSource ===

impl MessageSource for FrameSource {
    async fn receive(&mut self, decoder: &mut Decoder) -> io::Result<bool> {
        let FrameRead::Message(text) = self.read_frame().await else { return Ok(false) };
        self.take(&text, decoder);
        Ok(true)
    }
}

impl FrameSource {
    /// Adds a message to the decoder.
    pub(super) fn take(&self, text: &Utf8Bytes, decoder: &mut Decoder) {
        push_message(decoder, text.as_bytes());
        self.arriving.release();
    }

    /// Waits for the next message. A call can be dropped without a loss.
    pub(super) async fn read_frame(&mut self) -> FrameRead {
        loop {
            let next = tokio::select! {
                biased;
                next = self.stream.next() => next,
                () = self.liveness.expired() => {
                    self.close = Some((CloseCode::Policy, "no answer to a ping"));
                    return FrameRead::Lost;
                }
            };
            self.liveness.on_received();
            match next {
                Some(Ok(Message::Text(text))) => return FrameRead::Message(text),
                Some(Ok(Message::Binary(_))) => {
                    return self.end(CloseCode::Unsupported, "messages are text frames");
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                    if self.has_too_many_control_frames() {
                        return self.end(CloseCode::Policy, "too many pings");
                    }
                }
                Some(Ok(Message::Close(_))) => return FrameRead::Closed,
                None => return FrameRead::Lost,
                Some(Err(error)) => return self.on_error(error),
            }
        }
    }

    /// Ends the connection for this reason.
    fn end(&mut self, code: CloseCode, reason: &'static str) -> FrameRead {
        self.close = Some((code, reason));
        FrameRead::Closed
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

    fn on_error(&mut self, error: tungstenite::Error) -> FrameRead {
        match error {
            tungstenite::Error::Capacity(_) => {
                self.end(CloseCode::Size, "the message is longer than `client.max_line`")
            }
            tungstenite::Error::Utf8(_) => self.end(CloseCode::Invalid, "the text is not UTF-8"),
            tungstenite::Error::Protocol(
                tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
            ) => FrameRead::Lost,
            tungstenite::Error::Protocol(error) => {
                tracing::debug!(%error, "a client broke the WebSocket protocol");
                self.end(CloseCode::Protocol, "the frame breaks the WebSocket protocol")
            }
            tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                self.end(CloseCode::Again, "too many bytes of messages are on their way")
            }
            error => {
                tracing::debug!(%error, "a client's connection failed");
                FrameRead::Lost
            }
        }
    }
}

// === impl FrameSink ===

impl LineSink for FrameSink {
    async fn send(&mut self, batches: Vec<Batch>) -> io::Result<()> {
        let is_due = self.feed_ping_if_due().await?;
        // The frames count until they are written: the socket has a copy of them.
        let mut counted = Vec::with_capacity(batches.len());
        for batch in batches {
            counted.push(batch.held);
            for line in Lines(Bytes::from(batch.lines)) {
                self.feed_line(line).await?;
            }
        }
        self.flush(is_due).await
    }

    async fn keep_alive(&mut self) -> io::Result<()> {
        sleep_until(self.next_ping).await;
        self.feed(Message::Ping(Bytes::new())).await?;
        self.flush(true).await
    }
}

impl FrameSink {
    /// Adds a ping if it is time for one. Returns whether it was.
    pub(super) async fn feed_ping_if_due(&mut self) -> io::Result<bool> {
        let is_due = Instant::now() >= self.next_ping;
        if is_due {
            self.feed(Message::Ping(Bytes::new())).await?;
        }
        Ok(is_due)
    }

    /// Adds a message. If a call is dropped, the message was not added.
    pub(super) async fn feed_line(&mut self, line: Bytes) -> io::Result<()> {
        let text = Utf8Bytes::try_from(line).map_err(io::Error::other)?;
        self.feed(Message::Text(text)).await
    }

    async fn feed(&mut self, message: Message) -> io::Result<()> {
        self.sink.feed(message).await.map_err(io::Error::other)
    }

    /// Writes what was added. A call can be dropped.
    pub(super) async fn flush(&mut self, has_ping: bool) -> io::Result<()> {
        self.sink.flush().await.map_err(io::Error::other)?;
        if has_ping {
            self.next_ping = Instant::now() + self.ping_interval;
            self.liveness.on_ping_sent();
        }
        Ok(())
    }
}
