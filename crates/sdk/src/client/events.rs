//! Event streams that go on after a break.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt;
use trilogue_wire::native::{Event, EventBody, Gap, Problem};
use trilogue_wire::sse::{Decoder, Item};

use super::call::{Call, succeeded};
use super::error::ClientError;
use super::new_run::NewRun;
use super::transport::{Body, Method};
use super::{Client, Options};

/// A stream of events in order, each once. A break is healed by asking again after the last event that came.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    of: Of,
    /// The last id that came: what to resume after.
    cursor: Option<String>,
    connection: Option<Connection>,
    /// Attempts to connect since the server's last sign of life.
    attempts: u32,
    /// Whether a connection was tried before, so that the next attempt waits.
    tried: bool,
    /// How long the server wants us to wait before the next attempt.
    retry: Option<Duration>,
    done: bool,
}

/// What a stream gives.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamItem {
    /// An event.
    Event {
        /// The event.
        event: Box<Event>,
        /// The event as the server wrote it.
        json: String,
    },
    /// Events before the oldest that is kept were asked for.
    Gap(Gap),
}

/// Whose events.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Of {
    Run(String),
    /// Of a run that is found again by sending its request again, until an event names it.
    New(Box<NewRun>),
    Thread(String),
}

struct Connection {
    body: Body,
    decoder: Decoder,
    ready: VecDeque<Item>,
    /// Whether it gave an event.
    gave: bool,
}

/// How a connection ended.
enum Break {
    /// As HTTP wants.
    Clean,
    /// In between, or the server said that it will be back.
    Torn(ClientError),
}

// === impl EventStream ===

impl EventStream {
    pub(super) fn new(client: Client, of: Of, after: Option<String>) -> Self {
        Self {
            client,
            of,
            cursor: after,
            connection: None,
            attempts: 0,
            tried: false,
            retry: None,
            done: false,
        }
    }

    /// A stream whose first connection is open already.
    pub(super) fn opened(client: Client, of: Of, body: Body) -> Self {
        let connection = Some(Connection::new(body, client.options()));
        Self { connection, tried: true, ..Self::new(client, of, None) }
    }

    /// The position after the last event that came: what a later stream can begin after.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The next item; `None` after a run's last event. A thread's stream has no end of its own.
    ///
    /// May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// When the server refuses the stream, when what it says cannot be understood, and when it stays away for [`Options::attempts`] attempts.
    pub async fn next(&mut self) -> Result<Option<StreamItem>, ClientError> {
        while !self.done {
            if self.connection.is_none() {
                self.connect().await?;
            }
            let Some(connection) = &mut self.connection else { continue };
            match connection.next().await {
                Ok(item) => {
                    if let Some(item) = self.take(item)? {
                        return Ok(Some(item));
                    }
                }
                Err(broken) => self.broken(broken).await?,
            }
        }
        Ok(None)
    }

    /// Turns an item of the wire into one of ours.
    fn take(&mut self, item: Item) -> Result<Option<StreamItem>, ClientError> {
        let (id, name, data) = match item {
            Item::Event { id, event, data } => (id, event, data),
            Item::Retry(millis) => {
                self.retry = Some(Duration::from_millis(millis));
                return Ok(None);
            }
            Item::Comment(_) => {
                self.attempts = 0;
                return Ok(None);
            }
        };
        let unexpected = |error: serde_json::Error| ClientError::Unexpected(error.to_string());
        match name.as_str() {
            "gap" => Ok(Some(StreamItem::Gap(serde_json::from_str(&data).map_err(unexpected)?))),
            "error" => {
                let problem: Problem = serde_json::from_str(&data).map_err(unexpected)?;
                let error = ClientError::Problem(Box::new(problem));
                if !error.is_transient() {
                    self.done = true;
                    return Err(error);
                }
                self.connection = None;
                if self.attempts >= self.client.options().attempts { Err(error) } else { Ok(None) }
            }
            _ => {
                let event: Event = serde_json::from_str(&data).map_err(unexpected)?;
                self.cursor = Some(if id.is_empty() { event.id.clone() } else { id });
                self.attempts = 0;
                if let (Of::New(_), Some(run)) = (&self.of, &event.run_id) {
                    self.of = Of::Run(run.clone());
                }
                self.done = matches!((&self.of, &event.body), (Of::Run(_), EventBody::RunEnded(_)));
                Ok(Some(StreamItem::Event { event: Box::new(event), json: data }))
            }
        }
    }

