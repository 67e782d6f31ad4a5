//! Event streams of the native API.

use trilogue_wire::native::{Event, EventBody, Gap, Problem, Run};

use super::Client;
use super::call::RequestBuilder;
use super::error::ClientError;
use super::new_run::NewRun;
use super::resumable::{
    EVENT_STREAM, End, Flow, Pending, Resumable, SseEvent, StreamSource, impl_stream,
};
use super::transport::{Method, Response};

/// The role of the messages of an input.
const USER: &str = "user";

/// Events in order, each once. After a break the stream reconnects and continues after the last received event.
///
/// The stream of a run ends after the run's last event; the stream of a thread does not end.
#[derive(Debug)]
pub struct EventStream {
    stream: Resumable<NativeSource>,
}

/// An item of an event stream.
#[derive(Clone, PartialEq, Debug)]
pub enum StreamItem {
    /// An event.
    Event {
        /// The event.
        event: Box<Event>,
        /// The event as the server wrote it.
        json: String,
        /// Whether the event is about a message of the run's input. A stream that begins inside such a message does not know.
        is_input: bool,
    },
    /// Events were requested that the server no longer keeps.
    Gap(Gap),
}

/// The run or thread whose events are streamed.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum EventScope {
    Run(String),
    /// A new run. Until an event names it, a reconnect sends its request again.
    New(Box<NewRun>),
    Thread(String),
}

#[derive(Debug)]
struct NativeSource {
    client: Client,
    scope: EventScope,
    /// The id of the last received event. A reconnect resumes after it.
    cursor: Option<String>,
    /// Whether the connection has delivered an event.
    has_events: bool,
    /// The id of the open message of the input. Such messages do not overlap.
    input_message: Option<String>,
}

enum NativeReply {
    Stream(Response),
    Run(Box<Run>),
}

impl_stream!(EventStream, StreamItem);

// === impl StreamItem ===

impl StreamItem {
    /// Returns the next piece of the agent's text, if this is one. Artifacts and thoughts are not.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        let Self::Event { event, is_input: false, .. } = self else { return None };
        match &event.body {
            EventBody::MessageDelta(delta) => Some(&delta.text),
            EventBody::MessagePart(whole) => whole.part.as_text(),
            _ => None,
        }
    }
}

// === impl EventStream ===

impl EventStream {
    pub(super) fn new(client: Client, scope: EventScope, after: Option<String>) -> Self {
        let options = client.options().clone();
        let source =
            NativeSource { client, scope, cursor: after, has_events: false, input_message: None };
        Self { stream: Resumable::new(source, options) }
    }

    /// Returns a stream whose first connection is already open.
    pub(super) fn from_response(
        client: Client,
        scope: EventScope,
        response: Response,
    ) -> Result<Self, ClientError> {
        let mut stream = Self::new(client, scope, None);
        stream.stream.flow.read(response)?;
        Ok(stream)
    }

    /// Returns the position after the last received event. A later stream can begin there.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.stream.source.cursor.as_deref()
    }
}

// === impl NativeSource ===

impl StreamSource for NativeSource {
    type Item = StreamItem;
    type Reply = NativeReply;

    fn connect(&mut self) -> Pending<NativeReply> {
        let call = match &self.scope {
            EventScope::New(new) => new.stream_call(&self.client),
            EventScope::Run(run) => Ok(self.events_call(&["runs", run, "events"])),
            EventScope::Thread(thread) => Ok(self.events_call(&["threads", thread, "events"])),
        };
        let client = self.client.clone();
        Box::pin(async move { client.send(call?).await.map(NativeReply::Stream) })
    }

    fn on_reply(&mut self, reply: NativeReply, flow: &mut Flow<Self>) -> Result<(), ClientError> {
        match reply {
            NativeReply::Stream(response) => {
                self.has_events = false;
                flow.read(response)
            }
            NativeReply::Run(run) => {
                flow.done = run.status.is_terminal();
                Ok(())
            }
        }
    }

    fn on_event(
        &mut self,
        event: SseEvent,
        flow: &mut Flow<Self>,
    ) -> Result<Option<StreamItem>, ClientError> {
        let unexpected = |error: serde_json::Error| ClientError::Unexpected(error.to_string());
        let SseEvent { id, name, data } = event;
        self.has_events = true;
        match name.as_str() {
            "gap" => Ok(Some(StreamItem::Gap(serde_json::from_str(&data).map_err(unexpected)?))),
            "error" => {
                let problem: Problem = serde_json::from_str(&data).map_err(unexpected)?;
                let error = ClientError::Problem(Box::new(problem));
                flow.disconnect();
                flow.done = !error.is_transient();
                if flow.done || flow.gives_up() { Err(error) } else { Ok(None) }
            }
            _ => {
                let event: Event = serde_json::from_str(&data).map_err(unexpected)?;
                self.cursor = Some(if id.is_empty() { event.id.clone() } else { id });
                flow.attempts = 0;
                if let (EventScope::New(_), Some(run)) = (&self.scope, &event.run_id) {
                    self.scope = EventScope::Run(run.clone());
                }
                flow.done = matches!(
                    (&self.scope, &event.body),
                    (EventScope::Run(_), EventBody::RunEnded(_))
                );
                let is_input = self.is_input(&event.body);
                Ok(Some(StreamItem::Event { event: Box::new(event), json: data, is_input }))
            }
        }
    }

    fn on_end(&mut self, end: End, flow: &mut Flow<Self>) -> Result<(), ClientError> {
        match (end.error, &self.scope) {
            (None, EventScope::Run(run)) if !self.has_events => {
                // A clean end without an event: the cursor may already be at the end of the run.
                let (client, run) = (self.client.clone(), run.clone());
                flow.ask(Box::pin(async move {
                    client.run(&run).await.map(|run| NativeReply::Run(Box::new(run)))
                }));
                Ok(())
            }
            (None, EventScope::New(_)) if flow.gives_up() => {
                Err(ClientError::Unexpected("the stream of a new run has no event".to_owned()))
            }
            (Some(error), _) if flow.gives_up() => Err(error),
            _ => Ok(()),
        }
    }
}

impl NativeSource {
    fn is_input(&mut self, body: &EventBody) -> bool {
        if let EventBody::MessageStarted(started) = body
            && started.role == USER
        {
            self.input_message = Some(started.message_id.clone());
        }
        let input = self.input_message.as_deref();
        match body {
            EventBody::MessageStarted(it) => input == Some(&it.message_id),
            EventBody::MessageDelta(it) => input == Some(&it.message_id),
            EventBody::MessagePart(it) => input == Some(&it.message_id),
            EventBody::MessageCompleted(it) => {
                input == Some(&it.message_id) && self.input_message.take().is_some()
            }
            _ => false,
        }
    }

    fn events_call(&self, segments: &[&str]) -> RequestBuilder {
        let call = self.client.call(Method::Get, segments).header("accept", EVENT_STREAM);
        match &self.cursor {
            Some(cursor) => call.header("last-event-id", cursor),
            None => call,
        }
    }
}
