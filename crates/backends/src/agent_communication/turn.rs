//! One turn: begins, resumes or finds the run at the agent's server, and reads its events.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Failure, Input, Json, Role};
use trilogue_mapping::communication::{
    RemoteProgress, RemoteRun, remote_answer, remote_failure, remote_input, remote_interrupt,
};
use trilogue_mapping::fidelity::FidelityLoss;
use trilogue_mapping::provenance::provenance_headers;
use trilogue_runtime::RunContext;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::communication::{Client, NewRun, Resume, RunStream};
use trilogue_wire::agent_communication::{Event, EventKind, Message, Run, Uuid};

use super::AgentCommunication;
use crate::loss::LossLog;
use crate::remote::{
    Remote, RemoteBackend, RemoteEnding, RemoteMemory, RemoteTurn, RemoteUpdate, attempt, bind,
    log_position, memory, read_state, state,
};

/// The stored state of a run at the server, by which the run is found again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CommunicationRunState {
    run: String,
    /// The id of its question there, if the server gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interrupt: Option<String>,
    /// The progress of the run's messages when the run asked.
    #[serde(default)]
    progress: RemoteProgress,
}

pub(crate) struct CommunicationTurn {
    remote: Arc<Remote>,
    client: Client,
    stream: RunStream,
    read: RemoteRun,
    /// Whether the stream starts with earlier events, so that a question in it may already be answered.
    is_rejoined: bool,
    /// Whether the server ended its stream and was then asked for the run's status.
    is_last: bool,
}

// === impl AgentCommunication ===

impl AgentCommunication {
    fn turn(&self, stream: RunStream, context: &RunContext) -> CommunicationTurn {
        let role = Role::NamedAgent(context.agent().as_str().into());
        CommunicationTurn {
            remote: Arc::clone(&self.remote),
            client: self.client.clone(),
            stream,
            read: RemoteRun::new(context.run().as_str(), role)
                .at_ours(self.is_ours())
                .under_rules(context.rules()),
            is_rejoined: false,
            is_last: false,
        }
    }

    fn begin_failure(&self, error: &ClientError, run: Option<Uuid>) -> Failure {
        match error {
            ClientError::Refused(refusal) if !refusal.is_foreign() => remote_failure(&refusal.body),
            error => self.remote.begin_failure(error, run.map(|run| run.to_string()).as_deref()),
        }
    }
}

#[async_trait]
impl RemoteBackend for AgentCommunication {
    type Turn = CommunicationTurn;

    async fn begin(
        &self,
        input: Input,
        context: &RunContext,
    ) -> Result<Option<CommunicationTurn>, Failure> {
        let RemoteMemory { session, missed } = memory(context).await?;
        let session = session.and_then(|session| session.parse().ok());
        let session = session.unwrap_or_else(Uuid::generate);
        if !bind(context, &session.to_string()).await {
            return Ok(None);
        }
        let mut losses = LossLog::default();
        let is_cut = missed.is_cut;
        losses.log(is_cut.then_some(FidelityLoss::COMMUNICATION_HISTORY), context).await;
        let messages: Vec<Message> = remote_input(&missed.messages, &input);
        // The input has what it needs of it, and the run can take long.
        drop(missed);
        let mut new = NewRun::new(&self.remote.agent, messages)
            .in_session(session)
            .headers(provenance_headers(context.forwarded_provenance()));
        if self.is_ours() {
            new = new.idempotency_key(context.run().as_str());
            if let Some(config) = context.config() {
                new = new.config(config);
            }
        } else if context.config().is_some() {
            losses.log([FidelityLoss::SETTINGS], context).await;
        }
        match attempt(|| self.start_run(&new, context), &self.remote.server, context).await {
            Some(Ok(stream)) => Ok(stream.map(|stream| self.turn(stream, context))),
            Some(Err(error)) => Err(self.begin_failure(&error, None)),
            None => Ok(None),
        }
    }

    async fn resume(
        &self,
        saved: &Json,
        answer: &Answer,
        context: &RunContext,
    ) -> Result<Option<CommunicationTurn>, Failure> {
        let (run, CommunicationRunState { interrupt, progress, .. }) =
            CommunicationRunState::read(saved)?;
        let mut resume = Resume::from(remote_answer(answer));
        if let Some(interrupt) = &interrupt {
            resume = resume.for_interrupt(interrupt);
        }
        match attempt(|| self.resume_run(run, &resume), &self.remote.server, context).await {
            Some(Ok(stream)) => {
                let turn = self.turn(stream, context);
                let read = turn.read.with_progress(progress);
                if let Some((message, role)) = read.open_message() {
                    context.continue_message(message, role);
                }
                Ok(Some(CommunicationTurn { read, ..turn }))
            }
            Some(Err(error)) => Err(self.begin_failure(&error, Some(run))),
            None => Ok(None),
        }
    }

