use std::sync::{Arc, Mutex, OnceLock};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use trilogue_domain::Json;
use trilogue_domain::error::Code;
use trilogue_runtime::{Client, ThreadContext};
use trilogue_sdk::agent_client::peer::RawJson;
use trilogue_wire::agent_client::{NewSessionResponse, Rules as Reading, read_result, splice};

use super::actor::{ActorParts, SessionActor};
use super::answer::RequestAnswerer;
use super::background::StartingSessions;
use super::binding::SessionParams;
use super::family::{FamilyParts, OpenSubagents, Subagents, TreeThreads, tree_places};
use super::modes::SessionModes;
use super::offers::Offers;
use super::session::{Parts, Session};
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::launch::Launch;
use crate::agent_client::meta::with_extra;
use crate::agent_client::process::{OpeningGuard, Process, json_of};
use crate::agent_client::routing::{SessionInbox, SessionItem};
use crate::child::Child;
use crate::permission::Rules;
use crate::workspace::Workspace;
use crate::workspace::lease::WorkspaceLease;

#[derive(Clone, Debug)]
pub(crate) struct SessionStart {
    pub(crate) process: Arc<Process>,
    pub(crate) launch: Arc<Launch>,
    pub(crate) thread: ThreadContext,
    pub(crate) rules: Arc<Rules>,
    pub(crate) params: SessionParams,
    pub(crate) offers: Arc<Offers>,
    pub(crate) starting: Arc<StartingSessions>,
    pub(crate) open_subagents: Arc<OpenSubagents>,
    /// Additional members that the client sent, at the root of the request: an object.
    pub(crate) extra: Option<Json>,
    pub(crate) slot: Option<Arc<OwnedSemaphorePermit>>,
    /// The client that opens it, if one does.
    pub(crate) client: Option<Arc<dyn Client>>,
    /// The lease of the folder in which the session works, if several servers share the store.
    pub(crate) workspace_lease: Option<Arc<WorkspaceLease>>,
    /// Makes others wait for the process until the opening is over.
    pub(crate) _opening: Arc<OpeningGuard>,
}

// === impl SessionStart ===

impl SessionStart {
    pub(crate) async fn begin(self) -> Result<Session, AgentFailure> {
        let _expecting = self.process.router().expect_session();
        let answer = self.call("session/new", self.request(None)).await?;
        let invalid = |why: String| {
            AgentFailure::local(
                Code::ProtocolViolation,
                format!("the agent's answer to session/new is invalid: {why}"),
            )
        };
        let raw: &RawValue = serde_json::from_slice(answer.as_bytes())
            .map_err(|error| invalid(error.to_string()))?;
        let read: NewSessionResponse =
            read_result(raw, Reading::Lenient).map_err(|error| invalid(error.to_string()))?;
        if read.session_id.is_empty() {
            return Err(invalid("the session id is empty".to_owned()));
        }
        let answer = splice::remove(answer.as_str(), &["sessionId"]).into_owned();
        let session = self.session(read.session_id).await?;
        // Notifications after the response are newer than it.
        session.wait_until_caught_up().await;
        session.modes().set(Json::parse_mended(answer).unwrap_or_else(|_| Json::empty_object()));
        session.set_blank();
        Ok(session)
    }

    /// Reopens a session, with the method that the agent has. The replayed history is dropped, because the log has it.
    pub(crate) async fn reopen(self, remote: &str) -> Result<Session, AgentFailure> {
        let session = self.session(remote.to_owned()).await?;
        let resumes = self.process.can_resume();
        let method = if resumes { "session/resume" } else { "session/load" };
        session.inbox().put(SessionItem::Replay).await;
        let _reopening = self.process.router().reopen(session.inbox());
        let answer = self.call(method, self.request(Some(remote))).await?;
        // The response is newer than the notifications before it, and older than those after it.
        session.wait_until_caught_up().await;
        // Some agents name the session in this response too. Clients know it only by this server's id.
        let answer = json_of(answer);
        let answer = splice::remove(answer.as_str(), &["sessionId"]).into_owned();
        session.modes().set(Json::parse_mended(answer).unwrap_or_else(|_| Json::empty_object()));
        // Some agents answer first and replay the history later. A prompt waits for that.
        session.inbox().put(SessionItem::Reopened { may_still_replay: !resumes }).await;
        session.set_may_replay(!resumes);
        Ok(session)
    }

