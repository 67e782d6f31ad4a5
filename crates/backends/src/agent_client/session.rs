//! A session of an agent: how it is opened, and what belongs to it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use trilogue_domain::error::Code;
use trilogue_domain::{Json, MessageId};
use trilogue_runtime::{Client, RunContext, ThreadContext};
use trilogue_sdk::agent_client::peer::RawJson;
use trilogue_wire::agent_client::{NewSessionResponse, Rules, read_result, splice};

use super::desk::Desk;
use super::inbox::{Finish, Finished, Inbox, Item};
use super::opened::Opened;
use super::pool::Opening;
use super::process::Process;
use super::seat::{Seat, tick};
use super::threads::Agreed;
use super::trouble::Trouble;
use super::turn::with_members;
use super::{Launch, lock};
use crate::workspace::Workspace;

/// How long the history may be told after the answer, where a prompt waits for its end.
const LONGEST: Duration = Duration::from_secs(20);

/// A session that is open in a process.
#[derive(Debug)]
pub(super) struct Session {
    remote: String,
    process: Arc<Process>,
    inbox: Inbox,
    workspace: Option<Workspace>,
    /// What it was opened with.
    site: Site,
    /// What the agent answered when it was opened, without the session's id, with its modes and options as they are now.
    opened: Opened,
    /// Whether nothing may be said in it any more.
    is_spoilt: AtomicBool,
    /// Whether the agent has still to be told what was said in the thread before.
    is_blank: AtomicBool,
    /// Whether the history may still be told: it was opened again and not prompted since.
    may_tell: AtomicBool,
    is_closed: AtomicBool,
    /// How many work with it now.
    at_work: AtomicUsize,
    /// When it was worked with last.
    last_used: AtomicU64,
    /// Its place in a process that is shared, until it is closed.
    seat: Mutex<Option<Arc<Seat>>>,
}

/// What a session is opened with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Site {
    pub(super) cwd: PathBuf,
    /// Where it may work too, and its servers for tools, as they came: JSON.
    pub(super) directories: Value,
    pub(super) servers: Value,
}

/// What a session needs to be opened.
#[derive(Clone, Debug)]
pub(super) struct Opener {
    pub(super) process: Arc<Process>,
    pub(super) launch: Arc<Launch>,
    pub(super) thread: ThreadContext,
    pub(super) rules: Arc<crate::permission::Rules>,
    pub(super) site: Site,
    /// What its client says beyond that, at the root of the request: an object.
    pub(super) more: Option<Json>,
    /// Its place in a process that is shared.
    pub(super) seat: Option<Arc<Seat>>,
    /// Whom it is opened for, where somebody asked for that.
    pub(super) caller: Option<Arc<dyn Client>>,
    /// Lets others wait for the process until this is over.
    pub(super) _opening: Arc<Opening>,
}

// === impl Opener ===

impl Opener {
    /// Begins a session.
    pub(super) async fn begin(self) -> Result<Session, Trouble> {
        let _expecting = self.process.router().expect();
        let answer = self.ask("session/new", self.params(None)).await?;
        let unreadable = |why: String| {
            Trouble::ours(
                Code::PeerUnavailable,
                format!("the agent's answer to session/new does not fit: {why}"),
            )
        };
        let raw: &RawValue = serde_json::from_slice(answer.as_bytes())
            .map_err(|error| unreadable(error.to_string()))?;
        let read: NewSessionResponse =
            read_result(raw, Rules::Lenient).map_err(|error| unreadable(error.to_string()))?;
        if read.session_id.is_empty() {
            return Err(unreadable("the session's id is empty".to_owned()));
        }
        let opened = splice::remove(answer.as_str(), &["sessionId"]).into_owned();
        let mut session = self.session(read.session_id).await?;
        // What was told behind the answer is newer than it.
        session.caught_up().await;
        session.opened.set(Json::parse(opened).unwrap_or_else(|_| Json::empty_object()));
        session.is_blank = AtomicBool::new(true);
        Ok(session)
    }

