//! Opening sessions: new ones, and those that there are.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use trilogue_domain::{Code, Error, Json, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::{NewThread, ThreadPatch};
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::{
    LoadSessionRequest, McpServer, NewSessionRequest, ResumeSessionRequest, check_mcp_servers,
    is_absolute, splice, without_parameters,
};
use trilogue_wire::jsonrpc::ErrorObject;
use trilogue_wire::native::local::AttachParams;

use super::calls::{SessionClient, error_object};
use super::catch_up::{Opening, Start};
use super::lane::Lane;
use super::link::{Answer, Link, Met};
use super::opened;
use super::pump::Order;
use super::request::{Asked, invalid_params, read, session_error, to_json};
use super::session::{ADDITIONAL_DIRECTORIES, AGENT, CWD, Session, config_of, thread_of};

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
            let id = thread.id.clone();
            let (opener, met) = (Arc::clone(link), link.met());
            // What the client says in the session, which it knows from its answer, stands behind this.
            link.in_order(&id, |lane| {
                let lane = Arc::clone(lane);
                async move {
                    opener.answer(&asked.id, Ok(answer)).await;
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
    let given = Given {
        cwd: &request.cwd,
        directories: &request.additional_directories,
        servers: &request.mcp_servers,
        params,
    };
    given.check(met)?;
    check_room(link)?;
    let (thread, is_new) = thread(link, asked, &request).await?;
    let is_named = asked.extras.session.is_some();
    let mut half = Half { link, thread: is_new.then(|| thread.id.clone()), is_named };
    let opened = open_agent(link, met, &thread, params).await;
    match opened {
        Ok(result) => {
            half.thread = None;
            Ok((thread, result))
        }
        Err(error) => {
            if let Some(thread) = half.thread.take() {
                remove(link, &thread).await;
            }
            Err(error)
        }
    }
}

/// A session that its agent did not begin is none. Dropped with a thread when nobody waits for its agent any more.
struct Half<'a> {
    link: &'a Arc<Link>,
    thread: Option<ThreadId>,
    /// Whether the client said which thread it is.
    is_named: bool,
}

impl Drop for Half<'_> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.is_named && self.link.closed.is_cancelled() {
            // Its connection broke, and it comes back for this one.
            return;
        }
        let link = Arc::clone(self.link);
        // It is not the client's any more, so it is done when that is gone too. A server that ends removes nothing.
        if let Ok(handle) = Handle::try_current() {
            handle.spawn(async move { remove(&link, &thread).await });
        }
    }
}

async fn remove(link: &Link, thread: &ThreadId) {
    if let Err(error) = link.runtime().erase_thread(&link.principal, thread).await {
        tracing::warn!(%thread, %error, "half a session could not be removed");
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
    link: &Arc<Link>,
    met: &Met,
    thread: &ThreadRow,
    params: &str,
) -> Result<Vec<u8>, ErrorObject> {
    let backend = link.backend().map_err(|error| mapping::error_object(&error))?;
    let result = match backend.sessions() {
        None => {
            let config = config_of(thread);
            opened::result(&opened::options_of(link, backend.card(), config.as_ref()))
        }
        Some(sessions) => {
            let context = link.runtime().thread_context(thread, &link.agent);
            let caller = SessionClient::caller(link, met);
            let params = to_json(&without_parameters(params))?;
            let said = sessions.open(&context, &caller, params).await;
            let said = said.map_err(|it| error_object(&it))?;
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
    let how = How { from: Some(from), is_replay: true, ..How::default() };
    let given = Given {
        cwd: &request.cwd,
        directories: &request.additional_directories,
        servers: &request.mcp_servers,
        params: &params,
    };
    if let Err(error) = given.check(met) {
        return Some(Err(error));
    }
    again(link, met, lane, asked, Some(given), how).await
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
    let how = How { knows_questions: false, ..How::default() };
    let given = Given {
        cwd: &request.cwd,
        directories: &request.additional_directories,
        servers: &request.mcp_servers,
        params: &params,
    };
    if let Err(error) = given.check(met) {
        return Some(Err(error));
    }
    again(link, met, lane, asked, Some(given), how).await
}

/// The request of a program whose connection broke: what happened since then, and from now on. It carries what its client opened the session with.
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
    let how = How { from: Some(after), is_attach: true, ..How::default() };
    let params = splice::remove(params, &["after"]);
    let opened = read::<ResumeSessionRequest>(link, &params).ok();
    let given = opened.as_ref().map(|opened| Given {
        cwd: &opened.cwd,
        directories: &opened.additional_directories,
        servers: &opened.mcp_servers,
        params: &params,
    });
    // What was taken before is taken again.
    again(link, met, lane, asked, given.filter(|given| is_absolute(given.cwd)), how).await
}

/// How a session is opened again.
#[derive(Clone, Copy)]
struct How {
    /// The number of the last event that the client has; `None` where it has all.
    from: Option<u64>,
    is_replay: bool,
    knows_questions: bool,
    is_attach: bool,
}

// === impl How ===

impl Default for How {
    fn default() -> Self {
        Self { from: None, is_replay: false, knows_questions: true, is_attach: false }
    }
}

/// What a session is opened with.
struct Given<'a> {
    cwd: &'a str,
    directories: &'a [String],
    servers: &'a [McpServer],
    /// All of it, as it came.
    params: &'a str,
}

// === impl Given ===

impl Given<'_> {
    fn check(&self, met: &Met) -> Result<(), ErrorObject> {
        check_cwd(self.cwd)?;
        let relative = self.directories.iter().position(|directory| !is_absolute(directory));
        if let Some(index) = relative {
            let path = format!("/additionalDirectories/{index}");
            return Err(invalid_params(&path, "must be an absolute path"));
        }
        let checked = check_mcp_servers(self.servers, Some(&met.servers));
        checked.map_err(|violation| violation.error())
    }

    /// Where the agent works, as it stands in the thread's metadata.
    fn metadata(&self) -> Map<String, Value> {
        let mut metadata = Map::new();
        metadata.insert(CWD.to_owned(), self.cwd.into());
        let directories = match self.directories {
            [] => Value::Null,
            some => some.to_vec().into(),
        };
        metadata.insert(ADDITIONAL_DIRECTORIES.to_owned(), directories);
        metadata
    }

    /// Keeps where the agent works from now on, where that is another place than before.
    async fn keep(&self, link: &Link, session: &Session) -> Result<(), Error> {
        let row = session.row(link).await?;
        let known = row.metadata.to_value();
        let mut metadata = self.metadata();
        metadata.retain(|key, value| known.get(key).unwrap_or(&Value::Null) != value);
        if metadata.is_empty() {
            return Ok(());
        }
        let metadata = Some(Json::from_value(&Value::Object(metadata)));
        let patch = ThreadPatch { metadata, ..ThreadPatch::default() };
        link.runtime().patch_thread(&link.principal, &row.id, patch).await.map(drop)
    }
}

