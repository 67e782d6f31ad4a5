//! What an agent can do while it runs.

mod ask;
mod call;
mod editor;
mod message;
mod tool;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use trilogue_domain::event::{
    MessageEvent, PlanEntry, RunEvent, StateEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::lock;
use trilogue_domain::{
    AgentName, Body, Json, Message, MessageId, Part, Role, RunId, ThreadId, Times, Trajectory,
};

pub use ask::Decision;
pub use call::{AgentCall, CallOutput, NewAgentCall};
pub use editor::{Editor, EditorTerminal, Exit, Run, TerminalOutput};
pub use message::{MessageWriter, Source};
pub use tool::ToolCall;

use crate::error::AgentError;
use crate::port::Host;
use crate::typed::to_json;
use message::Cursor;

/// The most messages and tool calls that a run may drop unfinished; what is dropped beyond them is not closed at its end.
pub const MAX_UNFINISHED: usize = 1_024;

/// What an agent can do while it runs. Cheap to clone, and usable from several tasks at once.
///
/// Every method that says something waits while the log is behind, and fails with [`AgentError::stopped`] once the run was stopped: return that error. It also fails for an event that the log refuses, such as one part too many (`too_many_parts`).
#[derive(Clone)]
pub struct Context {
    shared: Arc<ContextShared>,
}

/// Which run this is.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// The agent, as it is served.
    pub agent: AgentName,
    /// The configuration that the run was given.
    pub config: Option<Json>,
}

struct ContextShared {
    info: RunInfo,
    role: Role,
    host: Arc<dyn Host>,
    /// The message that text without a message of its own goes to.
    ///
    /// An asynchronous lock, because it is what keeps the words of several tasks inside their message while one of them waits for the log.
    speech: tokio::sync::Mutex<Option<Cursor>>,
    unfinished: Mutex<Unfinished>,
    /// The message that was said last: the user's, then the agent's own. A tool call that follows comes of it.
    last: Mutex<Option<MessageId>>,
}

#[derive(Default, Debug)]
struct Unfinished {
    messages: Vec<MessageId>,
    calls: Vec<String>,
}

// === impl RunInfo ===

impl RunInfo {
    /// A run of this agent with new ids and no configuration: what a test gives.
    ///
    /// # Errors
    /// `invalid_id` when the name is no [`AgentName`].
    pub fn sample(agent: &str) -> Result<Self, AgentError> {
        let (run, thread) = (RunId::generate(), ThreadId::generate());
        Ok(Self { run, thread, agent: AgentName::parse(agent)?, config: None })
    }
}

// === impl Context ===

impl Context {
    /// A context over these ports.
    #[must_use]
    pub fn new(info: RunInfo, host: Arc<dyn Host>) -> Self {
        let role = Role::NamedAgent(Arc::from(info.agent.as_str()));
        let (speech, unfinished) = (tokio::sync::Mutex::default(), Mutex::default());
        let last = Mutex::default();
        Self { shared: Arc::new(ContextShared { info, role, host, speech, unfinished, last }) }
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.shared.info.run
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.shared.info.thread
    }

    /// The configuration that this run was given, as this type; its default where none was given.
    ///
    /// # Errors
    /// When the configuration does not fit the type.
    pub fn config<T: DeserializeOwned + Default>(&self) -> Result<T, AgentError> {
        match self.config_json() {
            None => Ok(T::default()),
            Some(json) => serde_json::from_slice(json.as_bytes()).map_err(|error| {
                AgentError::invalid_input(format!("the configuration does not fit: {error}"))
            }),
        }
    }

    /// The configuration that this run was given.
    #[must_use]
    pub fn config_json(&self) -> Option<&Json> {
        self.shared.info.config.as_ref()
    }

