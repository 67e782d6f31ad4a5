//! Runs turns of agents at other servers, over the traits that each protocol implements.

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Body, Code, Failure, Input, Interrupt, InterruptId, Json};
use trilogue_runtime::{Backend, Ending, RunContext, Turn};
use trilogue_sdk::client::ClientError;

use super::Remote;
use super::follower::follow;
use super::memory::note_memory;

/// Begins, resumes and finds the runs of an agent at another server.
#[async_trait]
pub(crate) trait RemoteBackend: Send + Sync {
    type Turn: RemoteTurn;

    /// Begins a run at the server. Returns `None` if the run here was stopped first.
    async fn begin(
        &self,
        input: Input,
        context: &RunContext,
    ) -> Result<Option<Self::Turn>, Failure>;

    /// Answers the question of a run at the server. Returns `None` if the run here was stopped first.
    async fn resume(
        &self,
        saved: &Json,
        answer: &Answer,
        context: &RunContext,
    ) -> Result<Option<Self::Turn>, Failure>;

    /// Asks the server to cancel the run with this saved state.
    async fn cancel_saved(&self, saved: &Json) -> Result<(), Failure>;

    /// Finds a run at the server that was at work when this server stopped.
    async fn rejoin(&self, saved: &Json, context: &RunContext) -> Result<Self::Turn, Failure>;
}

/// One turn of a run at another server, in its protocol.
#[async_trait]
pub(crate) trait RemoteTurn: Send {
    type Event: Send;

    fn remote(&self) -> &Remote;

    /// Returns the run's id at the server, or `None` until it is known.
    fn run(&self) -> Option<String>;

    /// Returns the state to save so that the run can be found again, or `None` until it can be.
    fn state_to_save(&self) -> Result<Option<Json>, Failure>;

    /// Waits for the next event. Returns `None` if the stream has ended. Cancel-safe: dropping the future loses no event.
    async fn next(&mut self) -> Result<Option<Self::Event>, ClientError>;

    /// Requests the current state of the run, after its stream has ended. Returns `None` if the run is still at work.
    async fn current_state(&mut self) -> Result<Option<Self::Event>, ClientError>;

    /// Reads an event: what it adds to the log, and whether it ends the turn.
    /// Fails if the event cannot be logged.
    fn read(&mut self, event: Self::Event) -> Result<RemoteUpdate>;

    /// Asks the server to cancel the run.
    async fn cancel(&mut self) -> Result<(), ClientError>;

    /// Returns whether the server can cancel the run yet: by default, once its id is known.
    fn can_cancel(&self) -> bool {
        self.run().is_some()
    }

    /// Returns the failure of a run that is out of reach.
    fn lost_failure(&self, error: &ClientError) -> Failure {
        self.remote().lost_failure(error, self.run().as_deref())
    }
}

/// The content of an event of a remote run.
#[derive(Debug)]
pub(crate) struct RemoteUpdate {
    pub(crate) bodies: Vec<Body>,
    /// How the turn ended. `None` while it continues.
    pub(crate) ending: Option<RemoteEnding>,
}

/// How a turn ended at the server.
#[derive(Debug)]
pub(crate) enum RemoteEnding {
    Completed,
    /// The run was cancelled, by this server or by another client of the agent's server.
    Cancelled,
    Failed(Failure),
    Suspended {
        interrupt: Box<Interrupt>,
        saved: Json,
    },
}

// === impl RemoteEnding ===

impl RemoteEnding {
    /// Returns a question of the run, with the state to save. Returns a failure if the state cannot be written as JSON.
    pub(crate) fn suspended_by(interrupt: Interrupt, kept: &impl Serialize) -> Self {
        match state(kept) {
            Ok(saved) => Self::Suspended { interrupt: Box::new(interrupt), saved },
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// Executes a turn of an agent at another server.
pub(crate) async fn run<A: RemoteBackend + Backend>(
    agent: &A,
    turn: Turn,
    context: &RunContext,
) -> Result<Ending, Failure> {
    if !matches!(turn, Turn::Start { .. }) {
        note_memory(context).await?;
    }
    let turn = match turn {
        Turn::Start { input } => agent.begin(input, context).await?,
        Turn::Resume { mut interrupt, answer, saved } => {
            match agent.resume(&saved, &answer, context).await {
                Ok(turn) => turn,
                Err(failure) if failure.code == Code::PeerUnavailable.as_str() => {
                    // The answer has certainly not reached the server, and the run there still waits. So ask the question again, with a new id.
                    let (agent, run) = (context.agent(), context.run());
                    tracing::warn!(%agent, %run, message = failure.message, "an answer did not reach the agent's server");
                    interrupt.id = InterruptId::generate();
                    return Ok(Ending::Suspended { interrupt, saved });
                }
                Err(failure) => {
                    // The run may still wait at the server, for an answer that will never come.
                    abandon(agent, &saved).await;
                    return Err(failure);
                }
            }
        }
        Turn::Rejoin { saved } => Some(agent.rejoin(&saved, context).await?),
    };
    match turn {
        Some(turn) => follow(turn, context).await,
        None => Ok(Ending::Completed),
    }
}

/// Asks the server to cancel a run that no longer has a reader here. Best effort: an error is only logged.
pub(crate) async fn abandon<A: RemoteBackend + Backend>(agent: &A, saved: &Json) {
    if let Err(failure) = agent.cancel_saved(saved).await {
        let agent = &agent.card().name;
        tracing::info!(%agent, saved = saved.as_str(), error = failure.message, "a run at another server could not be cancelled");
    }
}

/// Reads the saved state of a run at a server, as [`state`] wrote it.
pub(crate) fn read_state<T: DeserializeOwned>(saved: &Json) -> Result<T, Failure> {
    serde_json::from_slice(saved.as_bytes()).map_err(|_| {
        Failure::of(Code::Internal, "what was kept of the run at the agent's server is unreadable")
    })
}

/// Writes the state of a run at a server as JSON, so that the run can be found again.
pub(crate) fn state<T: Serialize>(state: &T) -> Result<Json, Failure> {
    let state = serde_json::to_value(state).map(|state| Json::from_value(&state));
    state.map_err(|_| Failure::of(Code::Internal, "the run's state has no JSON"))
}
