use std::time::Duration;

use serde_json::value::RawValue;
use trilogue_wire::agent_communication::{Event, EventKind, RunMode, RunStatus, Uuid};

use super::source::{self, Given, Source, ends_run, is_stream, no_stream};
use super::{Answer, Client, NewRun, read};
use crate::client::call::Call;
use crate::client::events::EVENT_STREAM;
use crate::client::{ClientError, Method, Refusal, Response};

/// The events of a run in order, each once, until the run has ended or awaits an answer. A break is healed.
///
/// A server that gives its events ids is asked for those after the last; of another, the list of the run's events is read until there is something new.
#[derive(Debug)]
pub struct RunStream {
    client: Client,
    run: Option<Uuid>,
    /// What creates the run: sent again while nobody has said which run it is, where it has a key.
    create: Option<Box<NewRun>>,
    /// The id of the last event, where the server gives ids.
    cursor: Option<String>,
    /// How many events the run had up to the last that came; `None` where the stream began after an id.
    seen: Option<usize>,
    /// How many events come that came before.
    repeated: usize,
    source: Option<Source>,
    /// The type of the last event.
    last: Option<EventKind>,
    /// Attempts since the server's last sign of life.
    attempts: u32,
    /// How often the list had nothing new in a row.
    idle: u32,
    /// Whether the server was asked before, so that the next attempt waits.
    tried: bool,
    /// How long the server wants us to wait before the next attempt.
    retry: Option<Duration>,
    done: bool,
}

/// One event of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Streamed {
    /// The event.
    pub event: Event,
    /// The event as the server wrote it.
    pub json: String,
}

// === impl RunStream ===

impl RunStream {
    pub(super) async fn create(client: Client, new: NewRun) -> Result<Self, ClientError> {
        let call = new.call(&client, RunMode::Stream)?;
        let response = client.send(call.header("accept", EVENT_STREAM)).await?;
        let mut stream = Self::new(client, None);
        stream.create = new.idempotency_key.is_some().then(|| Box::new(new));
        stream.began(response)?;
        Ok(stream)
    }

    pub(super) async fn resumed(
        client: Client,
        run: Uuid,
        answer: Answer,
    ) -> Result<Self, ClientError> {
        let mut stream = Self::new(client, Some(run));
        stream.seen = Some(stream.list().await?.len());
        stream.resume(answer).await?;
        Ok(stream)
    }

    pub(super) fn follow(client: Client, run: Uuid, after: Option<&str>) -> Self {
        let cursor = after.map(str::to_owned);
        let seen = cursor.is_none().then_some(0);
        Self { cursor, seen, tried: false, ..Self::new(client, Some(run)) }
    }

    fn new(client: Client, run: Option<Uuid>) -> Self {
        Self {
            client,
            run,
            create: None,
            cursor: None,
            seen: Some(0),
            repeated: 0,
            source: None,
            last: None,
            attempts: 0,
            idle: 0,
            tried: true,
            retry: None,
            done: false,
        }
    }

    /// The run, as soon as the server has named it.
    #[must_use]
    pub fn run(&self) -> Option<Uuid> {
        self.run
    }

    /// The id of the last event, where the server gives ids: what a later stream can begin after.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Answers what the run awaits; the stream goes on with what it does then.
    ///
    /// # Errors
    /// What the server refuses; a run that nobody has named yet.
    pub async fn resume(&mut self, answer: impl Into<Answer>) -> Result<(), ClientError> {
        let Some(run) = self.run else {
            return Err(ClientError::Unexpected("no event has named the run yet".to_owned()));
        };
        let call = answer.into().call(&self.client, run, RunMode::Stream)?;
        let response = self.client.send(call.header("accept", EVENT_STREAM)).await?;
        (self.last, self.done) = (None, false);
        self.began(response)
    }

    /// Goes on after a question without answering it: somebody else does, or did.
    pub fn wait_on(&mut self) {
        if self.last == Some(EventKind::RunAwaiting) {
            (self.last, self.done) = (None, false);
        }
    }

    /// The next event; `None` when the run has ended, or awaits an answer and nobody has given one.
    ///
    /// May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// An `error` event; what the server refuses or says in a way that cannot be understood; a server that stays away for [`Options::attempts`](crate::client::Options::attempts) attempts.
    pub async fn next(&mut self) -> Result<Option<Streamed>, ClientError> {
        while !self.done {
            let Some(source) = &mut self.source else {
                self.connect().await?;
                continue;
            };
            match source.next().await {
                Given::Event { id, json } => {
                    if let Some(event) = self.take(id, json)? {
                        return Ok(Some(event));
                    }
                }
                Given::Retry(delay) => self.retry = Some(delay),
                Given::SignOfLife => self.attempts = 0,
                Given::End => self.broken(None).await?,
                Given::Torn(error) => self.broken(Some(error)).await?,
            }
        }
        Ok(None)
    }

    /// Takes the stream of a request that starts something: it shows what happens from now on.
    fn began(&mut self, response: Response) -> Result<(), ClientError> {
        if !is_stream(&response) {
            return Err(no_stream(&response));
        }
        let named = response.run_id.as_deref().and_then(|id| id.parse().ok());
        self.run = self.run.or(named);
        self.repeated = 0;
        self.source = Some(Source::live(response.body, self.client.options(), true));
        Ok(())
    }

