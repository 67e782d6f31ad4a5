use trilogue_wire::agent_connect::{ErrorUpdate, InterruptUpdate, Run, ValuesUpdate, sse};
use trilogue_wire::native::Json;

use super::new_run::Mode;
use super::seen_events::SeenEvents;
use super::{
    Client, Fault, NewRun, Resume, RunAt, RunOutput, RunStatus, RunWaitResponse, StreamPayload,
    fault, read,
};
use crate::client::call::RequestBuilder;
use crate::client::resumable::{
    EVENT_STREAM, End, Flow, Pending, Resumable, SseEvent, StreamSource, impl_stream,
};
use crate::client::{ClientError, Method, Response};

/// The number of heartbeats without an event before the client reads the run's status, because some servers never end a stream. Doubles each time.
const FIRST_CHECK: u32 = 6;
/// The number of connections without an event before the client waits for the run instead.
const MAX_EMPTY_CONNECTIONS: u32 = 2;
/// The id before all others. A client that sends it gets all events that the server still has.
const BEGINNING: &str = "0";

/// The events of a run in order, each once, until the run has ended or waits for an answer. The last event says which. The stream continues after a break.
///
/// Values replace each other, so some values may be missing after a break. If the server ends its streams without a last event, or has no streams, the client makes the last event from the run's output.
#[derive(Debug)]
pub struct RunStream {
    stream: Resumable<RunSource>,
}

/// One event of a stream.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamedEvent {
    /// The event's id, if the server sends one.
    pub id: Option<String>,
    /// The content of the event.
    pub event: StreamPayload,
    /// The event as the server wrote it.
    pub json: String,
}

// === impl StreamedEvent ===

