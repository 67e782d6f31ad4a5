//! Turns that outlive the server: what is kept of one, and how the next server continues it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trilogue_domain::error::Code;
use trilogue_domain::event::{StateEvent, TURN_RESULT};
use trilogue_domain::{Body, Failure, Json, MessageId};
use trilogue_mapping::LoggedPosition;
use trilogue_runtime::{Ending, RunContext, lost_failure};
use trilogue_sdk::agent_client::peer::Call;
use uuid::Uuid;

use super::{AbandonOnDrop, conclude, wait};
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::opening::{RejoinedSession, SessionOpener};
use crate::agent_client::routing::CallOrigin;
use crate::agent_client::session::{Session, is_of_agent};

/// When a turn without an event is stored as one that outlives the server. A shorter one needs no append for that.
const KEEP_AFTER: Duration = Duration::from_millis(20);

/// A turn of an agent that can outlive the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LastingTurn {
    /// The child in which the agent works.
    child: String,
    /// The agent's id of the session.
    session: String,
    /// The user's message.
    user: String,
    /// Where the turn begins in the agent's output, in bytes.
    position: u64,
    /// The id of the prompt.
    #[serde(default)]
    call: Option<u64>,
}

/// What the log has of a turn.
struct LoggedTurn {
    position: LoggedPosition,
    /// Whether the agent's answer to the prompt is in it.
    has_result: bool,
}

/// Begins to log the agent's updates in a run. `None` if the agent does not outlive the server.
pub(super) async fn begin(
    session: &Session,
    context: &RunContext,
    user: &MessageId,
) -> Option<LastingTurn> {
    let Some(child) = session.lasting_child() else {
        session.begin(context.clone(), user.clone(), None).await;
        return None;
    };
    if session.inbox().has_unhandled() {
        session.wait_until_caught_up().await;
    }
    // What waits for the run is logged in it, but does not come again in the next server.
    let has_waiting = session.inbox().has_unhandled();
    let position = session.begin(context.clone(), user.clone(), None).await;
    child.mark(position).await;
    session.keep_for_next_server().await;
    let (child, session) = (child.instance().to_string(), session.remote().to_owned());
    let user = user.as_str().to_owned();
    (!has_waiting).then_some(LastingTurn { child, session, user, position, call: None })
}

/// Continues a turn that a previous server began.
pub(super) async fn rejoin(
    opener: &Arc<SessionOpener>,
    saved: &Json,
    context: RunContext,
) -> Result<Ending, Failure> {
    let turn = serde_json::from_slice::<LastingTurn>(saved.as_bytes());
    let unreadable = |_| Failure::of(Code::Internal, "the kept turn is unreadable");
    let turn = turn.map_err(|error| unreadable(error.to_string()))?;
    let child = Uuid::parse_str(&turn.child).map_err(|error| unreadable(error.to_string()))?;
    let user = MessageId::parse(&turn.user).map_err(|error| unreadable(error.to_string()))?;
    let place = (child, turn.position);
    let rejoined = opener.rejoin(&context, &turn.session, place).await;
    let rejoined = rejoined.map_err(AgentFailure::into_failure)?;
    let (Some(RejoinedSession { session, begin }), Some(call)) = (rejoined, turn.call) else {
        return Err(lost_failure());
    };
    let LoggedTurn { position, has_result } = log_position(&context).await?;
    let mut guard = AbandonOnDrop::new(&session, &context);
    let process = session.process();
    session.begin(context.clone(), user.clone(), Some(Box::new(position))).await;
    let unsent = process.router().calls().prepare();
    let call = process.peer().await_response(call).map_err(AgentFailure::from);
    let call = call.map_err(AgentFailure::into_failure)?;
    let _in_flight = unsent.register(call.id(), CallOrigin::Session(turn.session.clone()));
    session.set_outlives(true);
    // The agent's output flows from here on.
    drop(begin);
    let launch = opener.launch();
    let grace = launch.cancel_grace.unwrap_or(context.cancel_grace());
    let ended = wait(grace, &session, call, &context).await;
    guard.is_armed = false;
    let concluded =
        conclude((launch.answer_settle, has_result), &session, ended, &context, &user).await;
    session.set_outlives(false);
    concluded.map_err(|failed| failed.failure.into_failure())
}

/// How much of the turn is in the log: what its agent has sent. Marks its unfinished messages as continued.
async fn log_position(context: &RunContext) -> Result<LoggedTurn, Failure> {
    let mut position = LoggedPosition::of_run(context.run().as_str());
    let mut has_result = false;
    let read = context.each_event(|event| {
        let is_result = |kind: &str| kind == TURN_RESULT;
        match &event.body {
            Body::State(StateEvent::Custom { kind, .. }) if is_result(kind) => has_result = true,
            Body::Run(_) => position.push(&event.body),
            body if is_of_agent(body, event.original.as_ref()) => position.push(body),
            _ => {}
        }
    });
    read.await.map_err(|error| Failure::of(error.code(), error.message()))?;
    for (message, role) in position.open() {
        context.continue_message(message, role);
    }
    Ok(LoggedTurn { position, has_result })
}

/// Stores what was kept of a turn that is silent for a moment. Never ends.
pub(super) async fn store_kept(context: &RunContext) -> Infallible {
    tokio::time::sleep(KEEP_AFTER).await;
    context.store_kept();
    std::future::pending().await
}

// === impl LastingTurn ===

impl LastingTurn {
    /// Keeps the turn for the next server, now that the prompt is sent: with its first event, or by [`store_kept`].
    pub(super) fn keep(mut self, call: &Call, (session, context): (&Session, &RunContext)) {
        session.set_outlives(true);
        self.call = call.id().as_number();
        if let Ok(saved) = serde_json::to_value(&self) {
            context.keep_with_next_event(Json::from_value(&saved));
        }
    }
}