    /// Takes in what a source gave; `None` for what came before.
    fn take(&mut self, id: String, json: String) -> Result<Option<Streamed>, ClientError> {
        if self.repeated > 0 {
            self.repeated -= 1;
            return Ok(None);
        }
        let event: Event = read(json.as_bytes())?;
        if let Event::Error { error } = event {
            return self.refused(Refusal::new(None, error)).map(|()| None);
        }
        if let Some(run) = event.run() {
            self.run = Some(run.run_id);
        }
        if !id.is_empty() {
            self.cursor = Some(id);
        }
        self.seen = self.seen.map(|seen| seen.saturating_add(1));
        (self.attempts, self.idle) = (0, 0);
        let kind = event.kind();
        self.last = Some(kind);
        let is_present = matches!(&self.source, Some(Source::Live { is_present: true, .. }));
        self.done = kind.ends_run() || (is_present && kind == EventKind::RunAwaiting);
        if self.done {
            self.source = None;
        }
        Ok(Some(Streamed { event, json }))
    }

    /// The stream ended with an error: one that passes is a break like any other.
    fn refused(&mut self, refusal: Refusal) -> Result<(), ClientError> {
        let error = ClientError::Refused(Box::new(refusal));
        self.source = None;
        let gives_up = self.attempts >= self.client.options().attempts;
        if error.is_transient() && !gives_up && self.is_findable() {
            return Ok(());
        }
        self.done = true;
        Err(error)
    }

    /// Decides what the end of a source means: the end, or another attempt. `None` where it ended as HTTP wants.
    async fn broken(&mut self, torn: Option<ClientError>) -> Result<(), ClientError> {
        let was_live = matches!(self.source.take(), Some(Source::Live { .. }));
        let asked = self.last == Some(EventKind::RunAwaiting);
        if asked && torn.is_none() {
            // Nothing came after the question, so it is still open.
            self.done = true;
            return Ok(());
        }
        let gives_up = self.attempts >= self.client.options().attempts || !self.is_findable();
        // Nothing came and nothing broke: perhaps there is nothing more to come.
        let silent = was_live && torn.is_none() && self.attempts > 0;
        match (torn, self.run) {
            (Some(error), _) if gives_up => Err(error),
            (None, None) if gives_up => {
                Err(ClientError::Unexpected("the stream of a new run has no event".to_owned()))
            }
            (_, Some(run)) if asked || silent => {
                let status = self.client.run(run).await?.status;
                self.done = status.is_terminal() || (asked && status == RunStatus::Awaiting);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether the run can be asked for again.
    fn is_findable(&self) -> bool {
        self.run.is_some() || self.create.is_some()
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let attempts = self.client.options().attempts;
        loop {
            if std::mem::replace(&mut self.tried, true) {
                let failed = self.attempts.max(self.idle);
                let wait = self.client.options().wait_after(failed, self.retry);
                tokio::time::sleep(wait).await;
            }
            self.attempts = self.attempts.saturating_add(1);
            match self.open().await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() && self.attempts < attempts => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn open(&mut self) -> Result<(), ClientError> {
        let Some(run) = self.run else {
            let Some(new) = &self.create else {
                return Err(ClientError::Unexpected(
                    "the stream broke before its run was known".to_owned(),
                ));
            };
            let call = new.call(&self.client, RunMode::Stream)?.header("accept", EVENT_STREAM);
            let response = self.client.send(call).await?;
            return self.began(response);
        };
        let response = self.client.send(self.events_call(run)).await?;
        if is_stream(&response) {
            self.repeated = if self.cursor.is_some() { 0 } else { self.seen.unwrap_or(0) };
            self.source = Some(Source::live(response.body, self.client.options(), false));
            return Ok(());
        }
        let Some(seen) = self.seen else {
            return Err(no_stream(&response));
        };
        let mut events = source::list(response, self.client.options().max_response_bytes).await?;
        let news = events.split_off(seen.min(events.len()));
        self.attempts = 0;
        self.idle = self.idle.saturating_add(1);
        if news.is_empty() {
            // A question at its end is one that was answered, and the server has not shown that yet.
            self.done = events.last().is_some_and(|event| ends_run(event));
        }
        self.source = Some(Source::Listed(news.into()));
        Ok(())
    }

    fn events_call(&self, run: Uuid) -> Call {
        let segments = ["runs", &run.to_string(), "events"];
        let call = self.client.call(Method::Get, &segments).header("accept", EVENT_STREAM);
        match &self.cursor {
            Some(cursor) => call.header("last-event-id", cursor),
            None => call,
        }
    }

    /// The events of the run so far.
    async fn list(&self) -> Result<Vec<Box<RawValue>>, ClientError> {
        let Some(run) = self.run else { return Ok(Vec::new()) };
        let call = self.client.call(Method::Get, &["runs", &run.to_string(), "events"]);
        let response = self.client.send(call.header("accept", "application/json")).await?;
        source::list(response, self.client.options().max_response_bytes).await
    }
}