    /// Opens a session again, as the agent can. What it tells of it is in the log already, and let go by.
    pub(super) async fn reopen(self, remote: &str) -> Result<Session, Trouble> {
        let mut session = self.session(remote.to_owned()).await?;
        let resumes = self.process.resumes();
        let method = if resumes { "session/resume" } else { "session/load" };
        session.inbox.put(Item::Replay).await;
        let _reopening = self.process.router().reopen(&session.inbox);
        let answer = match self.ask(method, self.params(Some(remote))).await {
            Ok(answer) => answer,
            Err(trouble) => return Err(trouble),
        };
        let answer = if answer.as_str() == "null" { RawJson::EMPTY } else { answer };
        // The answer is newer than what was told before it, and older than what was told behind it.
        session.caught_up().await;
        let opened = Json::parse(answer.into_bytes()).unwrap_or_else(|_| Json::empty_object());
        session.opened.set(opened);
        // Some agents answer first and tell the history afterwards. Who prompts waits for that.
        session.inbox.put(Item::Reopened { may_go_on: !resumes }).await;
        session.may_tell = AtomicBool::new(!resumes);
        Ok(session)
    }

    /// A session of this id, known to the process from now on.
    async fn session(&self, remote: String) -> Result<Session, Trouble> {
        let mut grants = self.launch.grants.clone();
        let mut workspace = None;
        if !grants.is_empty() {
            grants.env = self.process.child().env().to_vec();
            let cwd = self.site.cwd.clone();
            let opened = tokio::task::spawn_blocking(move || Workspace::open(&cwd, grants)).await;
            let opened = opened.map_err(std::io::Error::other).and_then(|opened| opened);
            workspace = Some(opened.map_err(|error| {
                Trouble::ours(
                    Code::InvalidRequest,
                    format!("the agent's folder cannot be served: {error}"),
                )
            })?);
        }
        let (inbox, items) = Inbox::new();
        let opened = Opened::default();
        let desk = Desk::new(self, workspace.clone(), opened.clone());
        tokio::spawn(desk.work(items));
        self.process.router().add(&remote, inbox.clone());
        let process = Arc::clone(&self.process);
        let no = || AtomicBool::new(false);
        let site = self.site.clone();
        let (is_spoilt, is_blank, may_tell, is_closed) = (no(), no(), no(), no());
        Ok(Session {
            remote,
            process,
            inbox,
            workspace,
            site,
            opened,
            is_spoilt,
            is_blank,
            may_tell,
            is_closed,
            at_work: AtomicUsize::new(0),
            last_used: AtomicU64::new(tick()),
            seat: Mutex::new(self.seat.clone()),
        })
    }

    async fn ask(&self, method: &str, params: RawJson) -> Result<RawJson, Trouble> {
        let time = self.launch.open_timeout;
        let asked = self.process.call_for(self.caller.as_ref(), method, &params, time).await;
        asked.map_err(|trouble| trouble.of(self.process.agent(), method))
    }

    fn params(&self, remote: Option<&str>) -> RawJson {
        let servers = match &self.site.servers {
            Value::Null => json!([]),
            servers => servers.clone(),
        };
        let mut params = json!({ "cwd": self.site.cwd, "mcpServers": servers });
        if let Some(remote) = remote {
            params["sessionId"] = json!(remote);
        }
        let capabilities = self.process.capabilities().session.as_ref();
        let takes = capabilities.is_some_and(|session| session.additional_directories.is_some());
        if takes && !self.site.directories.is_null() {
            params["additionalDirectories"] = self.site.directories.clone();
        }
        with_members(RawJson::of(&params), self.more.as_ref(), self.launch.client_meta)
    }
}

// === impl Session ===

impl Session {
    pub(super) fn remote(&self) -> &str {
        &self.remote
    }