    /// Continues with a session that a previous server has opened in the process.
    pub(crate) async fn rejoin(self, remote: &str, opened: Json) -> Result<Session, AgentFailure> {
        let session = self.session(remote.to_owned()).await?;
        session.modes().set(opened);
        Ok(session)
    }

    async fn session(&self, remote: String) -> Result<Session, AgentFailure> {
        let mut grants = self.launch.grants.clone();
        let mut workspace = None;
        if !grants.is_empty() {
            grants.env = self.process.host().env().to_vec();
            grants.policy = self.process.host().child().and_then(Child::policy).cloned();
            let cwd = self.params.cwd.clone();
            let opened = tokio::task::spawn_blocking(move || Workspace::open(&cwd, grants)).await;
            let opened = opened.map_err(std::io::Error::other).and_then(|opened| opened);
            workspace = Some(opened.map_err(|error| {
                AgentFailure::local(
                    Code::InvalidRequest,
                    format!("the agent's working directory cannot be served: {error}"),
                )
            })?);
        }
        let (inbox, items) = SessionInbox::new();
        let modes = SessionModes::new(Arc::clone(&self.offers));
        let answerer = RequestAnswerer {
            agent: Arc::clone(self.process.agent()),
            launch: Arc::clone(&self.launch),
            rules: Arc::clone(&self.rules),
            workspace: workspace.clone(),
            root: self.params.cwd.clone(),
            workspace_lease: self.workspace_lease.clone(),
            outlives: self.process.host().child().is_some_and(Child::can_outlive),
            client_thread: None,
            terminals: Mutex::default(),
        };
        let (threads, subagents) = (TreeThreads::default(), Arc::<Subagents>::default());
        threads.insert(&remote, self.thread.thread());
        let family = FamilyParts {
            process: Arc::downgrade(&self.process),
            open: Arc::clone(&self.open_subagents),
            threads,
            subagents: Arc::clone(&subagents),
            remote: Arc::from(&*remote),
            parent: None,
            description: None,
            places: tree_places(),
            root: self.thread.clone(),
        };
        let own = Arc::<OnceLock<_>>::default();
        let actor = SessionActor::new(ActorParts {
            launch: Arc::clone(&self.launch),
            thread: self.thread.clone(),
            answerer,
            modes: modes.clone(),
            starting: Arc::clone(&self.starting),
            session: Arc::clone(&own),
            family,
            replay: None,
            is_open: false,
        });
        actor.spawn(items);
        let (process, params) = (Arc::clone(&self.process), self.params.clone());
        let (slot, workspace_lease) = (self.slot.clone(), self.workspace_lease.clone());
        Ok(Session::new(Parts {
            remote,
            process,
            inbox,
            workspace,
            params,
            modes,
            slot,
            workspace_lease,
            own,
            subagents,
            can_cancel: None,
            parent: None,
        }))
    }

    async fn call(&self, method: &str, params: RawJson) -> Result<RawJson, AgentFailure> {
        let time_limit = self.launch.open_timeout;
        let called = self.process.call_for(self.client.as_ref(), method, &params, time_limit).await;
        called.map_err(|failure| failure.for_method(self.process.agent(), method))
    }

    fn request(&self, remote: Option<&str>) -> RawJson {
        let servers = match &self.params.servers {
            Value::Null => json!([]),
            servers => servers.clone(),
        };
        let mut request = json!({ "cwd": self.params.cwd, "mcpServers": servers });
        if let Some(remote) = remote {
            request["sessionId"] = json!(remote);
        }
        let capabilities = self.process.capabilities().session.as_ref();
        let takes = capabilities.is_some_and(|session| session.additional_directories.is_some());
        if takes && !self.params.directories.is_null() {
            request["additionalDirectories"] = self.params.directories.clone();
        }
        if !self.params.system_prompt.is_null() {
            request["systemPrompt"] = self.params.system_prompt.clone();
        }
        with_extra(RawJson::of(&request), self.extra.as_ref(), self.launch.client_meta)
    }
}
