//! Carries lines over a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};

use super::liveness::{PingSchedule, PingStep, ReceiveState};
use super::messages::{CloseCode, MessageReader, MessageSizes, MessageWriter, ReceivedMessage};
use super::send_progress::{CountedOutput, TakenBytes};
use super::{WebSocket, WebSocketClosed, WebSocketEnd, WebSocketOptions, WebSocketRole};

/// The size of the pipes between a connection and its owner, in bytes. A longer line passes in pieces.
const PIPE_BYTES: usize = 64 * 1024;
/// The size of the buffers that a connection keeps while it is idle, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long the other side may take to answer our close message.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Starts the task that carries the lines.
pub(super) async fn start<S>(
    connection: S,
    role: WebSocketRole,
    options: &WebSocketOptions,
) -> WebSocket
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let sizes = MessageSizes {
        max_message: options.max_message_bytes,
        read_buffer: BUFFER_BYTES,
        write_buffer: BUFFER_BYTES,
    };
    let taken = TakenBytes::default();
    let connection = CountedOutput { stream: connection, taken: taken.clone() };
    let socket = MessageReader::start(connection, role, &sizes).await;
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
    (mut reader, mut writer): (MessageReader<S>, MessageWriter<S>),
    incoming: DuplexStream,
    outgoing: DuplexStream,
    (options, taken): (&WebSocketOptions, &TakenBytes),
    reason: &watch::Sender<Option<WebSocketClosed>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let received = ReceiveState::default();
    let why = {
        let mut receiving = std::pin::pin!(receive(&mut reader, incoming, &received));
        let sending = send(&mut writer, outgoing, &received, (options, taken));
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
    match why {
        WebSocketClosed::Invalid { code, reason } => {
            reader.close(writer, CloseCode::from(code), &reason, CLOSE_GRACE).await;
        }
        _ => drop(timeout(CLOSE_GRACE, writer.finish()).await),
    }
}

/// Writes messages as lines. Returns why it stopped.
async fn receive<S>(
    reader: &mut MessageReader<S>,
    mut to: DuplexStream,
    received: &ReceiveState,
) -> WebSocketClosed
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = reader.next().await;
        received.note_message();
        match message {
            ReceivedMessage::Text(text) => {
                received.set_blocked(true);
                if write_line(&mut to, &text).await.is_err() {
                    // The owner reads no more.
                    return WebSocketClosed::Here;
                }
                received.set_blocked(false);
            }
            ReceivedMessage::Control => {}
            ReceivedMessage::End(why) => return why,
        }
    }
}

async fn write_line(to: &mut DuplexStream, text: &[u8]) -> std::io::Result<()> {
    if memchr(b'\n', text).is_some() {
        let pieces: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        to.write_all(&pieces.join(&b' ')).await?;
    } else {
        to.write_all(text).await?;
    }
    to.write_all(b"\n").await
}

/// Sends lines as messages, and pings. Returns why it stopped.
async fn send<S>(
    writer: &mut MessageWriter<S>,
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
                        writer.feed(line).await?;
                    }
                    if is_over {
                        writer.feed_close().await?;
                    }
                    writer.flush().await
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
                    let sending = async {
                        writer.feed_ping().await?;
                        writer.flush().await
                    };
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
    fn next(&mut self) -> Option<Bytes> {
        loop {
            let rest = self.bytes.get(self.searched..).unwrap_or_default();
            let Some(place) = memchr(b'\n', rest) else {
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
                return Some(line.freeze());
            }
        }
    }
}
