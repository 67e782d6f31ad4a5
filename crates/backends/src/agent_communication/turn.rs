//! One turn: a run at the agent's server is begun, resumed or found again, and followed until it ends or asks.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use trilogue_domain::event::{MessageEvent, RunEvent};
use trilogue_domain::{Answer, Body, Code, Failure, Input, Json, Role};
use trilogue_mapping::communication::{
    LoggedPosition, RemoteRun, remote_answer, remote_failure, remote_input, remote_interrupt,
};
use trilogue_runtime::{EmitError, Ending, MemoryState, RunContext, Turn};
use trilogue_sdk::client::ClientError;
use trilogue_sdk::communication::{NewRun, Resume, RunStream};
use trilogue_wire::agent_communication::{Event, EventKind, Message, Run, RunStatus, Uuid};

use super::{AgentCommunication, is_unreached};

/// How often a request that has not reached the server is sent again.
const ATTEMPTS: u32 = 3;
/// How long to wait before the second attempt; doubles with each.
const DELAY: std::time::Duration = std::time::Duration::from_millis(200);

/// What is kept of a run at the server, so that it is found again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RemoteState {
    run: String,
    /// The id of its question there, where the server gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interrupt: Option<String>,
    /// How many messages the run has begun, and how many of its output are complete.
    #[serde(default)]
    messages: (u32, usize),
}

pub(super) async fn run(
    agent: &AgentCommunication,
    turn: Turn,
    context: &RunContext,
) -> Result<Ending, Failure> {
    let role = Role::NamedAgent(context.agent().as_str().into());
    let (stream, remote) = match turn {
        Turn::Start { input } => {
            let stream = begin(agent, &input, context).await?;
            (stream, RemoteRun::new(context.run().as_str(), role))
        }
        Turn::Resume { answer, saved, .. } => {
            let (run, state) = read_state(&saved)?;
            let remote = RemoteRun::new(context.run().as_str(), role).resumed(state.messages);
            (Some(resume(agent, run, &state, &answer).await?), remote)
        }
        Turn::Rejoin { saved } => {
            let (run, _) = read_state(&saved)?;
            let logged = logged(context).await?;
            let stream = agent.client.follow(run, None);
            let remote = RemoteRun::new(context.run().as_str(), role).from_log(logged);
            return RunFollower { agent, stream, remote, context, is_rejoined: true }.end().await;
        }
    };
    let Some(stream) = stream else { return Ok(Ending::Completed) };
    RunFollower { agent, stream, remote, context, is_rejoined: false }.end().await
}

/// How much of the remote run's output this run has logged. Its unfinished message goes on.
async fn logged(context: &RunContext) -> Result<LoggedPosition, Failure> {
    let mut position = LoggedPosition::default();
    let mut begun = false;
    let mut of_users = HashSet::new();
    let mut open = None;
    let read = context.each_event(|event| match &event.body {
        Body::Run(RunEvent::Started) => begun = true,
        Body::Run(_) | Body::Interrupt(_) | Body::Thread(_) => {}
        _ if !begun => {}
        body => {
            if let Body::Message(message) = body {
                match message {
                    MessageEvent::Started { message, role, .. } if role.is_user() => {
                        of_users.insert(message.clone());
                    }
                    MessageEvent::Started { message, role, .. } => {
                        open = Some((message.clone(), role.clone()));
                    }
                    MessageEvent::Completed { message } => {
                        open.take_if(|(open, _)| open == message);
                    }
                    _ => {}
                }
                if message.message().is_some_and(|id| of_users.contains(id)) {
                    return;
                }
            }
            position.count(body);
        }
    });
    read.await.map_err(|error| Failure::of(error.code(), error.message()))?;
    if let Some((message, role)) = open {
        context.continue_message(&message, &role);
    }
    Ok(position)
}

/// Tells the server that nobody waits for a run any more. What it answers changes nothing.
pub(super) async fn abandon(agent: &AgentCommunication, saved: &Json) {
    if let Ok((run, _)) = read_state(saved) {
        cancel(agent, Some(run)).await;
    }
}

