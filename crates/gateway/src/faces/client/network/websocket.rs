//! A client on a WebSocket: one message in each text frame, both ways.
//!
//! Without a subprotocol these are the protocol's messages, as the official SDKs send them. With [`SUBPROTOCOL`] they are the lines of the
//! local socket: the first frame of each side is the handshake, and control lines are frames of their own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_wire::jsonrpc::{Decoder, Frame};
use trilogue_wire::native::local::{HelloReply, MAX_HELLO_BYTES, SUBPROTOCOL};
use uuid::Uuid;

use super::super::connection::ClientConnection;
use super::super::connection::origin::{ClientOrigin, ClientTransport};
use super::super::options::ClientOptions;
use super::super::serve::serve;
use super::super::state::State;
use super::super::wire::outbox::Batch;
use super::super::wire::transport::{LineSink, Lines, MessageSource, push_message};
use super::admission::{Admission, CONNECTION_ID, ClientCall};
use super::continuation::{self, FirstRequest, Socket};
use super::counted::{ArrivingBytes, CountedStream};
use super::handshake::Handshake;
use super::liveness::Liveness;
use crate::access::admission::until_revoked;
use crate::access::authenticator::Caller;
use crate::http::problem;
use crate::http::reply::Reply;
use crate::http::upgrade::UpgradedConnection;

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

const NOT_INITIALIZED: &str = "`initialize` did not come in time";
const ENDED_BY_SERVER: &str = "the server ends the connection";

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

/// What is known of a WebSocket before its first message.
struct NewSocket {
    caller: Caller,
    agent: AgentName,
    /// The id of the connection.
    id: String,
    is_local_protocol: bool,
    admission: Admission,
}

/// Returns the response that makes the connection a WebSocket.
pub(super) fn accept(
    call: &ClientCall,
    agent: AgentName,
    handshake: &Handshake,
    admission: Admission,
) -> Reply {
    let (state, caller) = (Arc::clone(&call.state), call.caller.clone());
    let is_local_protocol = handshake.is_local_protocol;
    let id = Uuid::new_v4().to_string();
    let candidate = NewSocket { caller, agent, id: id.clone(), is_local_protocol, admission };
    let reply = Reply::switch_protocol(Box::new(move |upgraded| {
        Box::pin(serve_socket(state, candidate, upgraded))
    }));
    let reply = reply
        .header(header::CONNECTION, HeaderValue::from_static("Upgrade"))
        .header(header::UPGRADE, HeaderValue::from_static("websocket"))
        .header_text(header::SEC_WEBSOCKET_ACCEPT, &handshake.accept)
        .header_text(CONNECTION_ID, &id);
    match (is_local_protocol, &handshake.ticket) {
        (true, _) => {
            reply.header(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL))
        }
        (false, Some(ticket)) => reply.header_text(header::SEC_WEBSOCKET_PROTOCOL, ticket),
        (false, None) => reply,
    }
}

/// Serves a client until it disconnects, its token no longer works, or the server stops.
async fn serve_socket(state: Arc<State>, new: NewSocket, upgraded: UpgradedConnection) {
    let NewSocket { caller, agent, id, is_local_protocol, admission } = new;
    let UpgradedConnection { stream, stop } = upgraded;
    let options = &state.options;
    let arriving = ArrivingBytes::new(&state.body_budget, &caller.principal);
    let stream = CountedStream { stream, arriving: Arc::clone(&arriving) };
    let socket =
        WebSocketStream::from_raw_socket(stream, Role::Server, Some(config(options))).await;
    let (mut source, mut sink) = split(socket, arriving, options);
    let mut decoder = Decoder::new(options.max_line_bytes);
    let connection = match is_local_protocol {
        true => hello(&state, &caller, &agent, (&mut source, &mut sink), &mut decoder).await,
        false => {
            let first = match first_message((&mut source, &mut sink), options, &stop).await {
                Ok(first) => first,
                Err(reason) => return close(source, sink, reason).await,
            };
            let request = FirstRequest::read(&first);
            source.take(&first, &mut decoder);
            match request {
                FirstRequest::Other => {}
                FirstRequest::Initialize => {
                    let connection = network_connection(&state, &caller, agent);
                    let socket = Socket { caller, source, sink, stop };
                    let serving = (decoder, admission);
                    let begun = continuation::begin(&state, id, connection, socket, serving);
                    return Box::pin(begun).await;
                }
                FirstRequest::Attach(id, params) => {
                    // The connection counts already.
                    drop(admission);
                    let socket = Socket { caller, source, sink, stop };
                    let resumed = continuation::resume(&state, &agent, socket, id, params);
                    return Box::pin(resumed).await;
                }
            }
            Some(network_connection(&state, &caller, agent))
        }
    };
    let Some(connection) = connection else {
        let reason = source.close.unwrap_or((CloseCode::Policy, "the handshake was refused"));
        return close(source, sink, reason).await;
    };
    // A connection of the local socket's protocol has had its first frame in time.
    let hello_timeout = (!is_local_protocol).then_some(options.hello_timeout);
    let (_, callers) = watch::channel(caller);
    let served =
        serve_admitted(connection, callers, (&mut source, sink), decoder, &stop, hello_timeout);
    let Some((sink, reason)) = served.await else { return };
    let reason = source.close.unwrap_or(reason);
    close(source, sink, reason).await;
    drop(admission);
}

