//! Carries lines over a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};

use super::liveness::{PingSchedule, PingStep, ReceiveState};
use super::send_progress::{CountedOutput, TakenBytes};
use super::{WebSocket, WebSocketClosed, WebSocketEnd, WebSocketOptions};

/// The size of the pipes between a connection and its owner, in bytes. A longer line passes in pieces.
const PIPE_BYTES: usize = 64 * 1024;
/// The size of the buffers that a connection keeps while it is idle, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long the other side may take to answer our close message.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

type Sending<S> = SplitSink<WebSocketStream<S>, Message>;
type Receiving<S> = SplitStream<WebSocketStream<S>>;

/// Starts the task that carries the lines.
pub(super) async fn start<S>(connection: S, role: Role, options: &WebSocketOptions) -> WebSocket
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let most = Some(options.max_message_bytes);
    let config = WebSocketConfig::default()
        .max_message_size(most)
        .max_frame_size(most)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES);
    let taken = TakenBytes::default();
    let connection = CountedOutput { stream: connection, taken: taken.clone() };
    let socket = WebSocketStream::from_raw_socket(connection, role, Some(config)).await;
    let (read, incoming) = duplex(PIPE_BYTES);
    let (write, outgoing) = duplex(PIPE_BYTES);
    let (reason, end) = watch::channel(None);
    let (options, aborted) = (options.clone(), Arc::new(Notify::new()));
    let end = WebSocketEnd { reason: end, aborted: Arc::clone(&aborted) };
    tokio::spawn(async move {
        tokio::select! {
            () = carry(socket, incoming, outgoing, (&options, &taken), &reason) => {}
            () = aborted.notified() => {}
        }
        reason.send_modify(|reason| {
            reason.get_or_insert(WebSocketClosed::Here);
        });
    });
    WebSocket { read, write, end }
}

/// Carries lines until one side closes the connection or it breaks. Reports why before it completes the closing handshake, which can take a while.
async fn carry<S>(
    socket: WebSocketStream<S>,
    incoming: DuplexStream,
    outgoing: DuplexStream,
    (options, taken): (&WebSocketOptions, &TakenBytes),
    reason: &watch::Sender<Option<WebSocketClosed>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut stream) = socket.split();
    let received = ReceiveState::default();
    let why = {
        let mut receiving = std::pin::pin!(receive(&mut stream, incoming, &received));
        let sending = send(&mut sink, outgoing, &received, (options, taken));
        let mut sending = std::pin::pin!(sending);
        tokio::select! {
            why = &mut receiving => why,
            // The output has ended: what the other side sent before is still read.
            why = &mut sending => match why {
                WebSocketClosed::Here => {
                    timeout(CLOSE_GRACE, receiving).await.map_or(why, |_| WebSocketClosed::Here)
                }
                why => why,
            },
        }
    };
    reason.send_replace(Some(why.clone()));
    if let WebSocketClosed::Invalid { code, reason } = &why {
        let frame = CloseFrame { code: CloseCode::from(*code), reason: reason.as_str().into() };
        drop(timeout(CLOSE_GRACE, sink.send(Message::Close(Some(frame)))).await);
    }
    // Completes the closing handshake, if there is anything to complete.
    drop(timeout(CLOSE_GRACE, sink.close()).await);
}

/// Writes messages as lines. Returns why it stopped.
async fn receive<S>(
    stream: &mut Receiving<S>,
    mut to: DuplexStream,
    received: &ReceiveState,
) -> WebSocketClosed
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut close = None;
    while let Some(message) = stream.next().await {
        received.note_message();
        match message {
            Ok(Message::Text(text)) => {
                received.set_blocked(true);
                if write_line(&mut to, text).await.is_err() {
                    // The owner reads no more.
                    return WebSocketClosed::Here;
                }
                received.set_blocked(false);
            }
            Ok(Message::Binary(_)) => {
                return invalid(CloseCode::Unsupported, "a binary message has no meaning here");
            }
            Ok(Message::Close(frame)) => close = Some(frame),
            // The library answers pings.
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Err(error) => return close.map_or_else(|| failure(error), close_reason),
        }
    }
    match close {
        Some(frame) => close_reason(frame),
        None => WebSocketClosed::Lost("it ended without a close message".to_owned()),
    }
}