    /// Decides what a break means: the end, or another attempt.
    async fn broken(&mut self, broken: Break) -> Result<(), ClientError> {
        let gave = self.connection.take().is_some_and(|connection| connection.gave);
        match (broken, &self.of) {
            (Break::Clean, Of::Run(run)) if !gave => {
                // Nothing came and nothing broke: perhaps the cursor was the end already.
                let run = self.client.run(run).await?;
                self.done = run.status.is_terminal();
            }
            (Break::Clean, Of::New(_)) if self.attempts >= self.client.options().attempts => {
                let empty = "the stream of a new run has no event".to_owned();
                return Err(ClientError::Unexpected(empty));
            }
            (Break::Clean, _) => {}
            (Break::Torn(error), _) if self.attempts >= self.client.options().attempts => {
                return Err(error);
            }
            (Break::Torn(_), _) => {}
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let attempts = self.client.options().attempts;
        loop {
            if std::mem::replace(&mut self.tried, true) {
                let wait = self.client.options().wait_after(self.attempts, self.retry);
                tokio::time::sleep(wait).await;
            }
            self.attempts = self.attempts.saturating_add(1);
            match self.open().await {
                Ok(body) => {
                    self.connection = Some(Connection::new(body, self.client.options()));
                    return Ok(());
                }
                Err(error) if error.is_transient() && self.attempts < attempts => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn open(&self) -> Result<Body, ClientError> {
        let segments = match &self.of {
            Of::New(new) => return stream(&self.client, new.stream_call(&self.client)?).await,
            Of::Run(run) => ["runs", run, "events"],
            Of::Thread(thread) => ["threads", thread, "events"],
        };
        let mut call = self.client.call(Method::Get, &segments).header("accept", EVENT_STREAM);
        if let Some(cursor) = &self.cursor {
            call = call.header("last-event-id", cursor);
        }
        stream(&self.client, call).await
    }
}

/// The content type of event streams.
pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// Sends a call whose response is an event stream.
pub(super) async fn stream(client: &Client, call: Call) -> Result<Body, ClientError> {
    let response = succeeded(client.transport().send(call.into_request()).await?).await?;
    match response.content_type.as_deref() {
        Some(kind) if kind.starts_with(EVENT_STREAM) => Ok(response.body),
        other => Err(ClientError::Unexpected(format!("no event stream but {other:?}"))),
    }
}

// === impl Connection ===

impl Connection {
    fn new(body: Body, options: &Options) -> Self {
        let decoder = Decoder::new(options.stream_limits);
        Self { body, decoder, ready: VecDeque::new(), gave: false }
    }

    /// Cancel-safe: what was read is in the decoder or in the queue.
    async fn next(&mut self) -> Result<Item, Break> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.gave |= matches!(item, Item::Event { .. });
                return Ok(item);
            }
            match self.body.next().await {
                None => return Err(Break::Clean),
                Some(Err(error)) => return Err(Break::Torn(error.into())),
                Some(Ok(piece)) => self.push(&piece)?,
            }
        }
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), Break> {
        self.decoder.push(piece);
        let broken = |error: trilogue_wire::sse::Error| {
            Break::Torn(ClientError::Unexpected(error.to_string()))
        };
        while let Some(item) = self.decoder.next().map_err(broken)? {
            self.ready.push_back(item);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("gave", &self.gave).finish_non_exhaustive()
    }
}
