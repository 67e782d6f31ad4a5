//! Opening sessions: new ones, and those that there are.

use std::sync::Arc;

use serde_json::{Map, Value};
use trilogue_domain::{Code, Error, Json, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{NewThread, Opening as OfAgent};
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::{
    LoadSessionRequest, NewSessionRequest, ResumeSessionRequest, is_absolute, splice,
};
use trilogue_wire::jsonrpc::ErrorObject;
use trilogue_wire::native::local::AttachParams;

use super::calls::error_object;
use super::catch_up::{Opening, Start};
use super::lane::Lane;
use super::link::{Answer, Link, Met};
use super::opened;
use super::pump::Order;
use super::request::{Asked, invalid_params, read, to_json};
use super::session::{ADDITIONAL_DIRECTORIES, AGENT, CWD, Session, thread_of};

/// `session/new`: the answer first, then whatever happens in the session.
pub(super) async fn new(
    link: &Arc<Link>,
    met: &Met,
    asked: Asked,
    params: String,
) -> Option<Answer> {
    match begin(link, met, &asked, &params).await {
        Err(error) => Some(Err(error)),
        Ok((thread, answer)) => {
            link.answer(&asked.id, Ok(answer)).await;
            let id = thread.id.clone();
            let (opener, met) = (Arc::clone(link), link.met());
            link.in_order(&id, |lane| {
                let lane = Arc::clone(lane);
                async move {
                    let Some(met) = met else { return };
                    if lane.session().is_none() {
                        let session = Session::open(&opener, &met, thread);
                        lane.set_session(Some(Arc::clone(&session)));
                        session.begin();
                        session.order(Order::Start(Start::live(0, 0))).await;
                    }
                }
            });
            None
        }
    }
}

/// Makes the thread, and has a hosted agent open its own session.
async fn begin(
    link: &Arc<Link>,
    met: &Met,
    asked: &Asked,
    params: &str,
) -> Result<(ThreadRow, Vec<u8>), ErrorObject> {
    let request: NewSessionRequest = read(link, params)?;
    check_cwd(&request.cwd)?;
    check_room(link)?;
    let (thread, is_new) = thread(link, asked, &request).await?;
    let opened = open_agent(link, met, &thread, params).await;
    match opened {
        Ok(result) => Ok((thread, result)),
        Err(error) => {
            // A session that its agent did not begin is none.
            if is_new
                && let Err(error) = link.runtime().erase_thread(&link.principal, &thread.id).await
            {
                tracing::warn!(thread = %thread.id, %error, "half a session could not be removed");
            }
            Err(error)
        }
    }
}

/// The thread of a new session; the one that there is, where the client says which.
async fn thread(
    link: &Link,
    asked: &Asked,
    request: &NewSessionRequest,
) -> Result<(ThreadRow, bool), ErrorObject> {
    let id = asked.extras.session.as_deref().map(ThreadId::parse).transpose();
    let id = id.map_err(|error| mapping::error_object(&error))?;
    let mut metadata = Map::new();
    metadata.insert(AGENT.to_owned(), link.agent.as_str().into());
    metadata.insert(CWD.to_owned(), request.cwd.as_str().into());
    if !request.additional_directories.is_empty() {
        let directories = request.additional_directories.clone();
        metadata.insert(ADDITIONAL_DIRECTORIES.to_owned(), directories.into());
    }
    let metadata = Some(Json::from_value(&Value::Object(metadata)));
    let new = NewThread { id: id.clone(), metadata };
    match (link.runtime().create_thread(&link.principal, new).await, id) {
        (Ok(row), _) => Ok((row, true)),
        (Err(error), Some(id)) if error.code() == Code::AlreadyExists => {
            let found = thread_of(link, id.as_str()).await;
            found.map(|row| (row, false)).map_err(|error| mapping::error_object(&error))
        }
        (Err(error), _) => Err(mapping::error_object(&error)),
    }
}

/// The result of `session/new`: a hosted agent's own, with our id.
async fn open_agent(
    link: &Link,
    met: &Met,
    thread: &ThreadRow,
    params: &str,
) -> Result<Vec<u8>, ErrorObject> {
    let backend = link.backend().map_err(|error| mapping::error_object(&error))?;
    let result = match backend.sessions() {
        None => opened::result(&opened::options_of(link, backend.card(), thread)),
        Some(sessions) => {
            let context = link.runtime().thread_context(thread, &link.agent);
            let opening = OfAgent { client: met.profile.clone(), params: to_json(params)? };
            let said = sessions.open(&context, opening).await.map_err(|it| error_object(&it))?;
            if let Err(error) = opened::keep(&context, &said).await {
                tracing::warn!(thread = %thread.id, %error, "what an agent said of its session is not kept");
            }
            opened::shown(link, said.as_str())
        }
    };
    let text = std::str::from_utf8(&result).unwrap_or("{}");
    let text = splice::set_text(text, &["sessionId"], thread.id.as_str());
    Ok(text.unwrap_or_else(|| format!("{{\"sessionId\":\"{}\"}}", thread.id)).into_bytes())
}

/// `session/load`: everything that was said, then the answer.
pub(super) async fn load(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: Asked,
    params: String,
) -> Option<Answer> {
    let request: LoadSessionRequest = match read(link, &params) {
        Ok(request) => request,
        Err(error) => return Some(Err(error)),
    };
    let from = asked.extras.after.unwrap_or(0);
    let how = How { from: Some(from), is_replay: true, knows_questions: true };
    again(link, met, lane, asked, Some((&request.cwd, &params)), how).await
}

/// `session/resume`: the answer, and what happens from now on.
pub(super) async fn resume(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: Asked,
    params: String,
) -> Option<Answer> {
    let request: ResumeSessionRequest = match read(link, &params) {
        Ok(request) => request,
        Err(error) => return Some(Err(error)),
    };
    let how = How { from: None, is_replay: false, knows_questions: false };
    again(link, met, lane, asked, Some((&request.cwd, &params)), how).await
}

/// The request of a program whose connection broke: what happened since then, and from now on.
pub(super) async fn attach(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: Asked,
    params: &str,
) -> Option<Answer> {
    let after = match serde_json::from_str::<AttachParams>(params) {
        Ok(params) => params.after,
        Err(error) => return Some(Err(invalid_params("", format!("does not fit: {error}")))),
    };
    let how = How { from: Some(after), is_replay: false, knows_questions: true };
    again(link, met, lane, asked, None, how).await
}

/// How a session is opened again.
#[derive(Clone, Copy)]
struct How {
    /// The number of the last event that the client has; `None` where it has all.
    from: Option<u64>,
    is_replay: bool,
    knows_questions: bool,
}

/// Opens a session that there is. `given` is where its agent works from now on, and what it is to be opened with when it is needed.
async fn again(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: Asked,
    given: Option<(&str, &str)>,
    how: How,
) -> Option<Answer> {
    let session = match open(link, met, lane, given.map(|(cwd, _)| cwd)).await {
        Ok(session) => session,
        Err(error) => return Some(Err(error)),
    };
    let is_attach = given.is_none();
    if let Some((_, params)) = given {
        let hosted = link.backend().is_ok_and(|backend| backend.sessions().is_some());
        let cut = splice::cut_session(params).map_or_else(|| params.to_owned(), |(cut, _)| cut);
        if hosted && let Ok(params) = to_json(&cut) {
            let opening = OfAgent { client: met.profile.clone(), params };
            session.state().opening = Some(opening);
        }
    }
    let last = *link.shared.read().tail(session.thread.key).committed.borrow();
    let start = Start {
        from: how.from.unwrap_or(last).min(last),
        until: last,
        is_replay: how.is_replay,
        knows_questions: how.knows_questions,
        request: Some((
            asked.id,
            if is_attach { Opening::Known(Ok(b"{}".to_vec())) } else { Opening::FromLog },
        )),
    };
    session.begin();
    session.order(Order::Start(start)).await;
    None
}

/// The session of a lane, opened where it was not.
pub(super) async fn open(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    cwd: Option<&str>,
) -> Result<Arc<Session>, ErrorObject> {
    if let Some(cwd) = cwd {
        check_cwd(cwd)?;
    }
    let thread = thread_of(link, lane.id.as_str()).await;
    let thread = thread.map_err(|error| mapping::session_error(&error, lane.id.as_str()))?;
    if let Some(session) = lane.session().filter(|session| session.thread.key == thread.key) {
        return Ok(session);
    }
    check_room(link)?;
    let session = Session::open(link, met, thread);
    if let Some(before) = lane.set_session(Some(Arc::clone(&session))) {
        before.stop.cancel();
    }
    Ok(session)
}

/// Has a hosted agent open its own session, where that was left until it is needed.
pub(super) async fn open_when_needed(link: &Link, session: &Session) -> Result<(), ErrorObject> {
    let Some(opening) = session.state().opening.clone() else { return Ok(()) };
    let backend = link.backend().map_err(|error| mapping::error_object(&error))?;
    if let Some(sessions) = backend.sessions() {
        let context = link.runtime().thread_context(&session.thread, &link.agent);
        let said = sessions.open(&context, opening).await.map_err(|it| error_object(&it))?;
        if let Err(error) = opened::keep(&context, &said).await {
            tracing::warn!(thread = %session.thread.id, %error, "what an agent said of its session is not kept");
        }
    }
    session.state().opening = None;
    Ok(())
}

fn check_cwd(cwd: &str) -> Result<(), ErrorObject> {
    if is_absolute(cwd) {
        return Ok(());
    }
    Err(invalid_params("/cwd", "must be an absolute path"))
}

fn check_room(link: &Link) -> Result<(), ErrorObject> {
    let most = link.options().max_sessions;
    if link.open_sessions() < most {
        return Ok(());
    }
    let error =
        Error::new(Code::Overloaded, format!("{most} sessions are open, which is the most"))
            .hint("close one first");
    Err(mapping::error_object(&error))
}