/// Opens a session that there is. `given` is where its agent works from now on, and what it is to be opened with when it is needed.
async fn again(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    asked: Asked,
    given: Option<Given<'_>>,
    how: How,
) -> Option<Answer> {
    let session = match open(link, met, lane).await {
        Ok(session) => session,
        Err(error) => return Some(Err(error)),
    };
    if let Some(given) = given {
        let hosted = link.backend().is_ok_and(|backend| backend.sessions().is_some());
        let params = without_parameters(given.params);
        let cut = splice::cut_session(&params).map(|(cut, _)| cut);
        if hosted && let Ok(params) = to_json(cut.as_deref().unwrap_or(&params)) {
            session.state().opening = Some(params);
        }
        if let Err(error) = given.keep(link, &session).await {
            return Some(Err(session_error(&error, &lane.id)));
        }
    }
    let last = *link.read().tail(session.thread.key).committed.borrow();
    let start = Start {
        from: how.from.map(|from| from.min(last)),
        until: last,
        is_replay: how.is_replay,
        knows_questions: how.knows_questions,
        request: Some((
            asked.id,
            if how.is_attach { Opening::Known(Ok(b"{}".to_vec())) } else { Opening::FromLog },
        )),
    };
    session.begin();
    session.state().may_repeat = link.numbered;
    if session.order(Order::Start(start)).await {
        return None;
    }
    Some(Err(session_error(&crate::core::not_found::no_thread(session.id()), &lane.id)))
}

/// The session of a lane, opened where it was not.
pub(super) async fn open(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
) -> Result<Arc<Session>, ErrorObject> {
    let thread = thread_of(link, lane.id.as_str()).await;
    let thread = thread.map_err(|error| mapping::session_error(&error, lane.id.as_str()))?;
    let is_good =
        |session: &Arc<Session>| session.thread.key == thread.key && !session.state().is_over;
    if let Some(session) = lane.session().filter(is_good) {
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
pub(super) async fn open_when_needed(
    link: &Arc<Link>,
    met: &Met,
    session: &Session,
) -> Result<(), ErrorObject> {
    let Some(opening) = session.state().opening.clone() else { return Ok(()) };
    let backend = link.backend().map_err(|error| mapping::error_object(&error))?;
    if let Some(sessions) = backend.sessions() {
        let context = link.runtime().thread_context(&session.thread, &link.agent);
        let caller = SessionClient::caller(link, met);
        let said = sessions.open(&context, &caller, opening).await;
        let said = said.map_err(|it| error_object(&it))?;
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