    async fn cancel_saved(&self, saved: &Json) -> Result<(), Failure> {
        let (run, _) = CommunicationRunState::read(saved)?;
        let cancelled = self.client.cancel(run).await;
        cancelled.map(drop).map_err(|error| self.begin_failure(&error, Some(run)))
    }

    async fn rejoin(
        &self,
        saved: &Json,
        context: &RunContext,
    ) -> Result<CommunicationTurn, Failure> {
        let (run, _) = CommunicationRunState::read(saved)?;
        let position = log_position(context).await?;
        let turn = self.turn(self.client.follow(run, None), context);
        Ok(CommunicationTurn { read: turn.read.from_log(position), is_rejoined: true, ..turn })
    }
}

// === impl CommunicationTurn ===

#[async_trait]
impl RemoteTurn for CommunicationTurn {
    type Event = Event;

    fn remote(&self) -> &Remote {
        &self.remote
    }

    fn run(&self) -> Option<String> {
        self.stream.run().map(|run| run.to_string())
    }

    fn state_to_save(&self) -> Result<Option<Json>, Failure> {
        self.stream.run().map(|run| state(&CommunicationRunState::of(run))).transpose()
    }

    async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        Ok(self.stream.next().await?.map(|streamed| streamed.event))
    }

    async fn current_state(&mut self) -> Result<Option<Event>, ClientError> {
        let Some(run) = self.stream.run() else { return Ok(None) };
        self.is_last = true;
        Ok(Event::of_standing(self.client.run(run).await?))
    }

    fn read(&mut self, event: Event) -> Result<RemoteUpdate> {
        let is_past = self.is_rejoined && !self.is_last && event.kind() == EventKind::RunAwaiting;
        let ended = if is_past { None } else { RemoteTurnEnd::by(&event) };
        let bodies = self.read.push(event)?;
        let ending = ended.map(|ended| self.ending(ended)).transpose()?;
        Ok(RemoteUpdate { bodies, ending })
    }

    fn lost_failure(&self, error: &ClientError) -> Failure {
        match error {
            // The server reports why the run failed. The error may also mean only that this stream ends.
            ClientError::Refused(refusal) if refusal.status.is_none() && !error.is_transient() => {
                remote_failure(&refusal.body)
            }
            error => self.remote.lost_failure(error, self.run().as_deref()),
        }
    }

    async fn cancel(&mut self) -> Result<(), ClientError> {
        match self.stream.run() {
            Some(run) => self.client.cancel(run).await.map(drop),
            None => Ok(()),
        }
    }
}

impl CommunicationTurn {
    fn ending(&self, ended: RemoteTurnEnd) -> Result<RemoteEnding> {
        let run = match ended {
            RemoteTurnEnd::Completed => return Ok(RemoteEnding::Completed),
            RemoteTurnEnd::Cancelled => return Ok(RemoteEnding::Cancelled),
            RemoteTurnEnd::Failed(run) => {
                let silent = "the run failed at the agent's server, which does not say why";
                return Ok(RemoteEnding::Failed(match &run.error {
                    Some(error) => remote_failure(error),
                    None => self.remote.run_failure(silent, Some(&run.run_id.to_string())),
                }));
            }
            RemoteTurnEnd::Awaiting(run) => run,
        };
        let (interrupt, theirs) = remote_interrupt(&run)?;
        let saved = CommunicationRunState {
            interrupt: theirs,
            progress: self.read.progress().clone(),
            ..CommunicationRunState::of(run.run_id)
        };
        Ok(RemoteEnding::suspended_by(interrupt, &saved))
    }
}

/// The end of a turn at the server.
enum RemoteTurnEnd {
    Completed,
    Cancelled,
    Failed(Box<Run>),
    Awaiting(Box<Run>),
}

// === impl RemoteTurnEnd ===

impl RemoteTurnEnd {
    /// `None` if the event does not end the turn.
    fn by(event: &Event) -> Option<Self> {
        match event {
            Event::RunCompleted { .. } => Some(Self::Completed),
            Event::RunCancelled { .. } => Some(Self::Cancelled),
            Event::RunFailed { run } => Some(Self::Failed(run.clone())),
            Event::RunAwaiting { run } => Some(Self::Awaiting(run.clone())),
            _ => None,
        }
    }
}

// === impl CommunicationRunState ===

impl CommunicationRunState {
    fn read(saved: &Json) -> Result<(Uuid, Self), Failure> {
        let state: Self = read_state(saved)?;
        let malformed =
            |_| Failure::of(Code::Internal, "invalid saved state: the run's id is malformed");
        Ok((state.run.parse().map_err(malformed)?, state))
    }

    fn of(run: Uuid) -> Self {
        Self { run: run.to_string(), interrupt: None, progress: RemoteProgress::default() }
    }
}
