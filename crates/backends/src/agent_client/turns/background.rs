//! A run that the agent started: it lasts until the agent is quiet, or until the next run on the thread completes it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use trilogue_domain::error::Code;
use trilogue_domain::event::{StateEvent, TURN_RESULT};
use trilogue_domain::{Body, Failure, Json};
use trilogue_runtime::{Ending, RunContext};
use trilogue_sdk::agent_client::peer::CallFailure;

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::opening::SessionOpener;
use crate::agent_client::routing::{TurnEnd, TurnSummary, WorkStop};
use crate::agent_client::session::{Session, SessionLease};

/// How much longer than the agent's own time the end of a cancelled run may take.
const END_TIME: Duration = Duration::from_secs(1);

pub(in crate::agent_client) async fn run_background(
    opener: &Arc<SessionOpener>,
    context: RunContext,
) -> Result<Ending, Failure> {
    let session = opener.starting.take(context.key());
    let lease = session.as_ref().and_then(SessionLease::of);
    let Some(session) = lease else {
        let message = "the agent's process ended before the server could log its work";
        return Err(Failure::of(Code::AgentLost, message));
    };
    let mut quiet = session.begin_background(context.clone()).await;
    let ended = tokio::select! {
        biased;
        summary = &mut quiet => {
            return ending(&context, &session, summary.unwrap_or_default()).await;
        }
        () = context.cancelled() => false,
        () = session.process().peer().wait_for_end() => true,
    };
    if ended {
        return Err(exited(&session).await);
    }
    let grace = opener.launch().cancel_grace.unwrap_or(context.cancel_grace());
    if let Some(remote) = session.cancelled_session() {
        let cancel = json!({ "sessionId": remote });
        // An agent that reads nothing is not waited for.
        drop(session.process().peer().notify_now("session/cancel", &cancel));
    }
    session.cancel_background(grace).await;
    match timeout(grace + END_TIME, quiet).await {
        Ok(summary) => ending(&context, &session, summary.unwrap_or_default()).await,
        Err(_) => ending(&context, &session, session.finish(TurnEnd::Broken).await).await,
    }
}

/// The end of the run, as the agent reports it.
async fn ending(
    context: &RunContext,
    session: &Session,
    summary: TurnSummary,
) -> Result<Ending, Failure> {
    if let Some(refused) = summary.refused {
        return Err(AgentFailure::from(refused).into_failure());
    }
    match summary.stop {
        None => {}
        Some(WorkStop::ProcessEnded) => {
            return Err(session.process().failure(CallFailure::Closed).await.into_failure());
        }
        // Each fails only if the run has ended.
        Some(WorkStop::Cancelled) => drop(context.cancel().await),
        Some(WorkStop::Other(reason)) => {
            let data = Json::from_value(&json!({ "stopReason": reason }));
            let kind = TURN_RESULT.to_owned();
            drop(context.emit(Body::State(StateEvent::Custom { kind, data }), None).await);
        }
        Some(WorkStop::Failed(error)) => {
            let why = error.unwrap_or_else(|| "it does not say why".to_owned());
            let message = format!("the sub-agent reports that its work failed: {why}");
            return Err(Failure::of(Code::AgentFailed, &message));
        }
    }
    Ok(Ending::Completed)
}

/// The failure of a run whose agent has exited.
async fn exited(session: &Session) -> Failure {
    session.finish(TurnEnd::Broken).await;
    session.process().failure(CallFailure::Closed).await.into_failure()
}
