//! The halves of a client's WebSocket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep_until};
use trilogue_egress::{
    CloseCode, MessageReader, MessageSizes, MessageWriter, ReceivedMessage, WebSocketClosed,
    WebSocketRole,
};
use trilogue_wire::jsonrpc::Decoder;

use super::super::options::ClientOptions;
use super::super::wire::outbox::Batch;
use super::super::wire::transport::{LineSink, Lines, MessageSource, push_message};
use super::counted::{ArrivingBytes, CountedStream};
use super::liveness::Liveness;

/// The initial read buffer of a connection, in bytes. Larger frames get larger buffers while they arrive.
const READ_BUFFER_BYTES: usize = 1024;
/// Frames are joined until one write has this many bytes.
const WRITE_BUFFER_BYTES: usize = 32 * 1024;
/// How long a closed connection waits for the client's end of it.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(2);

type FrameStream = CountedStream<TokioIo<Upgraded>>;

/// The reading half.
pub(super) struct FrameSource {
    reader: MessageReader<FrameStream>,
    pub(super) arriving: Arc<ArrivingBytes>,
    liveness: Arc<Liveness>,
    /// Why the server closes the connection, once the client has given a reason.
    pub(super) close: Option<CloseReason>,
}

/// The writing half.
pub(super) struct FrameSink {
    writer: MessageWriter<FrameStream>,
    liveness: Arc<Liveness>,
    ping_interval: Duration,
    next_ping: Instant,
}

/// A close code, and the text beside it.
pub(super) type CloseReason = (CloseCode, &'static str);

/// What arrived on a WebSocket.
#[derive(Debug)]
pub(super) enum FrameRead {
    Message(Bytes),
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
    let stream = CountedStream::new(stream, Arc::clone(&arriving));
    let sizes = MessageSizes {
        max_message: options.max_line_bytes,
        read_buffer: READ_BUFFER_BYTES,
        write_buffer: WRITE_BUFFER_BYTES,
    };
    let (reader, writer) = MessageReader::start(stream, WebSocketRole::Server, &sizes).await;
    let liveness = Arc::new(Liveness::begin(options.pong_timeout));
    let source = FrameSource { reader, arriving, liveness: Arc::clone(&liveness), close: None };
    let ping_interval = options.ping_interval;
    let next_ping = Instant::now() + ping_interval;
    (source, FrameSink { writer, liveness, ping_interval, next_ping })
}

/// Sends the close frame, and reads until the client has ended the connection.
pub(super) async fn close(source: FrameSource, sink: FrameSink, (code, reason): CloseReason) {
    source.arriving.end();
    source.reader.close(sink.writer, code, reason, CLOSE_WAIT).await;
}

/// Returns the text for the client of a connection that ends with this code.
fn reason_text(code: CloseCode) -> &'static str {
    match code {
        CloseCode::Size => "the message is longer than `client.max_line`",
        CloseCode::Invalid => "the text is not UTF-8",
        CloseCode::Unsupported => "messages are text frames",
        CloseCode::Policy => "too many pings",
        CloseCode::Again => "too many bytes of messages are on their way",
        _ => "the frame breaks the WebSocket protocol",
    }
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
    pub(super) fn take(&self, text: &[u8], decoder: &mut Decoder) {
        push_message(decoder, text);
        self.arriving.release();
    }

    /// Waits for the next message. A call can be dropped without a loss.
    pub(super) async fn read_frame(&mut self) -> FrameRead {
        loop {
            let received = tokio::select! {
                biased;
                received = self.reader.next() => received,
                () = self.liveness.expired() => {
                    self.close = Some((CloseCode::Policy, "no answer to a ping"));
                    return FrameRead::Lost;
                }
            };
            self.liveness.on_received();
            match received {
                ReceivedMessage::Text(text) => return FrameRead::Message(text),
                ReceivedMessage::Control => {}
                ReceivedMessage::End(closed) => return self.end(&closed),
            }
        }
    }

    fn end(&mut self, closed: &WebSocketClosed) -> FrameRead {
        tracing::debug!("the connection of a client {closed}");
        match closed {
            WebSocketClosed::Invalid { code, .. } => {
                let code = CloseCode::from(*code);
                self.close = Some((code, reason_text(code)));
                FrameRead::Closed
            }
            WebSocketClosed::There { .. } => FrameRead::Closed,
            _ => FrameRead::Lost,
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
        self.writer.feed_ping().await?;
        self.flush(true).await
    }
}

impl FrameSink {
    /// Adds a ping if it is time for one. Returns whether it was.
    pub(super) async fn feed_ping_if_due(&mut self) -> io::Result<bool> {
        let is_due = Instant::now() >= self.next_ping;
        if is_due {
            self.writer.feed_ping().await?;
        }
        Ok(is_due)
    }

    /// Adds a message. If a call is dropped, the message was not added.
    pub(super) async fn feed_line(&mut self, line: Bytes) -> io::Result<()> {
        self.writer.feed(line).await
    }

    /// Writes what was added. A call can be dropped.
    pub(super) async fn flush(&mut self, has_ping: bool) -> io::Result<()> {
        self.writer.flush().await?;
        if has_ping {
            self.next_ping = Instant::now() + self.ping_interval;
            self.liveness.on_ping_sent();
        }
        Ok(())
    }
}
