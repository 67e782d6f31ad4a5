//! In-memory ports of a run, for the tests of agent authors.
//!
//! A [`Recorder`] keeps the events that an agent emits, answers its questions from a script, and can make the agent wait as a slow log does.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, watch};
use trilogue_domain::event::{MessageEvent, RunEvent, StateEvent};
use trilogue_domain::lock;
use trilogue_domain::{
    AgentName, Answer, Body, Code, Event, Interrupt, InterruptId, Json, Message, Resolution, RunId,
    ThreadId, Timestamp, Transcript,
};

use crate::agent::{Agent, Outcome, Turn, run_turn};
use crate::context::RunInfo;
use crate::error::AgentError;
use crate::port::{
    CallRefusal, CallTarget, Cancellation, ChildEnd, ChildHandle, ChildRuns, ClientCalls,
    Interrupts, Memory, NewChild, Output, PortFuture, no_other_agents,
};

/// The default maximum number of events that a recorder keeps.
pub const DEFAULT_CAPACITY_EVENTS: usize = 100_000;

/// The ports of one run, in memory. Clones share the same recorder.
///
/// ```
/// use trilogue_sdk::prelude::*;
/// use trilogue_sdk::recorder::Recorder;
///
/// # async fn example() -> Result<(), AgentError> {
/// let echo = agent_fn("echo", "Repeats your message.", |turn, context| async move {
///     context.text(turn.text()).await
/// });
/// let recorder = Recorder::default();
/// recorder.run(&echo, "Hello!").await?;
/// assert_eq!(recorder.messages()[0].text(), "Hello!");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<RecorderShared>,
}

#[derive(Debug)]
struct RecorderShared {
    state: Mutex<State>,
    room: Notify,
    cancelled: watch::Sender<bool>,
}

/// The function that plays a called agent.
type CalledAgent = Arc<dyn Fn(&NewChild) -> Result<ChildEnd, AgentError> + Send + Sync>;

/// The function that answers a call to the editor: it takes the method and the params, and returns a result or a refusal.
type CallHandler = Arc<dyn Fn(&str, Json) -> Result<Json, CallRefusal> + Send + Sync>;

struct SimulatedEditor {
    target: CallTarget,
    handler: CallHandler,
}

struct SimulatedAgent(CalledAgent);

/// A run of a simulated agent. It has ended when the call returns.
#[derive(Debug)]
struct SimulatedChild {
    run: RunId,
    thread: ThreadId,
    events: VecDeque<Body>,
    end: ChildEnd,
}

#[derive(Debug)]
struct State {
    events: Vec<Body>,
    editor: Option<SimulatedEditor>,
    agents: HashMap<AgentName, SimulatedAgent>,
    capacity: usize,
    answers: VecDeque<Resolution>,
    asked: Vec<Interrupt>,
    history: Vec<Message>,
    state: Option<Json>,
    config: Option<Json>,
    stopped: bool,
}

// === impl Recorder ===

impl Default for Recorder {
    fn default() -> Self {
        Self::with_capacity(DEFAULT_CAPACITY_EVENTS)
    }
}

impl Recorder {
    /// Returns a recorder with room for this many events until [`Recorder::take`] makes room again.
    #[must_use]
    pub fn with_capacity(events: usize) -> Self {
        let state = State {
            events: Vec::new(),
            editor: None,
            agents: HashMap::new(),
            capacity: events,
            answers: VecDeque::new(),
            asked: Vec::new(),
            history: Vec::new(),
            state: None,
            config: None,
            stopped: false,
        };
        let (state, room) = (Mutex::new(state), Notify::new());
        let cancelled = watch::Sender::new(false);
        Self { shared: Arc::new(RecorderShared { state, room, cancelled }) }
    }

    /// Sets the messages before the run.
    #[must_use]
    pub fn with_history(self, messages: Vec<Message>) -> Self {
        self.state_mut().history = messages;
        self
    }

    /// Sets the thread's state.
    #[must_use]
    pub fn with_state(self, state: Json) -> Self {
        self.state_mut().state = Some(state);
        self
    }

    /// Sets the configuration of the runs that [`Recorder::run`] starts.
    #[must_use]
    pub fn with_config(self, config: Json) -> Self {
        self.state_mut().config = Some(config);
        self
    }

