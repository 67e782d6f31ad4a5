//! Closes and deletes sessions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use trilogue_domain::{Code, Outcome, Right, StartedBy};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::rows::{RunRow, ThreadRow};
use trilogue_wire::agent_client::{CloseSessionRequest, DeleteSessionRequest};
use trilogue_wire::native::local::Control;

use super::super::asking::question;
use super::super::connection::ClientConnection;
use super::super::connection::command::PumpCommand;
use super::super::connection::queue::SessionQueue;
use super::super::connection::session::ClientSession;
use super::super::thread_metadata::CLIENT;
use super::super::wire::lines::{MethodResult, OutgoingLines};
use super::cancel;
use super::request::{read, session_error};
use crate::core::audit::{AuditActor, AuditEvent, audit};

/// How long closing a session waits for its turns to end.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// Ends this client's turns and closes the session. Turns of other clients continue, and the agent's session stays open for them.
pub(super) async fn close(
    connection: &Arc<ClientConnection>,
    queue: &Arc<SessionQueue>,
    params: &str,
) -> MethodResult {
    read::<CloseSessionRequest>(connection, params)?;
    let thread = connection.thread(queue.id.as_str()).await;
    let thread = thread.map_err(|error| session_error(&error, &queue.id))?;
    let Some(session) = queue.session() else { return Ok(b"{}".to_vec()) };
    let own: Vec<_> = session.state().prompts.iter().map(|prompt| prompt.run).collect();
    // A client that only observes does not count.
    let may_end = connection.may(Right::Run);
    let is_only = may_end && connection.state.open_sessions.count(thread.key) <= 1;
    let is_own = |run: &RunRow| match run.started_by {
        // The last client that closes the session ends the agent's own work too.
        Some(StartedBy::Agent) => is_only,
        // A client that only observes has prompted nothing, also if it names the client of another one.
        None => may_end && (own.contains(&run.key) || is_of_client(connection, run)),
    };
    let cancelled = cancel::cancel_runs(connection, &thread, is_own).await;
    cancelled.map_err(|error| mapping::error_object(&error))?;
    settle(&session).await;
    withdraw_questions(connection, &session).await;
    queue.set_session(None);
    connection.children.forget_below(&queue.id);
    // Answer turns that did not end in time as cancelled.
    answer_cancelled(connection, &session).await;
    session.stop.cancel();
    // Other clients may have opened it while the turns ended.
    let is_last = may_end && connection.state.open_sessions.count(thread.key) <= 1;
    // A handle counts the session as open here, and the close below can take long.
    drop(session);
    if is_last {
        // A separate task finishes even if the client stops waiting.
        drop(tokio::spawn(close_agent_session(Arc::clone(connection), thread)).await);
    }
    Ok(b"{}".to_vec())
}

/// Whether this client prompted the run on an earlier connection.
fn is_of_client(connection: &ClientConnection, run: &RunRow) -> bool {
    let Some(client) = &connection.client else { return false };
    run.metadata.to_value().get(CLIENT).is_some_and(|it| it == client.as_str())
}

/// Waits until every prompt of the session is answered and its response is in the outbox.
async fn settle(session: &ClientSession) {
    let answered = async {
        loop {
            let settled = session.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            if session.state().prompts.is_empty() {
                return;
            }
            settled.await;
        }
    };
    // The caller answers the prompts that are left as cancelled.
    drop(tokio::time::timeout(SETTLE_LIMIT, answered).await);
    let (sender, flushed) = oneshot::channel();
    session.command(PumpCommand::Flush(sender)).await;
    // Fails if the pump has ended, and then no lines are left.
    drop(flushed.await);
}

async fn withdraw_questions(connection: &ClientConnection, session: &ClientSession) {
    let questions = connection.pending.take_session(&session.thread.id);
    let mut lines = OutgoingLines::default();
    for (number, _) in &questions {
        lines.withdrawal(*number);
    }
    if !questions.is_empty() {
        connection.send(lines, Control::Boundary).await;
    }
    for (_, question) in &questions {
        question::leave(connection, question).await;
    }
    question::leave_text(connection, session).await;
}

/// Answers the session's prompts as cancelled.
async fn answer_cancelled(connection: &ClientConnection, session: &ClientSession) {
    let prompts = std::mem::take(&mut session.state().prompts);
    for prompt in prompts {
        let id = prompt.user_message_id.as_deref();
        let result = mapping::prompt_result(&Outcome::Cancelled { reason: None }, None, id);
        connection.respond(&prompt.request, result).await;
    }
}

/// Closes a hosted agent's session of a thread without open runs.
async fn close_agent_session(connection: Arc<ClientConnection>, thread: ThreadRow) {
    let Ok(backend) = connection.backend() else { return };
    let Some(sessions) = backend.sessions() else { return };
    match cancel::open_runs(&connection, &thread).await {
        Ok(open) if open.is_empty() => {
            let context = connection.runtime().thread_context(&thread, &connection.agent);
            sessions.close(&context).await;
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(thread = %thread.id, %error, "agent session stays open"),
    }
}

/// Deletes a session with its thread. Succeeds if the session does not exist.
pub(super) async fn delete(
    connection: &Arc<ClientConnection>,
    queue: &Arc<SessionQueue>,
    params: &str,
) -> MethodResult {
    read::<DeleteSessionRequest>(connection, params)?;
    match connection.erase_thread(&queue.id).await {
        Ok(()) => {
            let actor = AuditActor::new(&connection.principal, connection.origin.token());
            audit(AuditEvent::ThreadErased, Some(actor), queue.id.as_str(), "");
        }
        Err(error) if error.code() == Code::ThreadNotFound => {}
        Err(error) => return Err(session_error(&error, &queue.id)),
    }
    if let Some(session) = queue.set_session(None) {
        connection.children.forget_below(&queue.id);
        // The ids of its messages were erased with the thread.
        session.state().prompts.iter_mut().for_each(|open| open.user_message_id = None);
        answer_cancelled(connection, &session).await;
        session.stop.cancel();
    }
    Ok(b"{}".to_vec())
}
