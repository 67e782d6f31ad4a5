//! A resumable reader of server-sent events. The streams of all protocols use it.
//!
//! It connects, reads, and reconnects after a break with increasing delays. The [`StreamSource`] of a protocol handles the events and the end of a connection.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;
use trilogue_wire::json::{DEFAULT_MAX_TREE_BYTES, OwnedItems, is_too_complex};
use trilogue_wire::sse::{Decoder, Item};

use super::Options;
use super::call::too_complex;
use super::error::ClientError;
use super::transport::{Response, ResponseBody};

/// The content type of event streams.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// A connection with fewer items than this, which ended within [`SHORT_CONNECTION_TIME`], increases the delay before the next one.
const SHORT_CONNECTION_ITEMS: u32 = 16;
/// How soon a connection ends that increases the delay before the next one.
const SHORT_CONNECTION_TIME: Duration = Duration::from_secs(10);

/// A response that is being awaited.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>;

/// A stream that continues after a break.
#[derive(Debug)]
pub(crate) struct Resumable<S: StreamSource> {
    pub(crate) source: S,
    pub(crate) flow: Flow<S>,
}

pub(crate) trait StreamSource: Sized + Send + Unpin {
    /// The items of the stream.
    type Item: Send + Unpin;
    /// The server's response: to an attempt to connect, or to another request of the source.
    type Reply: 'static;

    /// Begins one attempt to connect.
    fn connect(&mut self) -> Pending<Self::Reply>;

    fn on_reply(&mut self, reply: Self::Reply, flow: &mut Flow<Self>) -> Result<(), ClientError>;

    /// Handles an event. Returns `None` if the event yields no item.
    fn on_event(
        &mut self,
        event: SseEvent,
        flow: &mut Flow<Self>,
    ) -> Result<Option<Self::Item>, ClientError>;

    /// Handles a comment, which is a heartbeat.
    fn on_comment(&mut self, text: &str, flow: &mut Flow<Self>) {
        let _ = text;
        flow.attempts = 0;
    }

    /// Handles the end of a connection: it ends the stream or begins another attempt. Without an error, the connection ended cleanly.
    fn on_end(&mut self, end: End, flow: &mut Flow<Self>) -> Result<(), ClientError>;

    /// Handles the failure of another request of the source.
    fn on_failure(&mut self, error: ClientError) -> Result<(), ClientError> {
        Err(error)
    }
}

/// An event as it was sent. The id is empty if the event has none.
#[derive(Debug)]
pub(crate) struct SseEvent {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: String,
}

#[derive(Debug)]
pub(crate) struct End {
    /// Why the connection broke; `None` if it ended cleanly.
    pub(crate) error: Option<ClientError>,
    /// Whether it was a stream, not a list.
    pub(crate) was_live: bool,
}

/// The state of a stream between its connections.
pub(crate) struct Flow<S: StreamSource> {
    options: Options,
    connection: Option<SseConnection>,
    pending: Option<(PendingKind, Pending<S::Reply>)>,
    ready: VecDeque<S::Item>,
    /// Attempts to connect since the server's last heartbeat or event.
    pub(crate) attempts: u32,
    /// Successful attempts in a row that delivered nothing. They also increase the delay.
    pub(crate) idle: u32,
    /// Connections in a row that ended soon and delivered little. They also increase the delay.
    short_connections: u32,
    /// Whether a connection was tried before, so that the next attempt waits.
    pub(crate) tried: bool,
    /// The delay before the next attempt that the server requests.
    retry: Option<Duration>,
    /// The bytes that yielded no item, of all connections.
    unused_bytes: u64,
    pub(crate) done: bool,
}

/// The kind of the pending request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PendingKind {
    /// The stream.
    Connection,
    /// Another request of the source.
    Other,
}

/// One connection, or a list of events instead.
struct SseConnection {
    body: Option<ResponseBody>,
    list: OwnedItems,
    decoder: Decoder,
    ready: VecDeque<Item>,
    opened: Instant,
    /// The items that this connection delivered.
    items: u32,
}

// === impl Resumable ===

impl<S: StreamSource> Resumable<S> {
    pub(crate) fn new(source: S, options: Options) -> Self {
        let flow = Flow {
            options,
            connection: None,
            pending: None,
            ready: VecDeque::new(),
            attempts: 0,
            idle: 0,
            short_connections: 0,
            tried: false,
            retry: None,
            unused_bytes: 0,
            done: false,
        };
        Self { source, flow }
    }

