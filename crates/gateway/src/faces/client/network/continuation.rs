//! A connection that outlives its WebSockets: a client that has lost one opens another, and both sides continue after the last message that
//! arrived.
//!
//! The client asks for it with [`Extras::attach`] on `initialize`, and continues with [`ATTACH_METHOD`] as the first message of the next
//! WebSocket. Both sides count messages, so a WebSocket carries nothing in addition.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_util::sync::{CancellationToken, DropGuard};
use trilogue_domain::{AgentName, Error, lock};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::jsonrpc::{Decoder, Id, Incoming, parse};
use trilogue_wire::native::local::{ATTACH_METHOD, ContinueParams, ContinueResult, Extras};

use super::admission::Admission;
use super::lasting::LastingConnection;
use super::mailbox::Mailbox;
use super::websocket::{CloseReason, FrameRead, FrameSink, FrameSource, close, serve_admitted};
use crate::access::authenticator::Caller;
use crate::faces::client::connection::ClientConnection;
use crate::faces::client::state::State;
use crate::faces::client::wire::lines::OutgoingLines;
use crate::faces::client::wire::outbox::Batch;
use crate::faces::client::wire::transport::{LineSink, Lines, MessageSource};

/// The most WebSockets that wait to continue one connection. The newest of them wins.
const MAX_WAITING_SOCKETS: usize = 1;

/// What the first message of a WebSocket asks for.
#[derive(Debug)]
pub(super) enum FirstRequest {
    /// A new connection that outlives this WebSocket.
    Initialize,
    /// To continue a connection.
    Attach(Id<'static>, ContinueParams),
    /// Nothing of this module.
    Other,
}

/// A WebSocket of a client.
pub(super) struct Socket {
    pub(super) caller: Caller,
    pub(super) source: FrameSource,
    pub(super) sink: FrameSink,
    pub(super) stop: CancellationToken,
}

/// A connection that its client can continue.
#[derive(Debug)]
pub(in crate::faces::client) struct Continuation {
    id: String,
    agent: AgentName,
    /// The caller that opened the connection.
    caller: Caller,
    /// The caller of the last WebSocket, whose token keeps the connection open.
    last_caller: watch::Sender<Caller>,
    next_sockets: mpsc::Sender<NextSocket>,
    /// The messages for the client. Only the sink changes them.
    sent: Mutex<Mailbox>,
    sink_change: Mutex<Option<SinkChange>>,
    /// Notified when the sink has to change.
    has_sink_change: Notify,
    /// The number of the last WebSocket that took nothing.
    broken: AtomicU64,
    has_broken: Notify,
    /// Asks the connection to end.
    stop: CancellationToken,
    /// Cancelled when nothing more can reach the client.
    given_up: CancellationToken,
}

/// A WebSocket that continues a connection.
struct NextSocket {
    caller: Caller,
    source: SocketSource,
    sink: SocketSink,
    request: Id<'static>,
    /// The number of the last message that the client has received.
    after: u64,
}

/// The halves of a WebSocket. It counts as open until both are dropped.
struct SocketSource {
    frames: FrameSource,
    _open: Arc<DropGuard>,
}

struct SocketSink {
    frames: FrameSink,
    /// The number of the WebSocket.
    number: u64,
    _open: Arc<DropGuard>,
}

/// What the source tells the sink.
enum SinkChange {
    Lost,
    Continue { sink: SocketSink, after: u64, response: Vec<u8> },
}

impl std::fmt::Debug for SinkChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lost => "Lost",
            Self::Continue { .. } => "Continue",
        })
    }
}

/// Receives the messages of all WebSockets of a connection.
struct ContinuedSource {
    continuation: Arc<Continuation>,
    socket: Option<SocketSource>,
    /// The number of the current WebSocket, or of the last one.
    number: u64,
    next_sockets: mpsc::Receiver<NextSocket>,
    /// How many messages the client has sent.
    received: u64,
    /// When the connection ends, if it has no WebSocket.
    end: Instant,
    grace: Duration,
}

