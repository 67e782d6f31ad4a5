//! The context of a run: everything an agent can do while it runs.

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
    MessageEvent, PlanContent, PlanEntry, RunEvent, StateEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::lock;
use trilogue_domain::{
    AgentName, Body, Json, Message, MessageId, Part, Role, RunId, SystemPrompt, ThreadId, Times,
    Trajectory,
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

/// The maximum number of unfinished messages and tool calls that a context closes at the end of a run. It does not close the rest.
pub const MAX_UNFINISHED: usize = 1_024;

/// Everything an agent can do while it runs. Cheap to clone; several tasks can use it at the same time.
///
/// Every method that emits an event waits while the log is behind. After the run was stopped it fails with [`AgentError::run_stopped`]: return that error. It also fails if the log refuses the event, for example for too many parts (`too_many_parts`).
#[derive(Clone)]
pub struct Context {
    shared: Arc<ContextShared>,
}

/// The identity of a run.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// The agent's name on the server.
    pub agent: AgentName,
    /// The configuration of the run.
    pub config: Option<Json>,
}

struct ContextShared {
    info: RunInfo,
    role: Role,
    host: Arc<dyn Host>,
    /// The open message that takes text without a message of its own.
    ///
    /// The lock is asynchronous because a task holds it while it waits for the log. This keeps the text of several tasks inside their message.
    speech: tokio::sync::Mutex<Option<Cursor>>,
    unfinished: Mutex<Unfinished>,
    /// The newest message: the user's at first, then the agent's own. The next tool call belongs to it.
    last: Mutex<Option<MessageId>>,
}

#[derive(Default, Debug)]
struct Unfinished {
    messages: Vec<MessageId>,
    calls: Vec<String>,
}

// === impl RunInfo ===

impl RunInfo {
    /// Returns a run of this agent with new ids and no configuration, for tests.
    ///
    /// # Errors
    /// `invalid_id` if the name is not a valid [`AgentName`].
    pub fn sample(agent: &str) -> Result<Self, AgentError> {
        let (run, thread) = (RunId::generate(), ThreadId::generate());
        Ok(Self { run, thread, agent: AgentName::parse(agent)?, config: None })
    }
}

// === impl Context ===

impl Context {
    /// Makes a context over these ports.
    #[must_use]
    pub fn new(info: RunInfo, host: Arc<dyn Host>) -> Self {
        let role = Role::NamedAgent(Arc::from(info.agent.as_str()));
        let (speech, unfinished) = (tokio::sync::Mutex::default(), Mutex::default());
        let last = Mutex::default();
        Self { shared: Arc::new(ContextShared { info, role, host, speech, unfinished, last }) }
    }

