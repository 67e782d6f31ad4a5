//! A client's connection over HTTP, which many requests share.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, ThreadId, lock};
use trilogue_wire::jsonrpc::{Decoder, Id};
use uuid::Uuid;

use super::super::lasting::LastingConnection;
use super::super::mailbox::{KeptBudget, MailboxRead};
use super::routing::{MailboxLimits, Routing, StreamKey};
use crate::access::authenticator::Caller;
use crate::faces::client::options::ClientOptions;
use crate::faces::client::wire::outbox::Batch;
use crate::faces::client::wire::transport::{LineSink, Lines, MessageSource, push_message};

/// The most messages of one connection that were accepted and not read yet. The requests of further ones wait, and their bodies count meanwhile.
const MAX_UNREAD_MESSAGES: usize = 1;
/// The most keys of accepted messages that a connection remembers.
const MAX_ACCEPTED_KEYS: usize = 256;

/// The keys, with the hashes of the messages. Locked while a message is passed on, so that a repeated one waits for the first.
type AcceptedKeys = tokio::sync::Mutex<VecDeque<(String, [u8; 32])>>;

/// A client's connection over HTTP.
#[derive(Debug)]
pub(in crate::faces::client) struct HttpConnection {
    pub(super) id: String,
    pub(super) agent: AgentName,
    /// The caller that opened the connection.
    caller: Caller,
    messages: mpsc::Sender<Bytes>,
    /// The keys of the last accepted messages, oldest first.
    accepted: AcceptedKeys,
    routing: Mutex<Routing>,
    limits: MailboxLimits,
    /// How long a message waits for room in its stream.
    idle_timeout: Duration,
    /// Notified when messages were taken from a stream.
    taken: Notify,
    last_used: Mutex<Instant>,
    /// Ends the connection.
    closed: CancellationToken,
}

/// Receives the messages of a connection's requests.
pub(super) struct PostedMessages(mpsc::Receiver<Bytes>);

/// Puts the lines of the face into the streams of a connection.
pub(super) struct StreamSink(pub(super) Arc<HttpConnection>);

// === impl HttpConnection ===

impl HttpConnection {
    /// Creates a connection, and what receives the messages of its requests. `closed` ends it.
    pub(super) fn new(
        agent: AgentName,
        caller: Caller,
        options: &ClientOptions,
        kept_budget: KeptBudget,
        closed: CancellationToken,
    ) -> (Arc<Self>, PostedMessages) {
        let (messages, receiver) = mpsc::channel(MAX_UNREAD_MESSAGES);
        let connection = Self {
            id: Uuid::new_v4().to_string(),
            agent,
            caller,
            messages,
            accepted: AcceptedKeys::default(),
            routing: Mutex::new(Routing::new(Some(kept_budget))),
            limits: MailboxLimits {
                messages: options.max_outbox_messages,
                bytes: options.max_outbox_bytes,
            },
            idle_timeout: options.idle_timeout,
            taken: Notify::new(),
            last_used: Mutex::new(Instant::now()),
            closed,
        };
        (Arc::new(connection), PostedMessages(receiver))
    }

    /// Lets the streams end when they have sent what waits.
    pub(super) fn end_streams(&self) {
        self.routing().close();
        self.closed.cancel();
    }

    /// Passes a message on to the face. Waits while it has not read the ones before.
    /// Errors: `not_found` if the connection has ended.
    pub(super) async fn post(&self, message: Bytes) -> Result<()> {
        self.touch();
        self.messages.send(message).await.map_err(|_| connection_ended_error())
    }