fn read_state(saved: &Json) -> Result<(Uuid, RemoteState), Failure> {
    let state = serde_json::from_value(saved.to_value()).ok();
    let state = state.and_then(|state: RemoteState| Some((state.run.parse().ok()?, state)));
    let unreadable = "what was kept of the run at the agent's server is unreadable";
    state.ok_or_else(|| Failure::of(Code::Internal, unreadable))
}

/// Begins a run there; `None` where the run here was stopped before.
async fn begin(
    agent: &AgentCommunication,
    input: &Input,
    context: &RunContext,
) -> Result<Option<RunStream>, Failure> {
    let failed = |error: trilogue_domain::Error| Failure::of(error.code(), error.message());
    let (session, missed) = match context.memory_state().await.map_err(failed)? {
        MemoryState::Bound { binding, missed } => (binding.remote.parse().ok(), missed),
        MemoryState::Unbound | MemoryState::Rewound { .. } => {
            (None, context.history().await.map_err(failed)?)
        }
    };
    let session: Uuid = session.unwrap_or_else(Uuid::generate);
    if context.bind(&session.to_string(), Json::empty_object()).await.is_err() {
        return Ok(None);
    }
    let messages: Vec<Message> = remote_input(&missed, input);
    let mut new = NewRun::new(&agent.remote.agent, messages).in_session(session);
    if agent.is_ours {
        new = new.once(context.run().as_str());
        if let Some(config) = context.config() {
            new = new.config(config.to_value());
        }
    }
    let begun = attempt(|| agent.client.run_stream(new.clone()), context).await;
    begun.transpose().map_err(|error| agent.not_begun(&error, None))
}

/// Sends again what has certainly not reached the server; `None` where the run here was stopped before.
async fn attempt<T, F: Future<Output = Result<T, ClientError>>>(
    send: impl Fn() -> F,
    context: &RunContext,
) -> Option<Result<T, ClientError>> {
    let mut delay = DELAY;
    for _ in 1..ATTEMPTS {
        match send().await {
            Err(error) if is_unreached(&error) => {}
            sent => return Some(sent),
        }
        tokio::select! {
            () = context.cancelled() => return None,
            () = tokio::time::sleep(delay) => delay *= 2,
        }
    }
    Some(send().await)
}

async fn resume(
    agent: &AgentCommunication,
    run: Uuid,
    state: &RemoteState,
    answer: &Answer,
) -> Result<RunStream, Failure> {
    let mut resume = Resume::from(remote_answer(answer));
    if let Some(interrupt) = &state.interrupt {
        resume = resume.to(interrupt);
    }
    let resumed = agent.client.resume_stream(run, resume).await;
    resumed.map_err(|error| agent.not_begun(&error, Some(run)))
}

/// Logs what a run at the server does, until it ends or asks.
struct RunFollower<'a> {
    agent: &'a AgentCommunication,
    stream: RunStream,
    remote: RemoteRun,
    context: &'a RunContext,
    /// Whether the stream begins with what happened before, so that a question in it may have been answered.
    is_rejoined: bool,
}

impl RunFollower<'_> {
    async fn end(mut self) -> Result<Ending, Failure> {
        let mut is_cancelling = false;
        let mut is_kept = false;
        loop {
            let next = tokio::select! {
                biased;
                next = self.stream.next() => next,
                () = self.context.cancelled(), if !is_cancelling => {
                    is_cancelling = true;
                    cancel(self.agent, self.stream.run()).await;
                    continue;
                }
            };
            let run = self.stream.run();
            if let Some(run) = run.filter(|_| !is_kept) {
                is_kept = true;
                self.context.keep(saved(&RemoteState::of(run))?);
            }
            let (event, is_last) = match next {
                Ok(Some(streamed)) => (streamed.event, false),
                Ok(None) => (ended(self.agent, run).await?, true),
                Err(_) if is_cancelling => return Ok(Ending::Completed),
                Err(error) => return Err(self.agent.lost(&error, run)),
            };
            let is_past = self.is_rejoined && !is_last && event.kind() == EventKind::RunAwaiting;
            let ending = if is_past { None } else { ending(self.agent, &event, is_cancelling) };
            if !self.log(event).await? {
                return Ok(Ending::Completed);
            }
            if let Some(ending) = ending {
                return settle(self.agent, ending?, &self.remote);
            }
        }
    }

    /// `false` where the run here was stopped.
    async fn log(&mut self, event: Event) -> Result<bool, Failure> {
        let run = self.stream.run();
        let unreadable = |error| self.agent.unreadable(&error, run);
        for body in self.remote.push(event).map_err(unreadable)? {
            match self.context.emit(body, None).await {
                Ok(()) => {}
                Err(EmitError::Stopped) => return Ok(false),
                Err(EmitError::Refused(error)) => return Err(unreadable(error)),
            }
        }
        Ok(true)
    }
}