async fn write_line(to: &mut DuplexStream, text: Utf8Bytes) -> std::io::Result<()> {
    if text.as_str().contains('\n') {
        to.write_all(text.as_str().replace('\n', " ").as_bytes()).await?;
    } else {
        to.write_all(text.as_str().as_bytes()).await?;
    }
    to.write_all(b"\n").await
}

fn close_reason(frame: Option<CloseFrame>) -> WebSocketClosed {
    let (code, reason) = frame.map(|frame| (frame.code.into(), frame.reason.to_string())).unzip();
    WebSocketClosed::There { code, reason: reason.unwrap_or_default() }
}

fn invalid(code: CloseCode, reason: impl Into<String>) -> WebSocketClosed {
    WebSocketClosed::Invalid { code: code.into(), reason: reason.into() }
}

fn failure(error: SocketError) -> WebSocketClosed {
    match error {
        SocketError::Capacity(error) => invalid(CloseCode::Size, error.to_string()),
        SocketError::Utf8(error) => invalid(CloseCode::Invalid, error),
        SocketError::Protocol(error) => match error {
            // The connection ended in the middle, so no message can be sent.
            tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake => {
                WebSocketClosed::Lost("it ended without a close message".to_owned())
            }
            error => invalid(CloseCode::Protocol, error.to_string()),
        },
        error => WebSocketClosed::Lost(error.to_string()),
    }
}

/// Sends lines as messages, and pings. Returns why it stopped.
async fn send<S>(
    sink: &mut Sending<S>,
    mut from: DuplexStream,
    received: &ReceiveState,
    (options, taken): (&WebSocketOptions, &TakenBytes),
) -> WebSocketClosed
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut pings = PingSchedule::new(options);
    let mut lines = Lines::default();
    loop {
        lines.bytes.reserve(BUFFER_BYTES);
        tokio::select! {
            read = from.read_buf(&mut lines.bytes) => {
                let is_over = !matches!(read, Ok(1..));
                let sent = async {
                    while let Some(line) = lines.next() {
                        sink.feed(Message::Text(line)).await?;
                    }
                    if is_over {
                        let code = CloseCode::Normal;
                        let frame = CloseFrame { code, reason: Utf8Bytes::default() };
                        sink.feed(Message::Close(Some(frame))).await?;
                    }
                    sink.flush().await
                };
                match taken.unless_stalled(options.pong_timeout, sent).await {
                    Some(Ok(())) if is_over => return WebSocketClosed::Here,
                    Some(Ok(())) => {}
                    Some(Err(error)) => return WebSocketClosed::Lost(error.to_string()),
                    None => return WebSocketClosed::Stalled(options.pong_timeout),
                }
            }
            () = sleep_until(pings.next()) => match pings.step(received) {
                PingStep::Wait => {}
                PingStep::GiveUp(silence) => return WebSocketClosed::Silent(silence),
                PingStep::Send => {
                    let sending = sink.send(Message::Ping(Bytes::new()));
                    match timeout(options.pong_timeout, sending).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => return WebSocketClosed::Lost(error.to_string()),
                        Err(_) => return WebSocketClosed::Stalled(options.pong_timeout),
                    }
                }
            },
        }
    }
}

/// Splits bytes into lines. Their writer limits the length of its lines.
#[derive(Default)]
struct Lines {
    bytes: BytesMut,
    /// How many of the bytes have no line break.
    searched: usize,
}

impl Lines {
    /// Returns the next complete line without its end. Skips blank lines.
    fn next(&mut self) -> Option<Utf8Bytes> {
        loop {
            let rest = self.bytes.get(self.searched..).unwrap_or_default();
            let Some(place) = memchr::memchr(b'\n', rest) else {
                self.searched = self.bytes.len();
                return None;
            };
            let mut line = self.bytes.split_to(self.searched + place);
            self.bytes.advance(1);
            self.searched = 0;
            if line.ends_with(b"\r") {
                line.truncate(line.len() - 1);
            }
            if !line.is_empty() {
                return Some(to_text(&line.freeze()));
            }
        }
    }
}

/// A text message must be UTF-8. What is not becomes the replacement character.
fn to_text(line: &Bytes) -> Utf8Bytes {
    Utf8Bytes::try_from(line.clone())
        .unwrap_or_else(|_| Utf8Bytes::from(String::from_utf8_lossy(line).into_owned()))
}