impl StreamedEvent {
    /// Returns the agent's text so far, if the event has values. It replaces the text of the previous event.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match &self.event {
            StreamPayload::Values(update) => Some(update.text()),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct RunSource {
    client: Client,
    /// The thread of the run; `None` for a stateless run.
    thread: Option<String>,
    run: Option<String>,
    /// The request that creates the run, if it has a key. It is sent again until the server has named the run.
    create: Option<Box<NewRun>>,
    /// The id of the last event.
    cursor: Option<String>,
    /// Whether only new events are of interest. Applies until there is a cursor.
    only_new: bool,
    seen: SeenEvents,
    /// An id that was swallowed by a heartbeat without a line end.
    swallowed_id: Option<String>,
    /// The id of the previous event. An event without an id seems to have it.
    previous_id: String,
    /// The number of heartbeats since the last event.
    quiet: u32,
    /// The value of `quiet` at which the client reads the run's status.
    check_at: u32,
    state: RunState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunState {
    /// Events arrive.
    Open,
    /// The run waits for an answer.
    Interrupted,
    /// The run was still waiting at the last status check, and another client answers it.
    Waiting,
    /// The run has ended.
    Ended,
}

enum RunReply {
    /// The stream of a new or an existing run.
    Stream(Response),
    /// The run's status.
    Status(RunStatus),
    /// The run's output, after a wait for the run.
    Output(Box<RunWaitResponse>),
    /// The status is unavailable now.
    Unknown,
}

impl_stream!(RunStream, StreamedEvent);

// === impl RunStream ===

impl RunStream {
    pub(super) async fn create(client: Client, new: NewRun) -> Result<Self, ClientError> {
        let mut this = Self::new(client, new.thread.clone(), None);
        let Resumable { source, flow } = &mut this.stream;
        match source.client.start(&new, Mode::Stream).await {
            Ok(response) => {
                source.create = new.idempotency_key.is_some().then(|| Box::new(new));
                source.on_reply(RunReply::Stream(response), flow)?;
            }
            Err(error) if fault(&error).is_some_and(|fault| streams_nothing(fault, &new)) => {
                let waited = source.client.run_and_wait(new).await?;
                source.settle(waited, flow)?;
            }
            Err(error) => return Err(error),
        }
        Ok(this)
    }

    pub(super) fn awaited(client: Client, new: NewRun) -> Self {
        let mut this = Self::new(client.clone(), new.thread.clone(), None);
        this.stream.flow.ask(Box::pin(async move {
            client.run_and_wait(new).await.map(|output| RunReply::Output(Box::new(output)))
        }));
        this
    }

    pub(super) fn join(client: Client, at: RunAt, after: Option<&str>) -> Self {
        let mut this = Self::new(client, at.thread, Some(at.run));
        this.stream.source.cursor = after.map(str::to_owned);
        this
    }

    pub(super) fn resumed(client: Client, at: RunAt) -> Self {
        let mut this = Self::new(client, at.thread, Some(at.run));
        this.stream.source.only_new = true;
        this
    }

    fn new(client: Client, thread: Option<String>, run: Option<String>) -> Self {
        let options = client.options().clone();
        let source = RunSource {
            client,
            thread,
            run,
            create: None,
            cursor: None,
            only_new: false,
            seen: SeenEvents::default(),
            swallowed_id: None,
            previous_id: String::new(),
            quiet: 0,
            check_at: FIRST_CHECK,
            state: RunState::Open,
        };
        Self { stream: Resumable::new(source, options) }
    }

    /// Returns the run's address, after the server has named the run.
    #[must_use]
    pub fn run(&self) -> Option<RunAt> {
        self.stream.source.run_at()
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
        let Some(at) = self.run() else {
            return Err(ClientError::Unexpected("no event has named the run yet".to_owned()));
        };
        self.stream.source.client.resume(at, answer).await?;
        self.stream.source.state = RunState::Open;
        self.stream.flow.restart();
        Ok(())
    }

    /// Continues after a question without answering it, because another client answers it.
    pub fn wait_on(&mut self) {
        if self.stream.source.state == RunState::Interrupted {
            self.stream.source.state = RunState::Waiting;
            self.stream.flow.reconnect();
        }
    }
}

// === impl RunSource ===

impl StreamSource for RunSource {
    type Item = StreamedEvent;
    type Reply = RunReply;

    fn connect(&mut self) -> Pending<RunReply> {
        let client = self.client.clone();
        let Some(at) = self.run_at() else {
            let create = self.create.clone();
            return Box::pin(async move {
                let Some(new) = create else {
                    let message = "the stream broke before its run was known".to_owned();
                    return Err(ClientError::Unexpected(message));
                };
                client.start(&new, Mode::Stream).await.map(RunReply::Stream)
            });
        };
        let call = self.join_call(&at);
        Box::pin(async move {
            match client.send(call).await {
                Ok(response) => Ok(RunReply::Stream(response)),
                Err(error) if fault(&error).is_some_and(Fault::is_not_implemented) => {
                    client.wait(at).await.map(|output| RunReply::Output(Box::new(output)))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn on_reply(&mut self, reply: RunReply, flow: &mut Flow<Self>) -> Result<(), ClientError> {
        match reply {
            RunReply::Stream(response) => {
                self.run = self.run.take().or_else(|| response.run_id.clone());
                (self.swallowed_id, self.previous_id) = (None, String::new());
                flow.read(response)
            }
            RunReply::Status(status) => {
                let waits = status == RunStatus::Interrupted && self.state == RunState::Waiting;
                let works = status == RunStatus::Pending && flow.idle < MAX_EMPTY_CONNECTIONS;
                if !waits && !works {
                    self.wait(flow);
                }
                Ok(())
            }
            RunReply::Output(output) => self.settle(*output, flow),
            RunReply::Unknown => Ok(()),
        }
    }

    fn on_event(
        &mut self,
        event: SseEvent,
        flow: &mut Flow<Self>,
    ) -> Result<Option<StreamedEvent>, ClientError> {
        let json = event.data;
        if event.name == sse::RUN {
            let run: Run = read(json.as_bytes())?;
            self.run.get_or_insert(run.run_id);
            return Ok(None);
        }
        let id = self.id_of(event.id);
        if !self.seen.add(&id, &json) {
            return Ok(None);
        }
        let event: StreamPayload = read(json.as_bytes())?;
        let id = Some(id).filter(|id| !id.is_empty());
        if id.is_some() {
            self.cursor.clone_from(&id);
        }
        self.note(&event, flow);
        Ok(Some(StreamedEvent { id, event, json }))
    }

    /// Counts heartbeats without an event. After many, reads the run's status.
    fn on_comment(&mut self, text: &str, flow: &mut Flow<Self>) {
        // A heartbeat `:` without a line end joins the next line, such as `id: 7`.
        let glued = text.trim_start_matches([':', ' ']).strip_prefix("id:");
        if let Some(id) = glued {
            self.swallowed_id = Some(id.trim_start().to_owned());
        }
        flow.attempts = 0;
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet >= self.check_at && self.run.is_some() {
            self.check_at = self.check_at.saturating_mul(2);
            self.ask_status(flow);
        }
    }

    fn on_end(&mut self, end: End, flow: &mut Flow<Self>) -> Result<(), ClientError> {
        let gives_up = flow.gives_up();
        match (end.error, &self.run) {
            (error, None) if gives_up || self.create.is_none() => {
                let empty = "the stream of a new run has no event".to_owned();
                Err(error.unwrap_or(ClientError::Unexpected(empty)))
            }
            (Some(error), Some(_)) if gives_up => Err(error),
            (None, Some(_)) => {
                // The last event is missing: the server may not send one.
                flow.idle = flow.idle.saturating_add(1);
                self.ask_status(flow);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl RunSource {
    fn run_at(&self) -> Option<RunAt> {
        let run = self.run.clone()?;
        Some(RunAt { thread: self.thread.clone(), run })
    }

    /// Returns the event's own id, or an empty text. In the SSE format an event without an id keeps the previous id; here every event has its own.
    fn id_of(&mut self, id: String) -> String {
        if let Some(swallowed) = self.swallowed_id.take() {
            return swallowed;
        }
        if id == self.previous_id {
            return String::new();
        }
        self.previous_id.clone_from(&id);
        id
    }

    fn note(&mut self, event: &StreamPayload, flow: &mut Flow<Self>) {
        let run = match event {
            StreamPayload::Values(update) => Some(&update.run_id),
            StreamPayload::Custom(update) => update.run_id.as_ref(),
            StreamPayload::Interrupt(update) => Some(&update.run_id),
            StreamPayload::Error(update) => Some(&update.error.run_id),
        };
        if self.run.is_none() {
            self.run = run.cloned();
        }
        (flow.attempts, flow.idle) = (0, 0);
        (self.quiet, self.check_at) = (0, FIRST_CHECK);
        self.state = match event {
            StreamPayload::Interrupt(_) => RunState::Interrupted,
            StreamPayload::Error(_) => RunState::Ended,
            other if other.status() != RunStatus::Pending => RunState::Ended,
            _ => RunState::Open,
        };
        if self.state != RunState::Open {
            flow.disconnect();
            flow.done = true;
        }
    }

    fn ask_status(&self, flow: &mut Flow<Self>) {
        let Some(at) = self.run_at() else { return };
        let client = self.client.clone();
        flow.ask(Box::pin(async move {
            match client.run(at).await {
                Ok(run) => Ok(RunReply::Status(run.status)),
                Err(error) if error.is_transient() => Ok(RunReply::Unknown),
                Err(error) => Err(error),
            }
        }));
    }

    fn wait(&self, flow: &mut Flow<Self>) {
        let Some(at) = self.run_at() else { return };
        let client = self.client.clone();
        flow.ask(Box::pin(async move {
            client.wait(at).await.map(|output| RunReply::Output(Box::new(output)))
        }));
    }

    /// Makes the last event from the response of a wait.
    fn settle(
        &mut self,
        waited: RunWaitResponse,
        flow: &mut Flow<Self>,
    ) -> Result<(), ClientError> {
        let named = waited.run.as_ref().map(|run| run.run_id.clone());
        self.run = self.run.take().or(named);
        let run_id = self.run.clone().unwrap_or_default();
        let status = waited.run.map(|run| run.status);
        let event = match waited.output {
            Some(RunOutput::Result(result)) => StreamPayload::Values(ValuesUpdate {
                run_id,
                status: RunStatus::Success,
                values: result.values.unwrap_or_else(Json::null),
                messages: result.messages,
                result: None,
            }),
            Some(RunOutput::Interrupt(asked)) => {
                let status = RunStatus::Interrupted;
                StreamPayload::Interrupt(InterruptUpdate { run_id, status, asked })
            }
            Some(RunOutput::Error(error)) => {
                let status = match status {
                    Some(RunStatus::Timeout) => RunStatus::Timeout,
                    _ => RunStatus::Error,
                };
                StreamPayload::Error(ErrorUpdate { status, error })
            }
            None => {
                return Err(ClientError::Unexpected("the run has no output".to_owned()));
            }
        };
        let json = serde_json::to_string(&event)
            .map_err(|error| ClientError::Unexpected(error.to_string()))?;
        flow.disconnect();
        self.note(&event, flow);
        flow.give(StreamedEvent { id: None, event, json });
        Ok(())
    }

    fn join_call(&self, at: &RunAt) -> RequestBuilder {
        let call = at.call(&self.client, Method::Get, Some("stream"));
        let call = call.header("accept", EVENT_STREAM);
        match &self.cursor {
            Some(cursor) => call.header("last-event-id", cursor),
            None if self.only_new => call,
            None => call.header("last-event-id", BEGINNING),
        }
    }
}

/// Returns `true` if the server or the agent does not support streams.
fn streams_nothing(fault: &Fault, new: &NewRun) -> bool {
    let refused = fault.code.as_deref() == Some("stream_mode_not_supported");
    fault.is_not_implemented() || (refused && new.request.stream_mode.is_none())
}
