//! Closing sessions, and removing them.

use std::sync::Arc;

use trilogue_domain::Code;
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{CloseSessionRequest, DeleteSessionRequest};

use super::lane::Lane;
use super::link::{Answer, Link};
use super::request::{read, session_error};
use super::session::{Session, thread_of};
use super::{cancel, prompt};

/// Ends what the session does, and frees what it holds. Where another client has it open, that one goes on and only this client's turns end.
pub(super) async fn close(link: &Arc<Link>, lane: &Arc<Lane>, params: &str) -> Answer {
    read::<CloseSessionRequest>(link, params)?;
    let thread = match thread_of(link, lane.id.as_str()).await {
        Ok(thread) => thread,
        Err(error) => return Err(session_error(&error, &lane.id)),
    };
    let Some(session) = lane.session() else { return Ok(b"{}".to_vec()) };
    let is_alone = link.shared.sessions.count(thread.key) <= 1;
    let mine: Vec<_> = session.state().prompts.iter().map(|prompt| prompt.run).collect();
    let cancelled = cancel::runs(link, &thread, |run| is_alone || mine.contains(&run.key)).await;
    cancelled.map_err(|error| mapping::error_object(&error))?;
    prompt::settled(&session).await;
    lane.set_session(None);
    detach(&session);
    if is_alone
        && let Ok(backend) = link.backend()
        && let Some(sessions) = backend.sessions()
    {
        sessions.close(&thread.id).await;
    }
    Ok(b"{}".to_vec())
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
        prompt::gone(link, &session).await;
        detach(&session);
    }
    Ok(b"{}".to_vec())
}

fn detach(session: &Session) {
    session.stop.cancel();
}