    /// Returns the id of the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.shared.info.run
    }

    /// Returns the id of the thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.shared.info.thread
    }

    /// Deserializes the configuration of this run; returns the type's default if the run has no configuration.
    ///
    /// # Errors
    /// If the configuration does not fit the type.
    pub fn config<T: DeserializeOwned + Default>(&self) -> Result<T, AgentError> {
        match self.config_json() {
            None => Ok(T::default()),
            Some(json) => serde_json::from_slice(json.as_bytes()).map_err(|error| {
                AgentError::invalid_input(format!("the configuration does not fit: {error}"))
            }),
        }
    }

    /// Returns the configuration of this run, if any.
    #[must_use]
    pub fn config_json(&self) -> Option<&Json> {
        self.shared.info.config.as_ref()
    }

    /// Appends text to the open message, or begins a new message with it.
    ///
    /// The message is closed when the turn ends or another message begins.
    pub async fn text(&self, text: impl AsRef<str> + Send) -> Result<(), AgentError> {
        let text = text.as_ref();
        if text.is_empty() {
            return Ok(());
        }
        let mut speech = self.shared.speech.lock().await;
        self.open_message(&mut speech).await?.text(self, text).await
    }

    /// Appends a whole part to the open message, or begins a new message with it.
    ///
    /// A part holds its content in one of three ways: inline with [`Part::text`] (or [`Part::json`]), as bytes with [`Part::bytes`], or by address with [`Part::url`].
    pub async fn part(&self, part: Part) -> Result<(), AgentError> {
        let mut speech = self.shared.speech.lock().await;
        self.open_message(&mut speech).await?.part(self, part).await
    }

    /// Appends an artifact: a part with a name. The part's constructor decides whether the content is inline text, bytes or an address.
    pub async fn artifact(&self, name: &str, part: Part) -> Result<(), AgentError> {
        self.part(part.with_name(name)).await
    }

    /// Appends text and cites the source of exactly this text.
    pub async fn cite(&self, text: &str, source: Source) -> Result<(), AgentError> {
        let mut speech = self.shared.speech.lock().await;
        self.open_message(&mut speech).await?.cite(self, text, source).await
    }

    /// Appends a step of the agent to the message: a thought, or a tool with its input and output.
    pub async fn trajectory(&self, step: Trajectory) -> Result<(), AgentError> {
        self.part(message::trajectory(step)).await
    }

    /// Writes a whole message.
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

    /// Repeats a message as the agent's own: with a new id and the agent's role, and with the same parts and times.
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

    /// Closes the open message and begins a separate one. Several tasks can do this at the same time.
    pub async fn message(&self) -> Result<MessageWriter, AgentError> {
        self.end_speech().await?;
        Ok(MessageWriter::new(self.clone(), Cursor::open(self, None).await?))
    }

    /// Shows reasoning outside of any message.
    pub async fn thought(&self, text: &str) -> Result<(), AgentError> {
        for piece in message::pieces(text) {
            let text = Arc::from(piece);
            self.emit(Body::Message(MessageEvent::Thought { message: None, text })).await?;
        }
        Ok(())
    }

    /// Returns the files and terminals of the editor that the run works for. `None` if no editor is connected, or if it offers neither.
    ///
    /// The editor belongs to the client that prompted last. It may disconnect and reconnect during the run: calls wait a while for it and then fail.
    #[must_use]
    pub fn editor(&self) -> Option<Editor> {
        Editor::of(Arc::clone(&self.shared.host))
    }

    /// Begins a tool call: the tool's name, its title for people, and its input (`null` for none). The log links it to the newest message: the agent's last in this turn, otherwise the user's.
    pub async fn tool(
        &self,
        tool: &str,
        title: &str,
        input: impl Serialize + Send,
    ) -> Result<ToolCall, AgentError> {
        let input = Some(to_json(&input)?).filter(|input| input.as_str() != "null");
        ToolCall::start(self.clone(), tool, title, input).await
    }

    /// Shows the agent's plan. The entries replace the previous plan.
    pub async fn plan(
        &self,
        entries: impl IntoIterator<Item = PlanEntry> + Send,
    ) -> Result<(), AgentError> {
        let entries = entries.into_iter().collect();
        self.emit(Body::State(StateEvent::Plan(entries))).await
    }

    /// Shows a plan that has an id, next to the agent's other plans. It replaces the plan with the same id. `content` is a list of entries or a Markdown document.
    ///
    /// Clients that know only one plan get the entries of all plans as one.
    pub async fn plan_by_id(&self, plan: &str, content: PlanContent) -> Result<(), AgentError> {
        let plan = plan.to_owned();
        self.emit(Body::State(StateEvent::PlanUpdated { plan, content })).await
    }

    /// Removes a plan that has an id.
    pub async fn remove_plan(&self, plan: &str) -> Result<(), AgentError> {
        self.emit(Body::State(StateEvent::PlanRemoved { plan: plan.to_owned() })).await
    }

    /// Returns the client's instructions for the thread, if it gave some. Editors give them only to an agent whose card declares [`Card::system_prompt`](crate::Card::system_prompt).
    ///
    /// # Errors
    /// The store's errors.
    pub async fn system_prompt(&self) -> Result<Option<SystemPrompt>, AgentError> {
        self.shared.host.system_prompt().await
    }

    /// Emits an update of the agent's own kind.
    ///
    /// # Errors
    /// `stream_update_schema_violation` if the card declares a schema for updates and the data does not fit it. The run then fails with this error, even if the agent handles it.
    pub async fn custom(&self, kind: &str, data: impl Serialize + Send) -> Result<(), AgentError> {
        let (kind, data) = (kind.to_owned(), to_json(&data)?);
        self.emit(Body::State(StateEvent::Custom { kind, data })).await
    }

    /// Shows the output so far: a whole value that replaces the previous one. [`Context::result`] replaces it in the end.
    ///
    /// Clients that follow the run get the newest value; slow clients get fewer values. The value must fit the output schema, like the result.
    pub async fn output_so_far(&self, value: impl Serialize + Send) -> Result<(), AgentError> {
        let value = to_json(&value)?;
        self.emit(Body::State(StateEvent::Output(value))).await
    }

    /// Sets the result value, for an agent that declares an output schema.
    ///
    /// # Errors
    /// `output_schema_violation` if the value does not fit the schema that the card declares. The run then fails with this error, even if the agent handles it.
    pub async fn result(&self, value: impl Serialize + Send) -> Result<(), AgentError> {
        let value = to_json(&value)?;
        self.emit(Body::Run(RunEvent::Result(value))).await
    }

    /// Sets the thread's state. The thread takes it over when the run completes.
    ///
    /// # Errors
    /// `thread_state_schema_violation` if the state does not fit the schema that the card declares. The run then fails with this error, even if the agent handles it.
    pub async fn set_state(&self, state: impl Serialize + Send) -> Result<(), AgentError> {
        let state = to_json(&state)?;
        self.emit(Body::State(StateEvent::Values(state))).await
    }

    /// Deserializes the thread's state, or the state that this run set last; returns the type's default if the thread has no state.
    ///
    /// # Errors
    /// If the state cannot be read, or if it does not fit the type.
    pub async fn state<T: DeserializeOwned + Default>(&self) -> Result<T, AgentError> {
        match self.state_json().await? {
            None => Ok(T::default()),
            Some(json) => Ok(serde_json::from_slice(json.as_bytes())?),
        }
    }

    /// Returns the state that this run set last, otherwise the thread's state.
    pub async fn state_json(&self) -> Result<Option<Json>, AgentError> {
        self.shared.host.load_state().await
    }

    /// Returns the thread's messages before this run, oldest first.
    pub async fn history(&self) -> Result<Vec<Message>, AgentError> {
        self.shared.host.history().await
    }

    /// Waits until every event emitted so far is durable.
    pub async fn commit(&self) -> Result<(), AgentError> {
        self.shared.host.commit().await
    }

    /// Returns `true` if cancellation of the run was requested.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.shared.host.is_cancelled()
    }

    /// Returns when cancellation of the run is requested.
    pub async fn cancelled(&self) {
        self.shared.host.cancelled().await;
    }

    /// Waits for this duration.
    ///
    /// # Errors
    /// [`AgentError::run_stopped`] as soon as cancellation of the run is requested.
    pub async fn wait(&self, time: Duration) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            () = self.cancelled() => Err(AgentError::run_stopped()),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }

    /// Closes everything that the turn left open: messages as complete, tool calls as failed.
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

    /// Returns the open message; begins one if no message is open.
    async fn open_message<'a>(
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

    pub(crate) fn set_last_message(&self, message: MessageId) {
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