/// Sends the lines of the face to the current WebSocket.
struct ContinuedSink {
    continuation: Arc<Continuation>,
    socket: Option<SocketSink>,
    /// What goes before the messages that wait.
    response: Option<Vec<u8>>,
    /// Whether something was added to the WebSocket and not written yet.
    needs_flush: bool,
}

/// Serves a new connection until it ends. Returns when its first WebSocket has ended.
pub(super) async fn begin(
    state: &Arc<State>,
    id: String,
    mut connection: ClientConnection,
    socket: Socket,
    (decoder, admission): (Decoder, Admission),
) {
    connection.attach = Some(state.attach_capability(Some(&id)));
    let Socket { caller, source, sink, stop } = socket;
    let (last_caller, callers) = watch::channel(caller.clone());
    let (next_sockets, waiting) = mpsc::channel(MAX_WAITING_SOCKETS);
    let continuation = Arc::new(Continuation {
        id,
        agent: connection.agent.clone(),
        caller,
        last_caller,
        next_sockets,
        sent: Mutex::default(),
        sink_change: Mutex::default(),
        has_sink_change: Notify::new(),
        broken: AtomicU64::new(0),
        has_broken: Notify::new(),
        stop: state.streams_end.child_token(),
        given_up: CancellationToken::new(),
    });
    let ended = CancellationToken::new();
    let open = Arc::new(ended.clone().drop_guard());
    let (number, grace) = (1, state.options.idle_timeout);
    let source = ContinuedSource {
        continuation: Arc::clone(&continuation),
        socket: Some(SocketSource { frames: source, _open: Arc::clone(&open) }),
        number,
        next_sockets: waiting,
        // The first message is in the decoder.
        received: 1,
        end: Instant::now(),
        grace,
    };
    let sink = ContinuedSink {
        continuation: Arc::clone(&continuation),
        socket: Some(SocketSink { frames: sink, number, _open: open }),
        response: None,
        needs_flush: false,
    };
    state.continuations.add(&continuation);
    let (state, served) = (Arc::clone(state), Arc::clone(&continuation));
    tokio::spawn(async move {
        let mut source = source;
        let stop = served.stop.clone();
        let serving =
            serve_admitted(connection, callers, (&mut source, sink), decoder, &stop, None);
        let ended = Box::pin(serving).await;
        served.given_up.cancel();
        state.continuations.remove(&served);
        if let Some((sink, reason)) = ended {
            close_last(source, sink, reason).await;
        }
        drop(admission);
    });
    continuation.wait_for_socket(&ended, &stop).await;
}

/// Continues a connection on this WebSocket. Returns when the WebSocket has ended.
pub(super) async fn resume(
    state: &Arc<State>,
    agent: &AgentName,
    socket: Socket,
    request: Id<'static>,
    params: ContinueParams,
) {
    let Socket { caller, source, mut sink, stop } = socket;
    let found = state.continuations.find(&params.connection_id, &caller, agent);
    let checked = found.and_then(|found| {
        if let Err(error) = found.sent().check(params.received) {
            // It cannot be continued, and its client has left it.
            found.stop.cancel();
            return Err(error.hint("send `initialize`, and load the sessions"));
        }
        Ok(found)
    });
    let continuation = match checked {
        Ok(continuation) => continuation,
        Err(error) => {
            let line = error_line(&request, &error);
            drop(sink.send(vec![Batch::new(line, 1)]).await);
            let reason = (CloseCode::Policy, "the connection cannot be continued");
            return close(source, sink, reason).await;
        }
    };
    let ended = CancellationToken::new();
    let open = Arc::new(ended.clone().drop_guard());
    let next = NextSocket {
        caller,
        source: SocketSource { frames: source, _open: Arc::clone(&open) },
        sink: SocketSink { frames: sink, number: 0, _open: open },
        request,
        after: params.received,
    };
    // Fails if the connection has just ended; then the client sees its WebSocket end, and asks again.
    drop(continuation.next_sockets.send(next).await);
    continuation.wait_for_socket(&ended, &stop).await;
}