    /// Returns the next item. The state is kept here, so dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<S::Item>, ClientError> {
        std::future::poll_fn(|context| self.poll_next(context)).await.transpose()
    }

    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<S::Item, ClientError>>> {
        let Self { source, flow } = self;
        loop {
            if let Some(item) = flow.ready.pop_front() {
                return Poll::Ready(Some(Ok(item)));
            }
            if flow.done {
                return Poll::Ready(None);
            }
            let step = if flow.pending.is_some() {
                ready!(flow.poll_pending(source, context)).map(|()| None)
            } else if let Some(connection) = &mut flow.connection {
                let next = connection.poll_next(context);
                let skipped = connection.decoder.take_skipped_bytes();
                if let Err(error) = flow.count_unused(skipped) {
                    return Poll::Ready(Some(Err(error)));
                }
                let Some(connection) = &mut flow.connection else { continue };
                match ready!(next) {
                    Ok(item) => flow.take(source, item),
                    Err(error) => {
                        let was_live = connection.body.is_some();
                        flow.disconnect();
                        if let Err(error) = flow.count_unused(0) {
                            return Poll::Ready(Some(Err(error)));
                        }
                        source.on_end(End { error, was_live }, flow).map(|()| None)
                    }
                }
            } else {
                flow.connect(source);
                Ok(None)
            };
            match step {
                Ok(None) => {}
                Ok(Some(item)) => return Poll::Ready(Some(Ok(item))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

// === impl Flow ===

impl<S: StreamSource> Flow<S> {
    pub(crate) fn read(&mut self, response: Response) -> Result<(), ClientError> {
        let body = Some(stream_body(response)?);
        self.connection = Some(SseConnection::new(body, OwnedItems::default(), &self.options));
        self.tried = true;
        Ok(())
    }

    /// Reads these events instead of a stream.
    pub(crate) fn read_list(&mut self, list: OwnedItems) {
        self.connection = Some(SseConnection::new(None, list, &self.options));
    }

    /// Sends another request before the next attempt to connect.
    pub(crate) fn ask(&mut self, answer: Pending<S::Reply>) {
        self.pending = Some((PendingKind::Other, answer));
    }

    /// Adds an item that does not come from an event.
    pub(crate) fn give(&mut self, item: S::Item) {
        self.ready.push_back(item);
    }

    /// Ends the connection. Another one follows unless the stream is done.
    pub(crate) fn disconnect(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.decoder.drop_unfinished();
            let skipped = connection.decoder.take_skipped_bytes();
            self.unused_bytes = self.unused_bytes.saturating_add(skipped);
            if connection.is_short() {
                self.short_connections = self.short_connections.saturating_add(1);
            } else {
                self.short_connections = 0;
            }
        }
    }

    /// Starts again at once, because the caller has answered the run. Drops the pending request and the unread items.
    pub(crate) fn restart(&mut self) {
        self.reconnect();
        self.tried = false;
        (self.attempts, self.idle, self.short_connections) = (0, 0, 0);
    }

    /// Continues with another connection, after the delay of one that broke. Drops the pending request and the unread items.
    pub(crate) fn reconnect(&mut self) {
        self.disconnect();
        self.pending = None;
        (self.tried, self.done) = (true, false);
        self.ready.clear();
    }

    /// Counts bytes that yielded no item. Fails and ends the stream when there were too many: another connection would bring more of them.
    fn count_unused(&mut self, bytes: u64) -> Result<(), ClientError> {
        self.unused_bytes = self.unused_bytes.saturating_add(bytes);
        let most = self.options.max_unused_stream_bytes;
        if self.unused_bytes <= most {
            return Ok(());
        }
        (self.done, self.connection) = (true, None);
        Err(ClientError::Unexpected(format!(
            "an event stream with more than {most} bytes of comments and skipped events"
        )))
    }

    pub(crate) fn gives_up(&self) -> bool {
        self.attempts >= self.options.attempts
    }

    fn take(&mut self, source: &mut S, item: Item) -> Result<Option<S::Item>, ClientError> {
        match item {
            Item::Event { data, .. } if is_too_complex(data.as_bytes(), DEFAULT_MAX_TREE_BYTES) => {
                Err(too_complex())
            }
            Item::Event { id, event: name, data } => {
                let bytes = (id.len() + name.len() + data.len()) as u64;
                let item = source.on_event(SseEvent { id, name, data }, self)?;
                if let (Some(_), Some(connection)) = (&item, &mut self.connection) {
                    connection.items = connection.items.saturating_add(1);
                }
                if item.is_none() && self.ready.is_empty() {
                    self.count_unused(bytes)?;
                }
                Ok(item)
            }
            Item::Retry(millis) => {
                self.retry = Some(Duration::from_millis(millis));
                Ok(None)
            }
            Item::Comment(text) => {
                source.on_comment(&text, self);
                Ok(None)
            }
        }
    }

    fn poll_pending(
        &mut self,
        source: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ClientError>> {
        let Some((question, answer)) = &mut self.pending else { return Poll::Ready(Ok(())) };
        let (question, answer) = (*question, ready!(answer.as_mut().poll(context)));
        self.pending = None;
        Poll::Ready(match (question, answer) {
            (_, Ok(reply)) => source.on_reply(reply, self),
            (PendingKind::Connection, Err(error)) if error.is_transient() && !self.gives_up() => {
                Ok(())
            }
            (PendingKind::Connection, Err(error)) => Err(error),
            (PendingKind::Other, Err(error)) => source.on_failure(error),
        })
    }

    fn connect(&mut self, source: &mut S) {
        // A single connection that broke early is common, and its events are not delayed.
        let short = self.short_connections.saturating_sub(1);
        let failed = self.attempts.max(self.idle).max(short);
        let wait = std::mem::replace(&mut self.tried, true)
            .then(|| self.options.wait_after(failed, self.retry));
        self.attempts = self.attempts.saturating_add(1);
        let answer = source.connect();
        let answer = async move {
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
            answer.await
        };
        self.pending = Some((PendingKind::Connection, Box::pin(answer)));
    }
}

impl<S: StreamSource> fmt::Debug for Flow<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow")
            .field("is_connected", &self.connection.is_some())
            .field("attempts", &self.attempts)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

// === impl SseConnection ===

impl SseConnection {
    fn new(body: Option<ResponseBody>, list: OwnedItems, options: &Options) -> Self {
        let decoder = Decoder::new(options.stream_limits);
        let (ready, opened) = (VecDeque::new(), Instant::now());
        Self { body, list, decoder, ready, opened, items: 0 }
    }

    /// Returns `true` for a stream that delivered so little that a server which ends each one like this would get too many requests.
    /// Lists are polled with a delay of their own.
    fn is_short(&self) -> bool {
        self.body.is_some()
            && self.items < SHORT_CONNECTION_ITEMS
            && self.opened.elapsed() < SHORT_CONNECTION_TIME
    }

    /// Returns the next item. The error is the cause of the break, or `None` at a clean end.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Item, Option<ClientError>>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Poll::Ready(Ok(item));
            }
            if let Some(data) = self.list.next() {
                let (id, event) = (String::new(), String::new());
                return Poll::Ready(Ok(Item::Event { id, event, data }));
            }
            let Some(body) = &mut self.body else { return Poll::Ready(Err(None)) };
            match ready!(body.poll_next_unpin(context)) {
                None => return Poll::Ready(Err(None)),
                Some(Err(error)) => return Poll::Ready(Err(Some(error.into()))),
                Some(Ok(piece)) => self.decoder.push(&piece),
            }
            loop {
                match self.decoder.next() {
                    Ok(Some(item)) => self.ready.push_back(item),
                    Ok(None) => break,
                    Err(error) => {
                        let error = ClientError::Unexpected(error.to_string());
                        return Poll::Ready(Err(Some(error)));
                    }
                }
            }
        }
    }
}

pub(crate) fn is_stream(response: &Response) -> bool {
    response.content_type.as_deref().is_some_and(|kind| kind.starts_with(EVENT_STREAM))
}

pub(crate) fn no_stream(response: &Response) -> ClientError {
    let kind = response.content_type.as_deref().unwrap_or("no content type");
    ClientError::Unexpected(format!("no event stream but {}", kind.escape_debug()))
}

fn stream_body(response: Response) -> Result<ResponseBody, ClientError> {
    if is_stream(&response) { Ok(response.body) } else { Err(no_stream(&response)) }
}

/// Implements `Stream` and `next` for a type with a field `stream`.
macro_rules! impl_stream {
    ($name:ty, $item:ty) => {
        impl $name {
            /// Returns the next item; `None` at the end. Cancel safe: dropping the future loses nothing.
            ///
            /// # Errors
            /// The server's error; a response that cannot be understood; a server that is unavailable for [`Options::attempts`](crate::client::Options::attempts) attempts.
            pub async fn next(&mut self) -> Result<Option<$item>, crate::client::ClientError> {
                self.stream.next().await
            }
        }

        impl futures_util::Stream for $name {
            type Item = Result<$item, crate::client::ClientError>;

            fn poll_next(
                mut self: std::pin::Pin<&mut Self>,
                context: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Self::Item>> {
                self.stream.poll_next(context)
            }
        }
    };
}
pub(crate) use impl_stream;