/// How a turn ended at the server.
enum RemoteEnding {
    Completed,
    Awaiting(Box<Run>),
}

/// Whether an event ends the turn, and how.
fn ending(
    agent: &AgentCommunication,
    event: &Event,
    is_cancelling: bool,
) -> Option<Result<RemoteEnding, Failure>> {
    let run = event.run()?;
    let details = || Some(agent.details(Some(run.run_id)));
    match event {
        Event::RunCompleted { .. } => Some(Ok(RemoteEnding::Completed)),
        Event::RunAwaiting { run } => Some(Ok(RemoteEnding::Awaiting(run.clone()))),
        Event::RunCancelled { .. } if is_cancelling => Some(Ok(RemoteEnding::Completed)),
        Event::RunCancelled { .. } => {
            let failure =
                Failure::of(Code::AgentFailed, "the run was cancelled at the agent's server");
            Some(Err(Failure { data: details(), ..failure }))
        }
        Event::RunFailed { run } => Some(Err(match &run.error {
            Some(error) => remote_failure(error),
            None => Failure {
                data: details(),
                ..Failure::of(
                    Code::AgentFailed,
                    "the run failed at the agent's server, which does not say why",
                )
            },
        })),
        _ => None,
    }
}

fn settle(
    agent: &AgentCommunication,
    ending: RemoteEnding,
    remote: &RemoteRun,
) -> Result<Ending, Failure> {
    let run = match ending {
        RemoteEnding::Completed => return Ok(Ending::Completed),
        RemoteEnding::Awaiting(run) => run,
    };
    let (interrupt, theirs) =
        remote_interrupt(&run).map_err(|error| agent.unreadable(&error, Some(run.run_id)))?;
    let messages = remote.progress();
    let state = RemoteState { interrupt: theirs, messages, ..RemoteState::of(run.run_id) };
    Ok(Ending::Suspended { interrupt: Box::new(interrupt), saved: saved(&state)? })
}

// === impl RemoteState ===

impl RemoteState {
    fn of(run: Uuid) -> Self {
        Self { run: run.to_string(), interrupt: None, messages: (0, 0) }
    }
}

fn saved(state: &RemoteState) -> Result<Json, Failure> {
    let state = serde_json::to_value(state).map(|state| Json::from_value(&state));
    state.map_err(|_| Failure::of(Code::Internal, "the run's state has no JSON"))
}

/// How a run stands whose stream is over without a word about its end.
async fn ended(agent: &AgentCommunication, run: Option<Uuid>) -> Result<Event, Failure> {
    let unknown = || ClientError::Unexpected("its stream ended, and the run has not".to_owned());
    let Some(id) = run else { return Err(agent.lost(&unknown(), None)) };
    let found = agent.client.run(id).await.map_err(|error| agent.lost(&error, run))?;
    event_of(found).ok_or_else(|| agent.lost(&unknown(), run))
}

/// The event with which a run in this status stands still.
fn event_of(run: Run) -> Option<Event> {
    let run = Box::new(run);
    match run.status {
        RunStatus::Awaiting => Some(Event::RunAwaiting { run }),
        RunStatus::Completed => Some(Event::RunCompleted { run }),
        RunStatus::Failed => Some(Event::RunFailed { run }),
        RunStatus::Cancelled => Some(Event::RunCancelled { run }),
        RunStatus::Created | RunStatus::InProgress | RunStatus::Cancelling => None,
    }
}

async fn cancel(agent: &AgentCommunication, run: Option<Uuid>) {
    let Some(run) = run else { return };
    if let Err(error) = agent.client.cancel(run).await {
        tracing::info!(agent = %agent.card.name, %run, %error, "a run at another server could not be cancelled");
    }
}
