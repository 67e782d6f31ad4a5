//! The ports of a run in memory, for an author's own tests.
//!
//! A [`Recorder`] keeps what an agent emits, answers what it asks from a script, and can hold the agent back as a slow log would.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, watch};
use trilogue_domain::event::{RunEvent, StateEvent};
use trilogue_domain::lock;
use trilogue_domain::{Body, Event, Interrupt, Json, Message, Resolution, Timestamp, Transcript};

use crate::agent::{Agent, Outcome, Turn, run_turn};
use crate::context::RunInfo;
use crate::error::AgentError;
use crate::port::{
    CallRefusal, CallTarget, Cancellation, ClientCalls, Interrupts, Memory, Output, PortFuture,
};

/// The most events that a recorder keeps unless told otherwise.
pub const DEFAULT_CAPACITY_EVENTS: usize = 100_000;

/// The ports of one run, in memory. Clones are the same recorder.
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

/// What answers a call: its method and params go in, a result or a refusal comes out.
type CallHandler = Arc<dyn Fn(&str, Json) -> Result<Json, CallRefusal> + Send + Sync>;

struct SimulatedEditor {
    target: CallTarget,
    handler: CallHandler,
}

#[derive(Debug)]
struct State {
    events: Vec<Body>,
    editor: Option<SimulatedEditor>,
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
    /// A recorder that has room for this many events until [`Recorder::take`] makes room again.
    #[must_use]
    pub fn with_capacity(events: usize) -> Self {
        let state = State {
            events: Vec::new(),
            editor: None,
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

    /// Gives the run a past.
    #[must_use]
    pub fn with_history(self, messages: Vec<Message>) -> Self {
        self.state_mut().history = messages;
        self
    }

    /// Gives the thread a state.
    #[must_use]
    pub fn with_state(self, state: Json) -> Self {
        self.state_mut().state = Some(state);
        self
    }

    /// Gives the runs of [`Recorder::run`] a configuration.
    #[must_use]
    pub fn with_config(self, config: Json) -> Self {
        self.state_mut().config = Some(config);
        self
    }

    /// Runs one turn of an agent: a text, messages, a JSON value, or a whole [`Turn`].
    ///
    /// # Errors
    /// What the agent failed with.
    pub async fn run(
        &self,
        agent: &dyn Agent,
        turn: impl Into<Turn> + Send,
    ) -> Result<Outcome, AgentError> {
        let config = self.state_mut().config.clone();
        let info = RunInfo { config, ..RunInfo::sample("agent")? };
        run_turn(agent, turn.into(), info, Arc::new(self.clone())).await
    }

    /// Answers the next question that has no answer yet with this.
    #[must_use]
    pub fn answering(self, resolution: Resolution) -> Self {
        self.state_mut().answers.push_back(resolution);
        self
    }

    /// Plays an editor that can do this, in the words of the Agent Client Protocol, and answers its calls with this function.
    ///
    /// Params come without the session's id, which an agent does not know.
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

    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.shared.cancelled.send_replace(true);
    }

    /// Stops the run: nothing more is heard.
    pub fn stop(&self) {
        self.state_mut().stopped = true;
        self.shared.room.notify_waiters();
    }

    /// What was emitted so far.
    #[must_use]
    pub fn events(&self) -> Vec<Body> {
        self.state_mut().events.clone()
    }

    /// Takes what was emitted so far, and so makes room.
    #[must_use]
    pub fn take(&self) -> Vec<Body> {
        let events = std::mem::take(&mut self.state_mut().events);
        self.shared.room.notify_waiters();
        events
    }

    /// What was asked.
    #[must_use]
    pub fn asked(&self) -> Vec<Interrupt> {
        self.state_mut().asked.clone()
    }

    /// The thread's state as it was last set.
    #[must_use]
    pub fn state(&self) -> Option<Json> {
        self.state_mut().state.clone()
    }

    /// The agent's output: its result, or where it has given none the newest that it showed of it.
    #[must_use]
    pub fn output(&self) -> Option<Json> {
        self.state_mut().events.iter().rev().find_map(|body| match body {
            Body::Run(RunEvent::Result(value)) | Body::State(StateEvent::Output(value)) => {
                Some(value.clone())
            }
            _ => None,
        })
    }

    /// The agent's own updates, each with its kind, in order.
    #[must_use]
    pub fn updates(&self) -> Vec<(String, Json)> {
        let update = |body: &Body| match body {
            Body::State(StateEvent::Custom { kind, data }) => Some((kind.clone(), data.clone())),
            _ => None,
        };
        self.state_mut().events.iter().filter_map(update).collect()
    }

    /// The messages that the events make.
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
            return Err(AgentError::stopped());
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
        Box::pin(async move { if stopped { Err(AgentError::stopped()) } else { Ok(()) } })
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
            // The sender lives as long as this future borrows it.
            let _ = cancelled.wait_for(|cancelled| *cancelled).await;
        })
    }
}