    pub(super) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// What it was opened with.
    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// What a binding keeps of it, but for how the agent was authenticated with.
    pub(super) fn agreed(&self) -> Agreed {
        Agreed {
            cwd: Some(self.site.cwd.clone()),
            directories: self.site.directories.clone(),
            auth_method: None,
        }
    }

    /// See the field.
    pub(super) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Returns when everything that the agent has said so far is dealt with.
    pub(super) async fn caught_up(&self) {
        let (ends, told) = oneshot::channel();
        self.inbox.put(Item::History { is_expected: false, ends }).await;
        // One that is closed has nothing more to deal with.
        drop(told.await);
    }

    /// Whether it can be spoken in.
    pub(super) fn is_open(&self) -> bool {
        self.process.is_alive() && !self.is_spoilt.load(Ordering::Acquire)
    }

    /// Somebody works with it from now on.
    pub(super) fn enter(&self) {
        self.at_work.fetch_add(1, Ordering::AcqRel);
    }

    /// Who worked with it is done.
    pub(super) fn leave(&self) {
        self.last_used.store(tick(), Ordering::Release);
        self.at_work.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether more than so many work with it.
    pub(super) fn is_at_work_but_for(&self, known: usize) -> bool {
        self.at_work.load(Ordering::Acquire) > known
    }

    /// When it was worked with last, among all uses of sessions.
    pub(super) fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Acquire)
    }

    /// Its place in a process that is shared.
    pub(super) fn seat(&self) -> Option<Arc<Seat>> {
        lock(&self.seat).clone()
    }

    /// Says that nothing may be said in it any more: a turn of it could not be ended.
    pub(super) fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Release);
    }

    /// Whether the agent has still to be told what was said in the thread before.
    pub(super) fn is_blank(&self) -> bool {
        self.is_blank.load(Ordering::Acquire)
    }

    /// Says that the agent was told everything.
    pub(super) fn was_told(&self) {
        self.process.prove();
        self.is_blank.store(false, Ordering::Release);
    }

    /// From now on what is said belongs to this run.
    pub(super) async fn begin(&self, context: RunContext, user: MessageId) {
        self.may_tell.store(false, Ordering::Release);
        self.inbox.put(Item::Begin { context, user }).await;
    }

    /// The run is over: returns when everything that was said in it is logged.
    pub(super) async fn finish(&self, how: Finish) -> Finished {
        let (done, finished) = oneshot::channel();
        self.inbox.put(Item::Finish { how, done }).await;
        finished.await.unwrap_or_default()
    }

    /// Forgets it in its process: what is still said in it is not heard. Its terminals are ended beside.
    pub(super) fn close(&self) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.process.router().remove(&self.remote, &self.inbox);
        lock(&self.seat).take();
        let Some(workspace) = self.workspace.clone() else { return };
        // Without a runtime the server goes down, and all commands with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move { workspace.close().await });
    }

    /// Ends its terminals, and waits for that.
    pub(super) async fn close_workspace(&self) {
        if let Some(workspace) = &self.workspace {
            workspace.close().await;
        }
    }

    /// Whether the agent may still tell the history.
    pub(super) fn may_tell(&self) -> bool {
        self.may_tell.load(Ordering::Acquire)
    }

    /// Waits until the history was told. `is_expected` says whether there is any.
    pub(super) async fn history_told(&self, is_expected: bool) {
        let longest = Instant::now() + LONGEST;
        loop {
            let (ends, told) = oneshot::channel();
            self.inbox.put(Item::History { is_expected, ends }).await;
            let Ok(Some(until)) = told.await else { return };
            let now = Instant::now();
            if until <= now || longest <= now {
                return;
            }
            tokio::time::sleep_until(until.min(longest)).await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

// === impl Site ===

impl Site {
    /// Where a client says that its session works.
    pub(super) fn given(params: &Json) -> Option<PathBuf> {
        let cwd = splice::get_text(params.as_str(), &["cwd"])?;
        let cwd = Path::new(&*cwd);
        cwd.is_absolute().then(|| cwd.to_owned())
    }
}
