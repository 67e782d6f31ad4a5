//! A session and its turns.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::run::Outcome as RunOutcome;
use trilogue_domain::{
    Code, Failure, Interrupt, Json, Message, MessageId, Resolution, RunId, SystemPrompt, ThreadId,
    lock,
};
use trilogue_mapping::agent_client as mapping;
use trilogue_mapping::shape;
use trilogue_wire::agent_client::{
    PromptCapabilities, PromptRequest, SessionConfigOption, SetSessionConfigOptionRequest,
};
use trilogue_wire::jsonrpc::{self, ErrorObject};

use super::connection::StdioConnection;
use super::ports::{self, StdioPorts};
use crate::agent::{Input, Outcome, Turn, run_turn};
use crate::agent_client::peer::{Peer, RawJson};
use crate::context::RunInfo;

pub(super) struct StdioSession {
    pub(super) connection: Arc<StdioConnection>,
    pub(super) peer: Peer,
    pub(super) thread: ThreadId,
    state: Arc<Mutex<State>>,
}

/// The response to a prompt.
pub(super) type PromptEnd = Result<RawJson, ErrorObject>;

#[derive(Default)]
pub(super) struct State {
    pub(super) history: Vec<Message>,
    pub(super) values: Option<Json>,
    pub(super) config: Option<Json>,
    pub(super) system_prompt: Option<SystemPrompt>,
    /// The number of runs so far.
    runs: u64,
    /// Cancels the running turn.
    turn: Option<CancellationToken>,
    /// The prompt that still waits for its response.
    prompt: Option<OpenPrompt>,
    /// The question that ended the last turn's text. The next prompt answers it.
    question: Option<OpenQuestion>,
}

/// A prompt that waits for the end of its turn.
struct OpenPrompt {
    run: u64,
    /// The id of its message, if the session keeps the message.
    acknowledged: Option<MessageId>,
    end: oneshot::Sender<PromptEnd>,
}

/// A question that waits for a prompt.
struct OpenQuestion {
    run: u64,
    interrupt: Interrupt,
    answer: oneshot::Sender<Resolution>,
}

// === impl StdioSession ===

impl StdioSession {
    pub(super) fn new(connection: Arc<StdioConnection>, peer: Peer) -> Self {
        Self { connection, peer, thread: ThreadId::generate(), state: Arc::default() }
    }

    pub(super) fn id(&self) -> &str {
        self.thread.as_str()
    }

    /// Begins a turn, or answers the question that ended the last turn. The receiver gets the response to the prompt.
    pub(super) fn prompt(
        self: &Arc<Self>,
        request: &PromptRequest,
    ) -> Result<oneshot::Receiver<PromptEnd>, ErrorObject> {
        let refused = |error| mapping::error_object(&error);
        let card = &self.connection.card;
        let all = PromptCapabilities::default();
        let capabilities = mapping::initialize_result(card, None).agent_capabilities;
        let takes = capabilities.and_then(|capabilities| capabilities.prompt).unwrap_or(all);
        mapping::check_capabilities(&request.prompt, &takes).map_err(refused)?;
        let now = SystemClock.now();
        let mut state = self.state();
        let (id, acknowledged) = message_id(request.message_id.as_deref(), &state.history);
        let message = Message {
            created_at: Some(now),
            completed_at: Some(now),
            ..mapping::message_of_prompt(&request.prompt, id)
        };
        let (sender, receiver) = oneshot::channel();
        if state.prompt.is_some() {
            let message = "a turn of this session is at work";
            return Err(ErrorObject::new(jsonrpc::Code::INVALID_REQUEST, message));
        }
        if let Some(OpenQuestion { interrupt, .. }) = &state.question {
            let answer = mapping::answer_of_prompt(interrupt, &message).ok_or_else(|| {
                let why = "the prompt does not answer the question";
                refused(trilogue_domain::Error::new(Code::AnswerInvalid, why))
            })?;
            let digest = interrupt.payload.digest();
            if let Some(question) = state.question.take() {
                // An answer to a question is not a message of the history.
                let (run, acknowledged) = (question.run, None);
                state.prompt = Some(OpenPrompt { run, acknowledged, end: sender });
                // A run that was cancelled meanwhile still answers its prompt.
                drop(question.answer.send(ports::answer_resolution(answer, digest)));
            }
            return Ok(receiver);
        }
        let messages = trilogue_domain::Input::Messages(vec![message.clone()]);
        let input = match shape::input(card, messages, now).map_err(refused)? {
            trilogue_domain::Input::Messages(messages) => Input::Messages(messages),
            trilogue_domain::Input::Value(value) => Input::Value(value),
        };
        let cancelled = CancellationToken::new();
        state.runs += 1;
        let run = state.runs;
        state.turn = Some(cancelled.clone());
        state.prompt = Some(OpenPrompt { run, acknowledged, end: sender });
        drop(state);
        tokio::spawn(Arc::clone(self).run(run, Turn::Start { input }, message, cancelled));
        Ok(receiver)
    }

    /// Requests cancellation of the running turn. Drops its question in text, so that the next prompt counts as a new turn.
    pub(super) fn cancel(&self) {
        let mut state = self.state();
        state.question = None;
        if let Some(turn) = &state.turn {
            turn.cancel();
        }
    }