async fn close_last(source: ContinuedSource, sink: ContinuedSink, reason: CloseReason) {
    let (Some(source), Some(sink)) = (source.socket, sink.socket) else { return };
    let reason = source.frames.close.unwrap_or(reason);
    close(source.frames, sink.frames, reason).await;
}

fn error_line(request: &Id<'static>, error: &Error) -> Vec<u8> {
    let mut lines = OutgoingLines::default();
    lines.response(request, &Err(mapping::error_object(error)));
    lines.bytes
}

// === impl FirstRequest ===

impl FirstRequest {
    pub(super) fn read(message: &str) -> Self {
        let Ok(Incoming::Request(request)) = parse(message.as_bytes()) else { return Self::Other };
        let params = request.params.map_or("{}", |params| params.get());
        match &*request.method {
            "initialize" if Extras::take(params).1.attach == Some(true) => Self::Initialize,
            ATTACH_METHOD => match serde_json::from_str(params) {
                Ok(params) => Self::Attach(request.id.into_owned(), params),
                Err(_) => Self::Other,
            },
            _ => Self::Other,
        }
    }
}

// === impl Continuation ===

impl Continuation {
    fn sent(&self) -> MutexGuard<'_, Mailbox> {
        lock(&self.sent)
    }

    fn change_sink(&self, change: SinkChange) {
        *lock(&self.sink_change) = Some(change);
        self.has_sink_change.notify_one();
    }

    /// Waits until a WebSocket has ended. Ends the connection if this one must.
    async fn wait_for_socket(&self, ended: &CancellationToken, stop: &CancellationToken) {
        tokio::select! {
            () = ended.cancelled() => return,
            () = stop.cancelled() => self.stop.cancel(),
        }
        ended.cancelled().await;
    }
}

impl LastingConnection for Continuation {
    fn id(&self) -> &str {
        &self.id
    }

    fn agent(&self) -> &AgentName {
        &self.agent
    }

    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn is_closed(&self) -> bool {
        self.given_up.is_cancelled()
    }
}

// === impl ContinuedSource ===

impl MessageSource for ContinuedSource {
    async fn receive(&mut self, decoder: &mut Decoder) -> io::Result<bool> {
        loop {
            let read = tokio::select! {
                biased;
                next = self.next_sockets.recv() => {
                    let Some(next) = next else { return Ok(false) };
                    self.replace(next);
                    continue;
                }
                () = self.continuation.given_up.cancelled() => return Ok(false),
                () = self.continuation.has_broken.notified() => {
                    if self.continuation.broken.load(Ordering::Relaxed) != self.number {
                        continue;
                    }
                    FrameRead::Lost
                }
                read = read_socket(&mut self.socket, self.end) => match read {
                    Some(read) => read,
                    None => {
                        tracing::debug!(agent = %self.continuation.agent, "a client did not come back");
                        self.continuation.given_up.cancel();
                        return Ok(false);
                    }
                },
            };
            match read {
                FrameRead::Closed => return Ok(false),
                FrameRead::Message(text) => {
                    self.received += 1;
                    if let Some(socket) = &self.socket {
                        socket.frames.take(&text, decoder);
                    }
                    return Ok(true);
                }
                FrameRead::Lost => {
                    self.socket = None;
                    self.end = Instant::now() + self.grace;
                    self.continuation.change_sink(SinkChange::Lost);
                }
            }
        }
    }
}

impl ContinuedSource {
    /// Reads from this WebSocket from now on. What the last one has not delivered, the client sends again.
    fn replace(&mut self, next: NextSocket) {
        let NextSocket { caller, source, mut sink, request, after } = next;
        self.number += 1;
        sink.number = self.number;
        self.socket = Some(source);
        self.continuation.last_caller.send_replace(caller);
        let result = ContinueResult { received: self.received };
        let mut lines = OutgoingLines::default();
        let result = serde_json::to_vec(&result).unwrap_or_default();
        lines.response(&request, &Ok(result));
        let response = lines.bytes;
        self.continuation.change_sink(SinkChange::Continue { sink, after, response });
    }
}