    /// Runs one turn of an agent. The turn is a text, messages, a JSON value, or a whole [`Turn`].
    ///
    /// # Errors
    /// The error that the agent returned.
    pub async fn run(
        &self,
        agent: &dyn Agent,
        turn: impl Into<Turn> + Send,
    ) -> Result<Outcome, AgentError> {
        let config = self.state_mut().config.clone();
        let info = RunInfo { config, ..RunInfo::sample("agent")? };
        run_turn(agent, turn.into(), info, Arc::new(self.clone())).await
    }

    /// Adds an answer to the script. Each question takes the next answer; a question without one is cancelled.
    #[must_use]
    pub fn answering(self, resolution: Resolution) -> Self {
        self.state_mut().answers.push_back(resolution);
        self
    }

    /// Simulates an editor with these capabilities of the Agent Client Protocol. The function answers its calls.
    ///
    /// The params have an empty session id, because an agent does not know the session.
    #[must_use]
    pub fn with_editor(
        self,
        capabilities: Json,
        answering: impl Fn(&str, Json) -> Result<Json, CallRefusal> + Send + Sync + 'static,
    ) -> Self {
        let dialect = Arc::from(CallTarget::EDITOR);
        let target = CallTarget { dialect, version: 1, capabilities };
        let handler: CallHandler = Arc::new(answering);
        self.state_mut().editor = Some(SimulatedEditor { target, handler });
        self
    }

    /// Simulates another agent with this name. The function returns the result of each call. A call to any other agent fails with `agent_not_found`.
    ///
    /// # Errors
    /// `invalid_id` if the name is not a valid [`AgentName`].
    pub fn with_agent(
        self,
        name: &str,
        called: impl Fn(&NewChild) -> Result<ChildEnd, AgentError> + Send + Sync + 'static,
    ) -> Result<Self, AgentError> {
        let (name, called) = (AgentName::parse(name)?, SimulatedAgent(Arc::new(called)));
        self.state_mut().agents.insert(name, called);
        Ok(self)
    }

    /// Requests cancellation of the run.
    pub fn cancel(&self) {
        self.shared.cancelled.send_replace(true);
    }

    /// Stops the run: it takes no more events.
    pub fn stop(&self) {
        self.state_mut().stopped = true;
        self.shared.room.notify_waiters();
    }

    /// Returns the events that the agent has emitted so far.
    #[must_use]
    pub fn events(&self) -> Vec<Body> {
        self.state_mut().events.clone()
    }

    /// Takes the events that the agent has emitted so far, which makes room for more.
    #[must_use]
    pub fn take(&self) -> Vec<Body> {
        let events = std::mem::take(&mut self.state_mut().events);
        self.shared.room.notify_waiters();
        events
    }

    /// Returns the questions that the agent has asked.
    #[must_use]
    pub fn questions(&self) -> Vec<Interrupt> {
        self.state_mut().asked.clone()
    }

    /// Returns the thread's state as it was last set.
    #[must_use]
    pub fn state(&self) -> Option<Json> {
        self.state_mut().state.clone()
    }

    /// Returns the agent's output: the newest of its result and the outputs that it showed before, or `None`.
    #[must_use]
    pub fn output(&self) -> Option<Json> {
        self.state_mut().events.iter().rev().find_map(|body| match body {
            Body::Run(RunEvent::Result(value)) | Body::State(StateEvent::Output(value)) => {
                Some(value.clone())
            }
            _ => None,
        })
    }

    /// Returns the agent's own updates in order, each with its kind.
    #[must_use]
    pub fn updates(&self) -> Vec<(String, Json)> {
        let update = |body: &Body| match body {
            Body::State(StateEvent::Custom { kind, data }) => Some((kind.clone(), data.clone())),
            _ => None,
        };
        self.state_mut().events.iter().filter_map(update).collect()
    }

    /// Returns the messages that the events form.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        let mut transcript = Transcript::default();
        for (number, body) in (1..).zip(self.events()) {
            let at = Timestamp::from_micros(0);
            transcript.push(&Event { number, run: None, run_number: 0, at, body, original: None });
        }
        transcript.into_messages()
    }

    fn state_mut(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl Output for Recorder {
    fn try_emit(&self, body: &Body) -> Result<bool, AgentError> {
        let mut state = self.state_mut();
        if state.stopped {
            return Err(AgentError::run_stopped());
        }
        if state.events.len() >= state.capacity {
            return Ok(false);
        }
        if let Body::State(StateEvent::Values(values)) = body {
            state.state = Some(values.clone());
        }
        state.events.push(body.clone());
        Ok(true)
    }

    fn emit(&self, body: Body) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(async move {
            loop {
                let room = self.shared.room.notified();
                if self.try_emit(&body)? {
                    return Ok(());
                }
                room.await;
            }
        })
    }

    fn commit(&self) -> PortFuture<'_, Result<(), AgentError>> {
        let stopped = self.state_mut().stopped;
        Box::pin(async move { if stopped { Err(AgentError::run_stopped()) } else { Ok(()) } })
    }
}

