//! A connection that outlives its WebSockets: a client that has lost one opens another, and both sides continue after the last message that
//! arrived.
//!
//! Both sides count messages, so a WebSocket carries nothing in addition.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, lock};
use trilogue_wire::jsonrpc::{Decoder, Id};
use trilogue_wire::native::local::ContinueResult;

use super::counted::ArrivingBytes;
use super::frames::{CLOSE_WAIT, CloseReason, FrameRead, FrameSink, FrameSource, close};
use super::lasting::LastingConnection;
use super::mailbox::{KeptBudget, Mailbox};
use crate::access::authenticator::Caller;
use crate::faces::client::wire::lines::OutgoingLines;
use crate::faces::client::wire::outbox::Batch;
use crate::faces::client::wire::transport::{LineSink, Lines, MessageSource, push_message};

/// The most WebSockets that wait to continue one connection. The newest of them wins.
const MAX_WAITING_SOCKETS: usize = 1;
/// The most messages that the face has not taken.
const MAX_UNREAD_MESSAGES: usize = 1;

/// A connection that its client can continue.
#[derive(Debug)]
pub(in crate::faces::client) struct Continuation {
    id: String,
    agent: AgentName,
    /// The caller that opened the connection.
    caller: Caller,
    next_sockets: mpsc::Sender<NextSocket>,
    /// The messages for the client. Only the sink changes them.
    messages: Mutex<Mailbox>,
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

/// A WebSocket of a client.
pub(super) struct Socket {
    pub(super) caller: Caller,
    pub(super) source: FrameSource,
    pub(super) sink: FrameSink,
}

/// A connection that has begun on a WebSocket.
pub(super) struct NewContinuation {
    pub(super) continuation: Arc<Continuation>,
    /// Returns the last WebSocket when the connection has ended.
    pub(super) reading: JoinHandle<Option<SocketSource>>,
    pub(super) source: ContinuedSource,
    pub(super) sink: ContinuedSink,
    /// Cancelled when the WebSocket has ended.
    pub(super) ended: CancellationToken,
}

/// A WebSocket that continues a connection.
struct NextSocket {
    source: SocketSource,
    sink: SocketSink,
    request: Id<'static>,
    /// The number of the last message that the client has received.
    after: u64,
}

/// The halves of a WebSocket. It counts as open until both are dropped.
pub(super) struct SocketSource {
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
pub(super) struct ContinuedSource(mpsc::Receiver<ReceivedMessage>);

struct ReceivedMessage {
    text: Bytes,
    /// Counts the message until the face takes it.
    arriving: Arc<ArrivingBytes>,
}

/// Reads the WebSockets of a connection, one after the other. A task of its own, because the face may wait for the client to read.
struct SocketReader {
    continuation: Arc<Continuation>,
    messages: mpsc::Sender<ReceivedMessage>,
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
pub(super) struct ContinuedSink {
    continuation: Arc<Continuation>,
    socket: Option<SocketSink>,
    /// What goes before the messages that wait.
    response: Option<Vec<u8>>,
    /// Whether something was added to the WebSocket and not written yet.
    needs_flush: bool,
}

// === impl Continuation ===

impl Continuation {
    /// Begins a connection, of which one message has arrived. `stop` ends it.
    pub(super) fn begin(
        id: String,
        agent: AgentName,
        socket: Socket,
        (grace, stop): (Duration, CancellationToken),
        kept_budget: &KeptBudget,
    ) -> NewContinuation {
        let Socket { caller, source, sink } = socket;
        let (next_sockets, waiting) = mpsc::channel(MAX_WAITING_SOCKETS);
        let continuation = Arc::new(Self {
            id,
            agent,
            caller,
            next_sockets,
            messages: Mutex::new(Mailbox::new(Some(kept_budget))),
            sink_change: Mutex::default(),
            has_sink_change: Notify::new(),
            broken: AtomicU64::new(0),
            has_broken: Notify::new(),
            stop,
            given_up: CancellationToken::new(),
        });
        let ended = CancellationToken::new();
        let open = Arc::new(ended.clone().drop_guard());
        let number = 1;
        let (messages, received) = mpsc::channel(MAX_UNREAD_MESSAGES);
        let reader = SocketReader {
            continuation: Arc::clone(&continuation),
            messages,
            socket: Some(SocketSource { frames: source, _open: Arc::clone(&open) }),
            number,
            next_sockets: waiting,
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
        let reading = tokio::spawn(reader.run());
        let source = ContinuedSource(received);
        NewContinuation { continuation, reading, source, sink, ended }
    }

    /// Checks that a client can continue that has received this many messages. Otherwise ends the connection, because its client cannot use it.
    /// Errors: `invalid_cursor`.
    pub(super) fn check(&self, received: u64) -> Result<()> {
        let checked = self.messages().check(received);
        checked.map_err(|error| {
            self.stop.cancel();
            error.hint("send `initialize`, and load the sessions")
        })
    }

    /// Continues on this WebSocket after message `after`, with the response to this request. Returns what is cancelled when the WebSocket has ended.
    pub(super) async fn hand_over(
        &self,
        socket: Socket,
        request: Id<'static>,
        after: u64,
    ) -> CancellationToken {
        let Socket { source, sink, .. } = socket;
        let ended = CancellationToken::new();
        let open = Arc::new(ended.clone().drop_guard());
        let next = NextSocket {
            source: SocketSource { frames: source, _open: Arc::clone(&open) },
            sink: SocketSink { frames: sink, number: 0, _open: open },
            request,
            after,
        };
        // Fails if the connection has just ended; then the client sees its WebSocket end, and asks again.
        drop(self.next_sockets.send(next).await);
        ended
    }

    /// Waits until a WebSocket has ended. Ends the connection if this one must end.
    pub(super) async fn wait_for_socket(
        &self,
        ended: &CancellationToken,
        stop: &CancellationToken,
    ) {
        tokio::select! {
            () = ended.cancelled() => return,
            () = stop.cancelled() => self.stop.cancel(),
        }
        ended.cancelled().await;
    }

    pub(super) const fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Records that nothing more can reach the client.
    pub(super) fn give_up(&self) {
        self.given_up.cancel();
    }

    fn messages(&self) -> MutexGuard<'_, Mailbox> {
        lock(&self.messages)
    }

