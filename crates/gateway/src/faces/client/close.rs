//! Closing sessions, and removing them.

use std::sync::Arc;

use trilogue_domain::Code;
use trilogue_mapping::agent_client as mapping;
use trilogue_store::rows::{RunRow, ThreadRow};
use trilogue_wire::agent_client::{CloseSessionRequest, DeleteSessionRequest};
use trilogue_wire::native::local::Control;

use super::calls::write_withdrawal;
use super::lane::Lane;
use super::link::{Answer, Lines, Link};
use super::request::{read, session_error};
use super::session::{CLIENT, Session, thread_of};
use super::{cancel, prompt, question};

/// Ends what the session does, and frees what it holds. Only this client's turns end: what other clients began goes on, and the agent's own session stays open for it.
pub(super) async fn close(link: &Arc<Link>, lane: &Arc<Lane>, params: &str) -> Answer {
    read::<CloseSessionRequest>(link, params)?;
    let thread = match thread_of(link, lane.id.as_str()).await {
        Ok(thread) => thread,
        Err(error) => return Err(session_error(&error, &lane.id)),
    };
    let Some(session) = lane.session() else { return Ok(b"{}".to_vec()) };
    let mine: Vec<_> = session.state().prompts.iter().map(|prompt| prompt.run).collect();
    let is_mine = |run: &RunRow| mine.contains(&run.key) || is_of_client(link, run);
    let cancelled = cancel::runs(link, &thread, is_mine).await;
    cancelled.map_err(|error| mapping::error_object(&error))?;
    prompt::settled(&session).await;
    leave(link, &session).await;
    lane.set_session(None);
    // What has not ended in time is not waited for any more.
    prompt::gone(link, &session).await;
    detach(&session);
    // Others may have come while the turns ended.
    let is_alone = link.state.open_sessions.count(thread.key) <= 1;
    drop(session);
    if is_alone {
        // Done to its end, whether or not the client waits for it.
        let closing = tokio::spawn(free(Arc::clone(link), thread));
        drop(closing.await);
    }
    Ok(b"{}".to_vec())
}

/// Whether this client prompted a run on a connection that has broken since.
fn is_of_client(link: &Link, run: &RunRow) -> bool {
    let Some(client) = &link.client else { return false };
    run.metadata.to_value().get(CLIENT).is_some_and(|it| it == client.as_str())
}

/// The client is not asked any more what others are asked too.
async fn leave(link: &Link, session: &Session) {
    let left = link.pending.leave(&session.thread.id);
    let mut lines = Lines::default();
    for (number, _) in &left {
        write_withdrawal(&mut lines, *number);
    }
    if !left.is_empty() {
        link.send(lines, Control::Boundary).await;
    }
    for (_, question) in &left {
        question::leave(link, question).await;
    }
    question::leave_words(link, session).await;
}

/// Has a hosted agent free what it holds for a thread in which nothing is going on.
async fn free(link: Arc<Link>, thread: ThreadRow) {
    let Ok(backend) = link.backend() else { return };
    let Some(sessions) = backend.sessions() else { return };
    match cancel::under_way(&link, &thread).await {
        Ok(open) if open.is_empty() => {
            let context = link.runtime().thread_context(&thread, &link.agent);
            sessions.close(&context).await;
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(thread = %thread.id, %error, "an agent's session stays open"),
    }
}

/// Removes the session with everything of it. One that is not there is gone.
pub(super) async fn delete(link: &Arc<Link>, lane: &Arc<Lane>, params: &str) -> Answer {
    read::<DeleteSessionRequest>(link, params)?;
    match link.runtime().erase_thread(&link.principal, &lane.id).await {
        Ok(()) => {}
        Err(error) if error.code() == Code::ThreadNotFound => {}
        Err(error) => return Err(session_error(&error, &lane.id)),
    }
    if let Some(session) = lane.set_session(None) {
        // With the thread the ids of its messages are gone.
        session.state().prompts.iter_mut().for_each(|open| open.user_message_id = None);
        prompt::gone(link, &session).await;
        detach(&session);
    }
    Ok(b"{}".to_vec())
}

fn detach(session: &Session) {
    session.stop.cancel();
}
