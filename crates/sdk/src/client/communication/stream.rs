use serde::Deserialize;
use serde_json::value::RawValue;
use trilogue_wire::agent_communication::{Event, EventKind, Run, RunMode, RunStatus, Uuid};
use trilogue_wire::json::OwnedItems;

use super::{Client, NewRun, Resume, read};
use crate::client::call::RequestBuilder;
use crate::client::resumable::{
    EVENT_STREAM, End, Flow, Pending, Resumable, SseEvent, StreamSource, impl_stream, is_stream,
    no_stream,
};
use crate::client::{ClientError, Method, Refusal, Response};

/// The events of a run in order, each once, until the run has ended or awaits an answer. The stream continues after a break.
///
/// If the server sends event ids, a reconnect resumes after the last id. Otherwise the client polls the list of the run's events until it contains new ones.
#[derive(Debug)]
pub struct RunStream {
    stream: Resumable<RunSource>,
}

/// One event of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamedEvent {
    /// The event.
    pub event: Event,
    /// The event as the server wrote it.
    pub json: String,
}

// === impl StreamedEvent ===

impl StreamedEvent {
    /// Returns the next piece of the agent's text, if this is one. Artifacts are not.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.event {
            Event::MessagePart { part } => part.as_text(),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct RunSource {
    client: Client,
    run: Option<Uuid>,
    /// The run as it was when it was created or answered without a stream.
    held: Option<Box<Run>>,
    /// Whether the server lists no events, so that the client polls the run instead.
    is_polled: bool,
    /// The request that creates the run, if it has a key. It is sent again until the server has named the run.
    create: Option<Box<NewRun>>,
    /// The id of the last event, if the server sends ids.
    cursor: Option<String>,
    /// The number of events of the run up to the last received one; `None` if the stream began after an id.
    seen: Option<usize>,
    /// The number of next events that were already received.
    repeated: usize,
    /// Whether the connection shows the present. Then a run that awaits an answer still awaits it.
    is_present: bool,
    /// The type of the last event.
    last: Option<EventKind>,
}

enum RunReply {
    /// The stream of a request that started a run or answered it.
    Started(Response),
    /// The stream of an existing run.
    Joined(Response),
    /// The run's events so far, instead of a stream.
    Listed(OwnedItems),
    Status(RunStatus),
    /// The run, instead of its events.
    Polled(Run),
}

/// The list of a run's events, as the server wrote them.
#[derive(Deserialize)]
struct EventList<'a> {
    #[serde(borrow)]
    events: &'a RawValue,
}

impl_stream!(RunStream, StreamedEvent);

// === impl RunStream ===

impl RunStream {
    pub(super) async fn create(client: Client, new: NewRun) -> Result<Self, ClientError> {
        let call = new.call(&client, RunMode::Stream)?;
        let response = client.send(call.header("accept", EVENT_STREAM)).await?;
        if !is_stream(&response) {
            let run = read(&client.endpoint().whole(response).await?);
            return Ok(Self::of_run(client, run.map_err(|error| not_streamed(&error))?));
        }
        let mut this = Self::new(client, None);
        this.stream.source.create = new.idempotency_key.is_some().then(|| Box::new(new));
        this.accept_response(response)?;
        Ok(this)
    }

    pub(super) async fn resumed(
        client: Client,
        run: Uuid,
        answer: Resume,
        mode: RunMode,
    ) -> Result<Self, ClientError> {
        let mut this = Self::after_now(client, run).await?;
        this.resume_as(answer, mode).await?;
        Ok(this)
    }

    /// Returns a stream of the run's events after now.
    async fn after_now(client: Client, run: Uuid) -> Result<Self, ClientError> {
        let segments = ["runs", &run.to_string(), "events"];
        let call = client.call(Method::Get, &segments).header("accept", "application/json");
        let before = match client.bytes(call).await {
            Ok(events) => Some(list(&events)?.count()),
            Err(error) if lists_no_events(&error) => None,
            Err(error) => return Err(error),
        };
        let mut this = Self::new(client, Some(run));
        this.stream.source.seen = Some(before.unwrap_or_default());
        this.stream.source.is_polled = before.is_none();
        Ok(this)
    }

    /// Returns a stream for a run that was created without one.
    pub(super) fn of_run(client: Client, run: Run) -> Self {
        let mut this = Self::follow(client, run.run_id, None);
        this.stream.source.held = Some(Box::new(run));
        this
    }

    pub(super) fn follow(client: Client, run: Uuid, after: Option<&str>) -> Self {
        let mut this = Self::new(client, Some(run));
        this.stream.source.cursor = after.map(str::to_owned);
        this.stream.source.seen = after.is_none().then_some(0);
        this
    }

    fn new(client: Client, run: Option<Uuid>) -> Self {
        let options = client.options().clone();
        let source = RunSource {
            client,
            run,
            held: None,
            is_polled: false,
            create: None,
            cursor: None,
            seen: Some(0),
            repeated: 0,
            is_present: false,
            last: None,
        };
        Self { stream: Resumable::new(source, options) }
    }

