//! What a protocol brings so that an agent at another server can be run.

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

/// An agent at another server: how its runs are begun, resumed and found again.
#[async_trait]
pub(crate) trait RemoteBackend: Send + Sync {
    type Turn: RemoteTurn;

    /// Begins a run there; `None` where the run here was stopped before.
    async fn begin(
        &self,
        input: Input,
        context: &RunContext,
    ) -> Result<Option<Self::Turn>, Failure>;

    /// Answers a run there; `None` where the run here was stopped before.
    async fn resume(
        &self,
        saved: &Json,
        answer: &Answer,
        context: &RunContext,
    ) -> Result<Option<Self::Turn>, Failure>;

    /// Asks the server to cancel a run there of which this was kept.
    async fn cancel_kept(&self, saved: &Json) -> Result<(), ClientError>;

    /// Finds a run there again that was at work when this server stopped.
    async fn rejoin(&self, saved: &Json, context: &RunContext) -> Result<Self::Turn, Failure>;
}

/// One turn of a run at another server, as its protocol tells of it.
#[async_trait]
pub(crate) trait RemoteTurn: Send {
    type Event: Send;

    fn remote(&self) -> &Remote;

    /// The run's id there, as soon as it is known.
    fn run(&self) -> Option<String>;

    /// What is kept so that the run is found again, once that is possible.
    fn saved(&self) -> Result<Option<Json>, Failure>;

    /// What the server tells next; `None` where it tells no more. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Option<Self::Event>, ClientError>;

    /// How the run stands, asked for where the server told no more; `None` where it is still at work.
    async fn standing(&mut self) -> Result<Option<Self::Event>, ClientError>;

    /// What an event adds to the log, and whether the turn ends with it.
    /// Fails where it cannot be kept.
    fn read(&mut self, event: Self::Event) -> Result<RemoteNews>;

    /// Asks the server to cancel the run.
    async fn cancel(&mut self) -> Result<(), ClientError>;

    /// Whether the server can be asked to cancel the run yet.
    fn can_cancel(&self) -> bool {
        self.run().is_some()
    }

    /// Why the run is out of reach.
    fn lost(&self, error: &ClientError) -> Failure {
        self.remote().lost(error, self.run().as_deref())
    }
}

/// What an event of a remote run says.
#[derive(Debug)]
pub(crate) struct RemoteNews {
    pub(crate) bodies: Vec<Body>,
    /// How the turn ended; `None` while it goes on.
    pub(crate) ending: Option<RemoteEnding>,
}

/// How a turn ended at the server.
#[derive(Debug)]
pub(crate) enum RemoteEnding {
    Completed,
    /// Whoever asked for it.
    Cancelled,
    Failed(Failure),
    Asks {
        interrupt: Box<Interrupt>,
        saved: Json,
    },
}

// === impl RemoteEnding ===

impl RemoteEnding {
    /// A question there, with what is kept of the run.
    pub(crate) fn asks(interrupt: Interrupt, kept: &impl Serialize) -> Self {
        match state(kept) {
            Ok(saved) => Self::Asks { interrupt: Box::new(interrupt), saved },
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
                    // The answer has certainly not reached the server, where the run still waits: it is asked for again.
                    let (agent, run) = (context.agent(), context.run());
                    tracing::warn!(%agent, %run, message = failure.message, "an answer did not reach the agent's server");
                    interrupt.id = InterruptId::generate();
                    return Ok(Ending::Suspended { interrupt, saved });
                }
                Err(failure) => {
                    // It may wait there still, for an answer that nobody gives any more.
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

/// Tells the server that nobody waits for a run any more. What it answers changes nothing.
pub(crate) async fn abandon<A: RemoteBackend + Backend>(agent: &A, saved: &Json) {
    if let Err(error) = agent.cancel_kept(saved).await {
        let agent = &agent.card().name;
        tracing::info!(%agent, saved = saved.as_str(), %error, "a run at another server could not be cancelled");
    }
}

/// What is kept of a run at a server, as it was written by [`state`].
pub(crate) fn read_state<T: DeserializeOwned>(saved: &Json) -> Result<T, Failure> {
    serde_json::from_slice(saved.as_bytes()).map_err(|_| {
        Failure::of(Code::Internal, "what was kept of the run at the agent's server is unreadable")
    })
}

/// What is kept of a run at a server, to be found again.
pub(crate) fn state<T: Serialize>(state: &T) -> Result<Json, Failure> {
    let state = serde_json::to_value(state).map(|state| Json::from_value(&state));
    state.map_err(|_| Failure::of(Code::Internal, "the run's state has no JSON"))
}