/// Waits for the next message, or until `end` without a WebSocket: then returns `None`.
async fn read_socket(socket: &mut Option<SocketSource>, end: Instant) -> Option<FrameRead> {
    match socket {
        Some(socket) => Some(socket.frames.read_frame().await),
        None => {
            sleep_until(end).await;
            None
        }
    }
}

// === impl ContinuedSink ===

impl LineSink for ContinuedSink {
    /// Waits for the next WebSocket if there is none: meanwhile the outbox fills.
    async fn send(&mut self, batches: Vec<Batch>) -> io::Result<()> {
        {
            let mut sent = self.continuation.sent();
            for batch in batches {
                Lines(batch.into_lines()).for_each(|line| sent.push(line));
            }
        }
        let continuation = Arc::clone(&self.continuation);
        loop {
            self.take_change();
            if !self.has_work() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = continuation.has_sink_change.notified() => {}
                () = continuation.given_up.cancelled() => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                () = self.write_waiting() => {}
            }
        }
    }

    async fn keep_alive(&mut self) -> io::Result<()> {
        let continuation = Arc::clone(&self.continuation);
        loop {
            self.take_change();
            if self.socket.is_some() && self.has_work() {
                self.write_waiting().await;
                continue;
            }
            let kept = tokio::select! {
                biased;
                () = continuation.has_sink_change.notified() => continue,
                kept = keep_socket_alive(&mut self.socket) => kept,
            };
            if kept.is_err() {
                self.on_broken();
            }
        }
    }
}

impl ContinuedSink {
    fn take_change(&mut self) {
        let change = lock(&self.continuation.sink_change).take();
        match change {
            None => {}
            Some(SinkChange::Lost) => drop(self.drop_socket()),
            Some(SinkChange::Continue { sink, after, response }) => {
                if self.continuation.sent().attach(sink.number, Some(after)).is_err() {
                    // The messages went while the WebSocket waited.
                    return self.continuation.given_up.cancel();
                }
                (self.socket, self.response, self.needs_flush) =
                    (Some(sink), Some(response), false);
            }
        }
    }

    fn has_work(&self) -> bool {
        self.needs_flush || self.response.is_some() || self.continuation.sent().next().is_some()
    }

    /// Writes what waits, if there is a WebSocket; otherwise waits forever. A call can be dropped without a loss.
    async fn write_waiting(&mut self) {
        let Self { continuation, socket, response, needs_flush } = self;
        let Some(socket) = socket else { return std::future::pending().await };
        *needs_flush = true;
        let written = async {
            let has_ping = socket.frames.feed_ping_if_due().await?;
            if let Some(lines) = response.clone() {
                for line in Lines(lines.into()) {
                    socket.frames.feed_line(line).await?;
                }
                *response = None;
            }
            loop {
                let next = continuation.sent().next();
                let Some(line) = next else { break };
                socket.frames.feed_line(line).await?;
                continuation.sent().on_sent();
            }
            socket.frames.flush(has_ping).await
        };
        let written: io::Result<()> = written.await;
        match written {
            Ok(()) => self.needs_flush = false,
            Err(_) => self.on_broken(),
        }
    }

    fn drop_socket(&mut self) -> Option<SocketSink> {
        (self.response, self.needs_flush) = (None, false);
        self.socket.take()
    }

    /// Lets the source drop its half too.
    fn on_broken(&mut self) {
        if let Some(socket) = self.drop_socket() {
            self.continuation.broken.store(socket.number, Ordering::Relaxed);
            self.continuation.has_broken.notify_one();
        }
    }
}

async fn keep_socket_alive(socket: &mut Option<SocketSink>) -> io::Result<()> {
    match socket {
        Some(socket) => socket.frames.keep_alive().await,
        None => std::future::pending().await,
    }
}