    /// Returns the run's id, after the server has named it.
    #[must_use]
    pub fn run(&self) -> Option<Uuid> {
        self.stream.source.run
    }

    /// Returns the id of the last event, if the server sends ids. A later stream can begin after it.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.stream.source.cursor.as_deref()
    }

    /// Answers the run. The stream continues with its further events.
    ///
    /// # Errors
    /// The server's error; an error if the server has not named the run yet.
    pub async fn resume(&mut self, answer: impl Into<Resume>) -> Result<(), ClientError> {
        let source = &mut self.stream.source;
        let Some(run) = source.run else {
            return Err(ClientError::Unexpected("no event has named the run yet".to_owned()));
        };
        let call = answer.into().call(&source.client, run, RunMode::Stream)?;
        let response = source.client.send(call.header("accept", EVENT_STREAM)).await?;
        source.last = None;
        self.stream.flow.restart();
        if !is_stream(&response) {
            let run = read(&source.client.endpoint().whole(response).await?);
            source.held = Some(Box::new(run.map_err(|error| not_streamed(&error))?));
            return Ok(());
        }
        self.accept_response(response)
    }

    /// Answers like [`RunStream::resume`], in another mode, for a server without streaming.
    ///
    /// # Errors
    /// Like [`RunStream::resume`].
    pub async fn resume_as(
        &mut self,
        answer: impl Into<Resume>,
        mode: RunMode,
    ) -> Result<(), ClientError> {
        let source = &mut self.stream.source;
        let Some(run) = source.run else {
            return Err(ClientError::Unexpected("no event has named the run yet".to_owned()));
        };
        let resumed = match mode {
            RunMode::Stream => return self.resume(answer).await,
            RunMode::Async => source.client.resume_async(run, answer).await,
            RunMode::Sync => source.client.resume_sync(run, answer).await,
        };
        source.held = Some(Box::new(resumed?));
        source.last = None;
        self.stream.flow.restart();
        Ok(())
    }

    /// Continues after a question without answering it, because another client answers it.
    pub fn wait_on(&mut self) {
        let Resumable { source, flow } = &mut self.stream;
        if source.last == Some(EventKind::RunAwaiting) {
            source.last = None;
            flow.done = false;
        }
    }

    fn accept_response(&mut self, response: Response) -> Result<(), ClientError> {
        let Resumable { source, flow } = &mut self.stream;
        source.on_reply(RunReply::Started(response), flow)
    }
}

// === impl RunSource ===

impl StreamSource for RunSource {
    type Item = StreamedEvent;
    type Reply = RunReply;

    fn connect(&mut self) -> Pending<RunReply> {
        let client = self.client.clone();
        let Some(run) = self.run else {
            let create = self.create.as_ref();
            let call = create.map(|new| new.call(&client, RunMode::Stream));
            return Box::pin(async move {
                let Some(call) = call else {
                    let message = "the stream broke before its run was known".to_owned();
                    return Err(ClientError::Unexpected(message));
                };
                client.send(call?.header("accept", EVENT_STREAM)).await.map(RunReply::Started)
            });
        };
        if self.is_polled {
            return Box::pin(poll(client, run, self.held.take()));
        }
        let (call, can_list) = (self.events_call(run), self.seen.is_some());
        let held = if self.seen == Some(0) { self.held.clone() } else { None };
        Box::pin(async move {
            let response = match client.send(call).await {
                Err(error) if held.is_some() && lists_no_events(&error) => {
                    return poll(client, run, held).await;
                }
                response => response?,
            };
            if is_stream(&response) {
                return Ok(RunReply::Joined(response));
            }
            if !can_list {
                return Err(no_stream(&response));
            }
            list(&client.endpoint().whole(response).await?).map(RunReply::Listed)
        })
    }

    fn on_reply(&mut self, reply: RunReply, flow: &mut Flow<Self>) -> Result<(), ClientError> {
        match reply {
            RunReply::Started(response) => {
                let named = response.run_id.as_deref().and_then(|id| id.parse().ok());
                self.run = self.run.or(named);
                (self.repeated, self.is_present) = (0, true);
                flow.read(response)
            }
            RunReply::Joined(response) => {
                self.repeated = if self.cursor.is_some() { 0 } else { self.seen.unwrap_or(0) };
                self.is_present = false;
                flow.read(response)
            }
            RunReply::Listed(mut events) => {
                let seen = events.by_ref().take(self.seen.unwrap_or(0)).last();
                flow.attempts = 0;
                flow.idle = flow.idle.saturating_add(1);
                if events.is_empty() {
                    // If the list ends with a question, the question was answered and the server has not shown that yet.
                    flow.done = seen.is_some_and(|event| ends_run(&event));
                }
                self.is_present = false;
                flow.read_list(events);
                Ok(())
            }
            RunReply::Polled(run) => {
                (self.is_polled, self.is_present) = (true, true);
                flow.attempts = 0;
                flow.idle = flow.idle.saturating_add(1);
                let standing = Event::of_standing(run).map(|event| {
                    let mut json = Vec::new();
                    event.write(&mut json);
                    format!("[{}]", String::from_utf8_lossy(&json))
                });
                flow.read_list(standing.and_then(OwnedItems::new).unwrap_or_default());
                Ok(())
            }
            RunReply::Status(status) => {
                let is_asked = self.last == Some(EventKind::RunAwaiting);
                flow.done = status.is_terminal() || (is_asked && status == RunStatus::Awaiting);
                Ok(())
            }
        }
    }