    /// Passes a message on unless one with this key was accepted, because its client repeats it after a lost connection.
    /// Errors: `idempotency_mismatch` if it was another message; those of [`Self::on_request`] and of [`Self::post`].
    pub(super) async fn post_once(
        &self,
        (key, digest): (String, [u8; 32]),
        message: Bytes,
        request: Option<(&Id<'_>, Option<ThreadId>)>,
    ) -> Result<()> {
        // A request that is given up while it waits has delivered nothing, and leaves no key.
        let mut accepted = self.accepted.lock().await;
        if let Some((_, known)) = accepted.iter().find(|(known, _)| *known == key) {
            self.touch();
            return if *known == digest { Ok(()) } else { Err(mismatch_error()) };
        }
        if let Some((id, session)) = request {
            self.on_request(id, session)?;
        }
        self.post(message).await?;
        if accepted.len() >= MAX_ACCEPTED_KEYS {
            accepted.pop_front();
        }
        accepted.push_back((key, digest));
        Ok(())
    }

    /// Records a request of the client.
    /// Errors: `overloaded`.
    pub(super) fn on_request(&self, id: &Id<'_>, session: Option<ThreadId>) -> Result<()> {
        self.routing().on_request(id, session)
    }

    /// Returns what receives the response to the first request.
    pub(super) fn expect_first_response(&self) -> oneshot::Receiver<Bytes> {
        let (sender, receiver) = oneshot::channel();
        self.routing().initialize = Some(sender);
        receiver
    }

    /// Opens a stream. Returns the number of its reader.
    /// Errors: those of the routing; `not_found` if the connection has ended.
    pub(super) fn attach(&self, stream: &StreamKey, after: Option<u64>) -> Result<u64> {
        self.touch();
        let mut routing = self.routing();
        if routing.is_closed {
            return Err(connection_ended_error());
        }
        routing.attach(stream, after)
    }

    pub(super) fn detach(&self, stream: &StreamKey, reader: u64) {
        self.touch();
        self.routing().detach(stream, reader);
    }

    /// Takes what waits in a stream. `None` at its end. Otherwise returns what to wait for if nothing was there.
    pub(super) fn take(
        &self,
        stream: &StreamKey,
        reader: u64,
    ) -> Option<Result<Bytes, Arc<Notify>>> {
        let mut routing = self.routing();
        let is_closed = routing.is_closed;
        let mailbox = routing.mailbox(stream)?;
        match mailbox.take(reader, Instant::now()) {
            MailboxRead::Events(events) => {
                drop(routing);
                self.taken.notify_one();
                Some(Ok(events))
            }
            MailboxRead::Nothing if !is_closed => Some(Err(Arc::clone(&mailbox.changed))),
            MailboxRead::Nothing | MailboxRead::Replaced => None,
        }
    }

    /// Ends the connection as if the client had disconnected.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }

    /// Completes when the connection had no request and no stream for this long.
    pub(super) async fn unused_for(&self, grace: Duration) {
        loop {
            if self.routing().has_readers() {
                self.touch();
            }
            self.routing().trim(Instant::now());
            let end = *lock(&self.last_used) + grace;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }

    fn routing(&self) -> MutexGuard<'_, Routing> {
        lock(&self.routing)
    }
}

impl LastingConnection for HttpConnection {
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
        self.closed.is_cancelled()
    }
}

fn mismatch_error() -> Error {
    Error::new(Code::IdempotencyMismatch, "this Idempotency-Key came with another message before")
        .hint("choose a new key for each message")
}

fn connection_ended_error() -> Error {
    Error::new(Code::NotFound, "the connection has ended")
        .hint("begin another one with 'initialize', and load the sessions again")
}

// === impl PostedMessages ===

impl MessageSource for PostedMessages {
    async fn receive(&mut self, decoder: &mut Decoder) -> io::Result<bool> {
        let Some(message) = self.0.recv().await else { return Ok(false) };
        push_message(decoder, &message);
        Ok(true)
    }
}

// === impl StreamSink ===

impl LineSink for StreamSink {
    async fn send(&mut self, batches: Vec<Batch>) -> io::Result<()> {
        for batch in batches {
            for line in Lines(batch.into_lines()) {
                self.push(line).await?;
            }
        }
        Ok(())
    }
}

impl StreamSink {
    /// Waits until the line's stream has room for it. Meanwhile the other streams of the connection wait too, so the wait is limited.
    /// Errors: [`io::ErrorKind::TimedOut`] if no stream is read for the idle timeout.
    async fn push(&self, line: Bytes) -> io::Result<()> {
        let mut line = line;
        loop {
            // A permit stays if a reader takes messages between the check and the wait.
            let full = self.0.routing().push(line, self.0.limits);
            match full {
                None => return Ok(()),
                Some(rest) => line = rest,
            }
            timeout(self.0.idle_timeout, self.0.taken.notified()).await?;
        }
    }
}