impl Interrupts for Recorder {
    fn ask(&self, interrupt: Interrupt) -> PortFuture<'_, Result<Resolution, AgentError>> {
        let mut state = self.state_mut();
        state.asked.push(interrupt);
        let resolution = state.answers.pop_front().unwrap_or(Resolution::Cancelled);
        Box::pin(async move { Ok(resolution) })
    }
}

impl Memory for Recorder {
    fn history(&self) -> PortFuture<'_, Result<Vec<Message>, AgentError>> {
        let history = self.state_mut().history.clone();
        Box::pin(async move { Ok(history) })
    }

    fn load_state(&self) -> PortFuture<'_, Result<Option<Json>, AgentError>> {
        let state = self.state_mut().state.clone();
        Box::pin(async move { Ok(state) })
    }
}

impl ChildRuns for Recorder {
    fn call_agent(
        &self,
        call: NewChild,
    ) -> PortFuture<'_, Result<Box<dyn ChildHandle>, AgentError>> {
        let called = self.state_mut().agents.get(&call.agent).map(|agent| Arc::clone(&agent.0));
        let end = called.map_or_else(|| Err(no_other_agents()), |called| called(&call));
        let child = end.map(|end| -> Box<dyn ChildHandle> { Box::new(SimulatedChild::of(end)) });
        Box::pin(std::future::ready(child))
    }
}

// === impl SimulatedChild ===

impl SimulatedChild {
    fn of(end: ChildEnd) -> Self {
        let said = end.messages.iter().flat_map(|Message { id, role, parts, .. }| {
            let (message, role) = (id.clone(), role.clone());
            let started = MessageEvent::Started { message, role, times: None };
            let parts = parts.iter().cloned();
            let parts = parts.map(|part| MessageEvent::Part { message: id.clone(), part });
            let completed = MessageEvent::Completed { message: id.clone() };
            std::iter::once(started).chain(parts).chain([completed])
        });
        let events = said.map(Body::Message).collect();
        Self { run: RunId::generate(), thread: ThreadId::generate(), events, end }
    }
}

impl ChildHandle for SimulatedChild {
    fn run(&self) -> &RunId {
        &self.run
    }

    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn next(&mut self) -> PortFuture<'_, Result<Option<Body>, AgentError>> {
        let next = self.events.pop_front();
        Box::pin(std::future::ready(Ok(next)))
    }

    fn end(&self) -> PortFuture<'_, Result<ChildEnd, AgentError>> {
        let end = self.end.clone();
        Box::pin(std::future::ready(Ok(end)))
    }

    fn answer(
        &self,
        _interrupt: InterruptId,
        _answer: Answer,
    ) -> PortFuture<'_, Result<(), AgentError>> {
        let why = "the called agent asks nothing";
        let error = AgentError::new(Code::InterruptNotFound.as_str(), why);
        Box::pin(std::future::ready(Err(error)))
    }

    fn cancel(&self) -> PortFuture<'_, Result<(), AgentError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl fmt::Debug for SimulatedAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedAgent").finish_non_exhaustive()
    }
}

impl ClientCalls for Recorder {
    fn call_target(&self) -> Option<CallTarget> {
        self.state_mut().editor.as_ref().map(|editor| editor.target.clone())
    }

    fn call(&self, method: &str, params: Json) -> PortFuture<'_, Result<Json, CallRefusal>> {
        let handler = self.state_mut().editor.as_ref().map(|editor| Arc::clone(&editor.handler));
        let answer = handler.map_or_else(
            || Err(CallRefusal { code: -32603, message: "nobody is there".to_owned(), data: None }),
            |handler| handler(method, params),
        );
        Box::pin(async move { answer })
    }
}

impl fmt::Debug for SimulatedEditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedEditor").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Cancellation for Recorder {
    fn is_cancelled(&self) -> bool {
        *self.shared.cancelled.borrow()
    }

    fn cancelled(&self) -> PortFuture<'_, ()> {
        let mut cancelled = self.shared.cancelled.subscribe();
        Box::pin(async move {
            // The receiver cannot fail: this future borrows the sender.
            let _ = cancelled.wait_for(|cancelled| *cancelled).await;
        })
    }
}