    /// Says text: the next words of the message that is open, or the first of a new one.
    ///
    /// The message is closed when the turn ends or another message begins.
    pub async fn text(&self, text: impl AsRef<str> + Send) -> Result<(), AgentError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Ok(());
        }
        let mut speech = self.shared.speech.lock().await;
        self.opened(&mut speech).await?.text(self, text).await
    }

    /// Adds a whole part to the open message, or to a new one.
    ///
    /// A part holds its content in one of three ways: [`Part::text`] (or [`Part::json`]) inline, [`Part::bytes`] for what is no text, [`Part::url`] for what lies elsewhere.
    pub async fn part(&self, part: Part) -> Result<(), AgentError> {
        let mut speech = self.shared.speech.lock().await;
        self.opened(&mut speech).await?.part(self, part).await
    }

    /// Adds an artifact: a part with a name. Inline text, bytes or an address, by the part's constructor.
    pub async fn artifact(&self, name: &str, part: Part) -> Result<(), AgentError> {
        self.part(part.named(name)).await
    }

    /// Says text and cites the source of exactly these words.
    pub async fn cite(&self, text: &str, source: Source) -> Result<(), AgentError> {
        let mut speech = self.shared.speech.lock().await;
        self.opened(&mut speech).await?.cite(self, text, source).await
    }

    /// Shows a step of the agent inside the message: a thought, or a tool with its input and output.
    pub async fn trajectory(&self, step: Trajectory) -> Result<(), AgentError> {
        self.part(message::trajectory(step)).await
    }

    /// Says a whole message.
    pub async fn say(
        &self,
        parts: impl IntoIterator<Item = Part> + Send,
    ) -> Result<(), AgentError> {
        let parts: Vec<Part> = parts.into_iter().collect();
        let mut message = self.message().await?;
        for part in parts {
            message.part(part).await?;
        }
        message.finish().await
    }

    /// Says a message again as one of the agent's own: with a new id and the agent's role, and with its parts and its times as they are.
    pub async fn repeat(&self, message: &Message) -> Result<(), AgentError> {
        self.end_speech().await?;
        let Message { created_at, completed_at, .. } = *message;
        let times = Times { created_at, completed_at };
        let cursor = Cursor::open(self, Some(times)).await?;
        let mut writer = MessageWriter::new(self.clone(), cursor);
        for part in &message.parts {
            writer.part(part.clone()).await?;
        }
        writer.finish().await
    }

    /// Closes the open message and begins one of its own, which several tasks can do side by side.
    pub async fn message(&self) -> Result<MessageWriter, AgentError> {
        self.end_speech().await?;
        Ok(MessageWriter::new(self.clone(), Cursor::open(self, None).await?))
    }

    /// Shows reasoning that is no part of any message.
    pub async fn thought(&self, text: &str) -> Result<(), AgentError> {
        for piece in message::pieces(text) {
            let text = Arc::from(piece);
            self.emit(Body::Message(MessageEvent::Thought { message: None, text })).await?;
        }
        Ok(())
    }

    /// The files and terminals of the editor that the run works for. `None` where it works for no editor now, or for one that gives neither.
    ///
    /// The editor is that of the client that prompted last. It may come and go while the run is at work: calls wait a while for it, and fail then.
    #[must_use]
    pub fn editor(&self) -> Option<Editor> {
        Editor::of(Arc::clone(&self.shared.host))
    }

    /// Begins a tool call: the tool's name, what people read, and what the tool is given (`null` for nothing). The log says which message it comes of: what the agent said last in this turn, else what the user said.
    pub async fn tool(
        &self,
        tool: &str,
        title: &str,
        input: impl Serialize + Send,
    ) -> Result<ToolCall, AgentError> {
        let input = Some(to_json(&input)?).filter(|input| input.as_str() != "null");
        ToolCall::start(self.clone(), tool, title, input).await
    }

    /// Shows the agent's plan, whole.
    pub async fn plan(
        &self,
        entries: impl IntoIterator<Item = PlanEntry> + Send,
    ) -> Result<(), AgentError> {
        let entries = entries.into_iter().collect();
        self.emit(Body::State(StateEvent::Plan(entries))).await
    }

    /// Emits the agent's own update.
    ///
    /// # Errors
    /// `stream_update_schema_violation` where the card declares a schema for updates and the data does not fit it. The run then fails with this error, whatever the agent makes of it.
    pub async fn custom(&self, kind: &str, data: impl Serialize + Send) -> Result<(), AgentError> {
        let (kind, data) = (kind.to_owned(), to_json(&data)?);
        self.emit(Body::State(StateEvent::Custom { kind, data })).await
    }

    /// Shows the output as far as it is: a whole value that replaces the one before, and that [`Context::result`] replaces at last.
    ///
    /// Clients that follow the run are shown the newest; who is slow sees fewer of them. It has to fit the output schema as the result has.
    pub async fn output_so_far(&self, value: impl Serialize + Send) -> Result<(), AgentError> {
        let value = to_json(&value)?;
        self.emit(Body::State(StateEvent::Output(value))).await
    }

    /// Answers with a value: what an agent gives that declared an output schema.
    ///
    /// # Errors
    /// `output_schema_violation` where the value does not fit the schema that the card declares. The run then fails with this error, whatever the agent makes of it.
    pub async fn result(&self, value: impl Serialize + Send) -> Result<(), AgentError> {
        let value = to_json(&value)?;
        self.emit(Body::Run(RunEvent::Result(value))).await
    }

    /// Sets the thread's state. It becomes the thread's when the run completes.
    ///
    /// # Errors
    /// `thread_state_schema_violation` where the state does not fit the schema that the card declares. The run then fails with this error, whatever the agent makes of it.
    pub async fn set_state(&self, state: impl Serialize + Send) -> Result<(), AgentError> {
        let state = to_json(&state)?;
        self.emit(Body::State(StateEvent::Values(state))).await
    }

    /// The thread's state, or what this run last set it to, as this type; its default where there is none.
    ///
    /// # Errors
    /// What kept it from being read; a state that does not fit the type.
    pub async fn state<T: DeserializeOwned + Default>(&self) -> Result<T, AgentError> {
        match self.state_json().await? {
            None => Ok(T::default()),
            Some(json) => Ok(serde_json::from_slice(json.as_bytes())?),
        }
    }

    /// The thread's state, or what this run last set it to.
    pub async fn state_json(&self) -> Result<Option<Json>, AgentError> {
        self.shared.host.load_state().await
    }

    /// The thread's messages before this run, oldest first.
    pub async fn history(&self) -> Result<Vec<Message>, AgentError> {
        self.shared.host.history().await
    }

    /// Waits until everything said so far is durable.
    pub async fn commit(&self) -> Result<(), AgentError> {
        self.shared.host.commit().await
    }

    /// Whether the run was asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.host.is_cancelled()
    }

    /// Returns when the run is asked to stop.
    pub async fn cancelled(&self) {
        self.shared.host.cancelled().await;
    }

    /// Waits this long.
    ///
    /// # Errors
    /// [`AgentError::stopped`] as soon as the run is asked to stop.
    pub async fn wait(&self, time: Duration) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            () = self.cancelled() => Err(AgentError::stopped()),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Closes what the turn left open: messages as complete, tool calls as failed.
    pub(crate) async fn close(&self) -> Result<(), AgentError> {
        self.end_speech().await?;
        let left = std::mem::take(&mut *self.unfinished());
        for message in left.messages {
            self.emit(Body::Message(MessageEvent::Completed { message })).await?;
        }
        for call in left.calls {
            let status = ToolStatus::Failed;
            self.emit(Body::Tool(ToolEvent::Ended { call, status, output: None })).await?;
        }
        Ok(())
    }

    async fn emit(&self, body: Body) -> Result<(), AgentError> {
        if self.shared.host.try_emit(&body)? {
            return Ok(());
        }
        self.shared.host.emit(body).await
    }

    /// The open message; begins one where there is none.
    async fn opened<'a>(
        &self,
        speech: &'a mut Option<Cursor>,
    ) -> Result<&'a mut Cursor, AgentError> {
        match speech {
            Some(cursor) => Ok(cursor),
            None => Ok(speech.insert(Cursor::open(self, None).await?)),
        }
    }

    async fn end_speech(&self) -> Result<(), AgentError> {
        let mut speech = self.shared.speech.lock().await;
        match speech.take() {
            Some(cursor) => cursor.complete(self).await,
            None => Ok(()),
        }
    }

    pub(crate) fn heard(&self, message: MessageId) {
        *lock(&self.shared.last) = Some(message);
    }

    fn last(&self) -> Option<MessageId> {
        lock(&self.shared.last).clone()
    }

    fn unfinished(&self) -> std::sync::MutexGuard<'_, Unfinished> {
        lock(&self.shared.unfinished)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("info", &self.shared.info).finish_non_exhaustive()
    }
}