    fn change_sink(&self, change: SinkChange) {
        *lock(&self.sink_change) = Some(change);
        self.has_sink_change.notify_one();
    }
}

/// Closes the current WebSocket, if there is one.
pub(super) async fn close_last(
    reading: JoinHandle<Option<SocketSource>>,
    sink: ContinuedSink,
    reason: CloseReason,
) {
    let (Ok(Some(source)), Some(sink)) = (reading.await, sink.socket) else { return };
    let reason = source.frames.close.unwrap_or(reason);
    close(source.frames, sink.frames, reason).await;
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
        let Some(ReceivedMessage { text, arriving }) = self.0.recv().await else {
            return Ok(false);
        };
        push_message(decoder, &text);
        arriving.release();
        Ok(true)
    }
}

// === impl SocketReader ===

impl SocketReader {
    /// Reads until the client has left for good, or the connection has ended. Returns the last WebSocket.
    async fn run(mut self) -> Option<SocketSource> {
        let continuation = Arc::clone(&self.continuation);
        let mut permit = None;
        loop {
            let read = tokio::select! {
                biased;
                () = continuation.given_up.cancelled() => break,
                next = self.next_sockets.recv() => {
                    let Some(next) = next else { break };
                    self.replace(next);
                    continue;
                }
                () = continuation.has_broken.notified() => {
                    if continuation.broken.load(Ordering::Relaxed) != self.number {
                        continue;
                    }
                    FrameRead::Lost
                }
                // A message is read when the face has taken the one before. Meanwhile other WebSockets and the end of the grace period count.
                reserved = self.messages.clone().reserve_owned(), if permit.is_none() => {
                    let Ok(reserved) = reserved else { break };
                    permit = Some(reserved);
                    continue;
                }
                read = read_socket(&mut self.socket, self.end), if permit.is_some() || self.socket.is_none() => match read {
                    Some(read) => read,
                    None => {
                        tracing::debug!(agent = %continuation.agent, "a client did not come back");
                        continuation.give_up();
                        break;
                    }
                },
            };
            match read {
                FrameRead::Closed => {
                    drop((self.messages, permit));
                    // The face may wait for room among messages that this client does not read any more.
                    let ended = continuation.given_up.cancelled();
                    if timeout(CLOSE_WAIT, ended).await.is_err() {
                        continuation.give_up();
                    }
                    return self.socket;
                }
                FrameRead::Message(text) => {
                    self.received += 1;
                    if let (Some(socket), Some(permit)) = (&self.socket, permit.take()) {
                        let arriving = Arc::clone(&socket.frames.arriving);
                        permit.send(ReceivedMessage { text, arriving });
                    }
                }
                FrameRead::Lost => {
                    self.socket = None;
                    self.end = Instant::now() + self.grace;
                    continuation.change_sink(SinkChange::Lost);
                }
            }
        }
        self.socket
    }

    /// Reads from this WebSocket from now on. What the last one has not delivered, the client sends again.
    fn replace(&mut self, next: NextSocket) {
        let NextSocket { source, mut sink, request, after } = next;
        self.number += 1;
        sink.number = self.number;
        self.socket = Some(source);
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
    /// Without a WebSocket, waits for the next one: meanwhile the outbox fills.
    async fn send(&mut self, batches: Vec<Batch>) -> io::Result<()> {
        {
            let mut messages = self.continuation.messages();
            for batch in batches {
                Lines(batch.into_lines()).for_each(|line| messages.push(line));
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
            match kept {
                // The client answers pings, so it has what was sent long ago.
                Ok(()) => self.continuation.messages().trim(Instant::now()),
                Err(_) => self.on_broken(),
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
                if self.continuation.messages().attach(sink.number, Some(after)).is_err() {
                    // The messages went while the WebSocket waited.
                    return self.continuation.give_up();
                }
                (self.socket, self.response, self.needs_flush) =
                    (Some(sink), Some(response), false);
            }
        }
    }

    fn has_work(&self) -> bool {
        self.needs_flush || self.response.is_some() || self.continuation.messages().next().is_some()
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
                let next = continuation.messages().next();
                let Some(line) = next else { break };
                socket.frames.feed_line(line).await?;
                continuation.messages().on_sent(Instant::now());
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