/// Creates a connection whose client uses the protocol's messages.
pub(super) fn network_connection(
    state: &Arc<State>,
    caller: &Caller,
    agent: AgentName,
) -> ClientConnection {
    let origin = ClientOrigin::Network(caller.clone());
    let mut connection = ClientConnection::new(Arc::clone(state), origin, agent);
    connection.attach = Some(state.attach_capability(None));
    state.list(&mut connection, ClientTransport::WebSocket);
    connection
}

/// Waits for the first message. Returns why the connection is closed if it does not come.
async fn first_message(
    (source, sink): (&mut FrameSource, &mut FrameSink),
    options: &ClientOptions,
    stop: &CancellationToken,
) -> Result<Utf8Bytes, CloseReason> {
    let pinging = async { while sink.keep_alive().await.is_ok() {} };
    let read = tokio::select! {
        read = timeout(options.hello_timeout, source.read_frame()) => read,
        () = pinging => Ok(FrameRead::Lost),
        () = stop.cancelled() => return Err((CloseCode::Away, ENDED_BY_SERVER)),
    };
    match read {
        Ok(FrameRead::Message(message)) => Ok(message),
        Ok(FrameRead::Closed | FrameRead::Lost) => {
            Err(source.close.unwrap_or((CloseCode::Normal, "")))
        }
        Err(_) => Err((CloseCode::Policy, NOT_INITIALIZED)),
    }
}

/// Serves a connection until it ends, the token of its last caller no longer works, or the server stops. Returns the sink, and why the server ends the connection if its source gives no reason.
pub(super) async fn serve_admitted<K: LineSink + 'static>(
    connection: ClientConnection,
    mut callers: watch::Receiver<Caller>,
    (source, sink): (&mut impl MessageSource, K),
    decoder: Decoder,
    stop: &CancellationToken,
    hello_timeout: Option<Duration>,
) -> Option<(K, CloseReason)> {
    let connection = Arc::new(connection);
    let is_revoked = AtomicBool::new(false);
    let revocation = async {
        loop {
            let caller = callers.borrow_and_update().clone();
            tokio::select! {
                () = until_revoked(&connection.state.authenticator, &caller) => break,
                Ok(()) = callers.changed() => {}
            }
        }
        is_revoked.store(true, Ordering::Relaxed);
        connection.closed.cancel();
    };
    let is_silent = AtomicBool::new(false);
    let silence = async {
        if let Some(limit) = hello_timeout {
            sleep(limit).await;
            // The response can take longer, because an agent has to start.
            if !connection.has_sent_initialize.load(Ordering::Relaxed) {
                is_silent.store(true, Ordering::Relaxed);
                return connection.closed.cancel();
            }
        }
        std::future::pending().await
    };
    let serving = async {
        let serving = serve(&connection, source, sink, decoder, stop);
        tokio::pin!(serving);
        tokio::select! {
            sink = &mut serving => sink,
            () = revocation => serving.await,
            () = silence => serving.await,
        }
    };
    let sink = serving.await?;
    let reason = if is_revoked.into_inner() {
        (CloseCode::Policy, "the token was revoked or has expired")
    } else if connection.outbox.is_over_budget() {
        (CloseCode::Again, "too many bytes of messages are not read")
    } else if is_silent.into_inner() {
        (CloseCode::Policy, NOT_INITIALIZED)
    } else if stop.is_cancelled() {
        (CloseCode::Away, ENDED_BY_SERVER)
    } else {
        (CloseCode::Normal, "")
    };
    Some((sink, reason))
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

/// Reads the first frame of the local socket's protocol and responds to it. Returns `None` if the client is refused.
async fn hello(
    state: &Arc<State>,
    caller: &Caller,
    agent: &AgentName,
    (source, sink): (&mut FrameSource, &mut FrameSink),
    decoder: &mut Decoder,
) -> Option<ClientConnection> {
    let accepted = async {
        let line = timeout(state.options.hello_timeout, first_line(source, decoder)).await;
        let line = line.map_err(|_| {
            Error::new(Code::InvalidRequest, "the first frame did not come in time")
        })??;
        let origin = ClientOrigin::Network(caller.clone());
        let (connection, reply) = state.accept(&line, origin).await?;
        if connection.agent != *agent {
            let message = format!("the first frame names the agent '{}'", connection.agent);
            return Err(Error::new(Code::InvalidRequest, message)
                .hint(format!("name '{agent}', the agent of the address")));
        }
        Ok((connection, reply))
    };
    let (connection, reply) = match accepted.await {
        Ok((connection, reply)) => (Some(connection), reply),
        Err(error) => (None, HelloReply::from_problem(&problem::describe(&error, None))),
    };
    let lines = serde_json::to_vec(&reply).unwrap_or_default();
    sink.send(vec![Batch::new(lines, 1)]).await.ok()?;
    connection
}

async fn first_line(source: &mut FrameSource, decoder: &mut Decoder) -> Result<Bytes> {
    let broken = |what: &str| Error::new(Code::InvalidRequest, format!("the first frame {what}"));
    loop {
        match decoder.next() {
            Some(Frame::Line(line)) if line.len() <= MAX_HELLO_BYTES => return Ok(line),
            Some(Frame::Line(_) | Frame::Oversize(_)) => return Err(broken("is too long")),
            Some(Frame::Noise(_)) => return Err(broken("is no JSON object")),
            None => {}
        }
        match source.receive(decoder).await {
            Ok(true) => {}
            Ok(false) => return Err(broken("is missing")),
            Err(error) => return Err(broken(&format!("cannot be read: {error}"))),
        }
    }
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