    fn on_event(
        &mut self,
        event: SseEvent,
        flow: &mut Flow<Self>,
    ) -> Result<Option<StreamedEvent>, ClientError> {
        if self.repeated > 0 {
            self.repeated -= 1;
            return Ok(None);
        }
        let SseEvent { id, data: json, .. } = event;
        let event: Event = read(json.as_bytes())?;
        if let Event::Error { error } = event {
            return self.on_error(Refusal::new(None, error), flow).map(|()| None);
        }
        if let Some(run) = event.run() {
            self.run = Some(run.run_id);
        }
        if !id.is_empty() {
            self.cursor = Some(id);
        }
        self.seen = self.seen.map(|seen| seen.saturating_add(1));
        (flow.attempts, flow.idle) = (0, 0);
        let kind = event.kind();
        self.last = Some(kind);
        flow.done = kind.ends_run() || (self.is_present && kind == EventKind::RunAwaiting);
        if flow.done {
            flow.disconnect();
        }
        Ok(Some(StreamedEvent { event, json }))
    }

    fn on_end(&mut self, end: End, flow: &mut Flow<Self>) -> Result<(), ClientError> {
        let is_asked = self.last == Some(EventKind::RunAwaiting);
        if is_asked && end.error.is_none() {
            // Nothing followed the question, so it is still open.
            flow.done = true;
            return Ok(());
        }
        let gives_up = flow.gives_up() || !self.is_findable();
        // A clean end without an event: the run may have ended.
        let is_silent = end.was_live && end.error.is_none() && flow.attempts > 0;
        match (end.error, self.run) {
            (Some(error), _) if gives_up => Err(error),
            (None, None) if gives_up => {
                Err(ClientError::Unexpected("the stream of a new run has no event".to_owned()))
            }
            (_, Some(run)) if is_asked || is_silent => {
                let client = self.client.clone();
                flow.ask(Box::pin(async move {
                    client.run(run).await.map(|run| RunReply::Status(run.status))
                }));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl RunSource {
    /// Handles a stream that ended with an error. A transient error counts as a break.
    fn on_error(&self, refusal: Refusal, flow: &mut Flow<Self>) -> Result<(), ClientError> {
        let error = ClientError::Refused(Box::new(refusal));
        flow.disconnect();
        if error.is_transient() && !flow.gives_up() && self.is_findable() {
            return Ok(());
        }
        flow.done = true;
        Err(error)
    }

    /// Returns `true` if the client can request the run again.
    fn is_findable(&self) -> bool {
        self.run.is_some() || self.create.is_some()
    }

    fn events_call(&self, run: Uuid) -> RequestBuilder {
        let segments = ["runs", &run.to_string(), "events"];
        let call = self.client.call(Method::Get, &segments).header("accept", EVENT_STREAM);
        match &self.cursor {
            Some(cursor) => call.header("last-event-id", cursor),
            None => call,
        }
    }
}

/// Reads the run. Returns `held` if the server does not offer to read it.
async fn poll(client: Client, run: Uuid, held: Option<Box<Run>>) -> Result<RunReply, ClientError> {
    match (client.run(run).await, held) {
        (Ok(run), _) => Ok(RunReply::Polled(run)),
        (Err(error), Some(held)) if lists_no_events(&error) => Ok(RunReply::Polled(*held)),
        (Err(error), _) => Err(error),
    }
}

/// Returns `true` if the server does not list events.
fn lists_no_events(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if matches!(refusal.status, Some(404 | 405 | 501)))
}

fn not_streamed(error: &ClientError) -> ClientError {
    ClientError::Unexpected(format!("no event stream and no run: {error}"))
}

fn ends_run(event: &str) -> bool {
    read::<Event>(event.as_bytes()).is_ok_and(|event| event.kind().ends_run())
}

fn list(body: &[u8]) -> Result<OwnedItems, ClientError> {
    let unlisted = |why: &str| ClientError::Unexpected(format!("no list of events: {why}"));
    let list: EventList<'_> =
        serde_json::from_slice(body).map_err(|error| unlisted(&error.to_string()))?;
    OwnedItems::new(list.events.get()).ok_or_else(|| unlisted("`events` is not an array"))
}