    /// Sets a configuration option of the agent and returns all options.
    pub(super) fn set_config_option(
        &self,
        request: &SetSessionConfigOptionRequest,
    ) -> Result<Vec<SessionConfigOption>, ErrorObject> {
        let card = &self.connection.card;
        let mut state = self.state();
        let config = mapping::set_config_option(card, state.config.as_ref(), request)
            .map_err(|error| mapping::error_object(&error))?;
        let options = mapping::config_options(card, Some(&config));
        state.config = Some(config);
        Ok(mapping::for_client(options, &self.connection.client().capabilities))
    }

    /// Ends the prompt with a question in text. The next prompt answers it.
    pub(super) fn ask_in_text(
        &self,
        run: u64,
        interrupt: Interrupt,
    ) -> oneshot::Receiver<Resolution> {
        let (answer, receiver) = oneshot::channel();
        // The question is set before the response, so that the next prompt finds it.
        self.state().question = Some(OpenQuestion { run, interrupt, answer });
        self.answer_prompt(run, &RunOutcome::Completed);
        receiver
    }

    async fn run(
        self: Arc<Self>,
        number: u64,
        mut turn: Turn,
        prompt: Message,
        cancelled: CancellationToken,
    ) {
        let run = RunId::generate();
        let ports = StdioPorts::new(Arc::clone(&self), number, run.clone(), cancelled.clone());
        let ports = Arc::new(ports);
        let info = RunInfo {
            run,
            thread: self.thread.clone(),
            agent: self.connection.card.name.clone(),
            config: self.state().config.clone(),
        };
        let outcome = loop {
            match self.run_once(turn, info.clone(), &ports, &cancelled).await {
                Ok(Outcome::Completed) => break RunOutcome::Completed,
                Ok(Outcome::Suspended { interrupt, saved }) => {
                    let Resolution::Answered { answer, .. } = ports.resolve(&interrupt).await
                    else {
                        break RunOutcome::Cancelled { reason: None };
                    };
                    turn = Turn::Resume { interrupt, answer, saved };
                }
                Err(outcome) => break outcome,
            }
        };
        let (messages, values) = ports.finish(&outcome);
        {
            let mut state = self.state();
            if outcome == RunOutcome::Completed {
                state.values = values.or(state.values.take());
            }
            state.history.push(prompt);
            state.history.extend(messages);
            let excess = state.history.len();
            let excess = excess.saturating_sub(self.connection.options.max_history_messages);
            state.history.drain(..excess);
            if state.runs == number {
                (state.turn, state.question) = (None, None);
            }
        }
        // The response comes last, because the editor may send the next prompt as soon as it has it.
        self.answer_prompt(number, &outcome);
    }

    /// Runs one turn in a separate task, so that a panic ends only this turn.
    async fn run_once(
        &self,
        turn: Turn,
        info: RunInfo,
        ports: &Arc<StdioPorts>,
        cancelled: &CancellationToken,
    ) -> Result<Outcome, RunOutcome> {
        let (agent, host) = (Arc::clone(&self.connection.agent), Arc::clone(ports));
        let mut task =
            tokio::spawn(async move { run_turn(agent.as_ref(), turn, info, host).await });
        let grace = self.connection.options.cancel_grace;
        let given_up = async {
            cancelled.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            () = given_up => {
                task.abort();
                return Err(RunOutcome::Cancelled { reason: None });
            }
        };
        match ended {
            _ if cancelled.is_cancelled() => Err(RunOutcome::Cancelled { reason: None }),
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) if error.is_stopped() => Err(RunOutcome::Cancelled { reason: None }),
            Ok(Err(error)) => Err(RunOutcome::Failed(error.into_failure())),
            Err(_) => {
                Err(RunOutcome::Failed(Failure::of(Code::AgentPanicked, "the agent panicked")))
            }
        }
    }

    /// Responds to the prompt that waits for this run, if any.
    fn answer_prompt(&self, run: u64, outcome: &RunOutcome) {
        let Some(prompt) = self.state().prompt.take_if(|prompt| prompt.run == run) else { return };
        let id = prompt.acknowledged.as_ref().map(MessageId::as_str);
        let result = mapping::prompt_result(outcome, None, id);
        let result = result.and_then(|json| {
            RawJson::parse(json).map_err(|_| ErrorObject::of(jsonrpc::Code::INTERNAL_ERROR))
        });
        // If the editor has gone, no response is needed.
        drop(prompt.end.send(result));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Returns the id of a prompt's message, and the id for its response. An id that is invalid or already used is replaced and not acknowledged.
fn message_id(given: Option<&str>, history: &[Message]) -> (MessageId, Option<MessageId>) {
    let is_new = |id: &MessageId| history.iter().all(|message| message.id != *id);
    let kept = given.map(|given| MessageId::parse(given).ok().filter(is_new));
    match kept {
        Some(None) => (MessageId::generate(), None),
        kept => {
            let id = kept.flatten().unwrap_or_else(MessageId::generate);
            (id.clone(), Some(id))
        }
    }
}

impl std::fmt::Debug for StdioSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StdioSession").field("id", &self.id()).finish_non_exhaustive()
    }
}
