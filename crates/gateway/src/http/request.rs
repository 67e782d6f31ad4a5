//! An admitted request.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, header};
use serde::de::DeserializeOwned;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, Code, Error, Json, Principal, PrincipalId, RequestSource, Right, RunId, Scope,
    Strategy, ThreadId, limits,
};
use trilogue_runtime::{RunCaller, RunRequest, Runtime};
use trilogue_store::rows::{InterruptRow, Page, RunRow};

use crate::access::admission::while_admitted;
use crate::access::agent_check::{AgentCheck, refused_agent};
use crate::access::authenticator::{Authenticator, Caller, no_token};
use crate::access::schemes::Challenge;
use crate::core::audit::{AuditActor, AuditEvent, answer_detail, audit};
use crate::core::not_found::{no_run, no_thread};
use crate::core::opened_folders::OpenedFolders;
use crate::core::render_turns::RequestTurn;

/// A response of more output needs a turn, in bytes.
const LARGE_BYTES: usize = 1024 * 1024;

/// An admitted request.
#[derive(Clone, Debug)]
pub struct Request {
    pub(crate) authenticator: Arc<Authenticator>,
    pub caller: Caller,
    /// The host in the request's address, if it names one.
    pub(crate) authority: Option<Authority>,
    pub headers: HeaderMap,
    /// Whether the response can change the protocol of the connection.
    pub(crate) can_upgrade: bool,
    pub(crate) params: Vec<(&'static str, String)>,
    pub(crate) query: Vec<(String, String)>,
    pub body: Bytes,
    /// The schemes of the agent that refused the caller, once one has.
    pub(crate) challenge: Arc<OnceLock<Challenge>>,
    pub(crate) agent_check: AgentCheck,
    pub(crate) opened_folders: OpenedFolders,
    pub(crate) turn: RequestTurn,
}

// === impl Request ===

impl Request {
    /// Checks that the agent accepts the caller's scheme. Handlers call it before they reveal or do anything of the agent.
    ///
    /// # Errors
    /// `unauthenticated`, with the schemes of the agent.
    pub fn reach(&self, agent: &AgentName) -> Result<()> {
        if self.authenticator.takes(&self.caller, agent) {
            return Ok(());
        }
        if self.authenticator.hides(&self.caller, Some(agent)) {
            return Err(no_token());
        }
        let (challenge, hint) = self.authenticator.challenge_of(agent);
        // If one request is refused twice, the response names the first agent's schemes.
        drop(self.challenge.set(challenge));
        Err(Error::new(
            Code::Unauthenticated,
            format!("the agent '{agent}' does not take callers in this way"),
        )
        .hint(hint))
    }

    /// Waits for an operation that can take as long as a run, but at most as long as the caller's token is valid.
    ///
    /// # Errors
    /// Those of the wait; `unauthenticated`.
    pub(crate) async fn while_admitted<T>(
        &self,
        wait: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        while_admitted(&self.authenticator, &self.caller, wait).await
    }

    /// The run with what is known of its caller, which decides over what its configuration may say and which runs it may replace.
    /// Fails with `forbidden` if a program of an agent asks for a run that removes others.
    pub(crate) async fn identified(&self, new: RunRequest) -> Result<RunRequest> {
        let removes = new.strategy == Strategy::Rollback;
        // Settings can decide for a person. Without any, the source is only for the audit entry.
        let is_agent = match new.config {
            Some(_) => self.agent_check.is_of_agent(&self.headers).await,
            None => self.agent_check.is_of_known_agent(&self.headers).await,
        };
        if removes {
            self.require_person().await?;
        }
        Ok(RunRequest {
            token: self.caller.token.clone(),
            source: source_of(is_agent),
            folders: self.opened_folders.of(self.principal()),
            may_remove_of_others: removes && self.require_removal_of(None).await.is_ok(),
            ..new
        })
    }

    /// Fails as a run with this configuration would, if its caller may not give it.
    pub(crate) async fn check_run_config(
        &self,
        runtime: &Runtime,
        agent: &AgentName,
        config: &Json,
    ) -> Result<()> {
        let folders = self.opened_folders.of(self.principal());
        let source = source_of(self.agent_check.is_of_agent(&self.headers).await);
        let caller = RunCaller::new(self.principal(), source, &folders);
        runtime.authorize_config(&caller, agent, config).await
    }

    /// Fails with `forbidden` if a program of a hosted agent sent the request: for routes of which only a part is for people.
    pub(crate) async fn require_person(&self) -> Result<()> {
        match self.agent_check.is_of_agent(&self.headers).await {
            true => Err(refused_agent(None)),
            false => Ok(()),
        }
    }

    /// Fails with `forbidden` if the caller may not remove what this principal made. What others made, or an unknown owner, needs the right `admin`, and a new sign-in of a page.
    pub(crate) async fn require_removal_of(&self, owner: Option<&PrincipalId>) -> Result<()> {
        if owner == Some(&self.principal().id) {
            return Ok(());
        }
        self.principal().require(Right::Admin)?;
        self.require_new_sign_in().await
    }

    /// Fails with `forbidden` if metadata for a thread has settings or folders of its editor, and the caller is a program of an agent or a page whose sign-in is not new. The runtime checks the right. Returns whether it has such members.
    pub(crate) async fn check_thread_metadata(&self, metadata: Option<&Json>) -> Result<bool> {
        if metadata.and_then(trilogue_runtime::editor_member).is_none() {
            return Ok(false);
        }
        self.require_person().await?;
        self.require_new_sign_in().await?;
        Ok(true)
    }

    /// Writes an audit line of the editor's settings that the caller has written, if it has.
    pub(crate) fn audit_editor_settings(&self, has_written: bool, thread: &ThreadId) {
        if has_written {
            self.audit(AuditEvent::EditorSettingsWritten, thread.as_str(), "");
        }
    }

    /// Writes an audit line of the caller's action.
    pub(crate) fn audit(&self, event: AuditEvent, subject: &str, detail: &str) {
        let actor = AuditActor::new(self.principal(), self.caller.token.as_ref());
        audit(event, Some(actor), subject, detail);
    }

    /// Writes an audit line of the caller's answer.
    pub(crate) fn audit_answer(&self, row: &InterruptRow) {
        self.audit(AuditEvent::QuestionAnswered, row.interrupt.id.as_str(), &answer_detail(row));
    }

    /// Writes an audit line of the run that the caller removed.
    pub(crate) fn audit_removal(&self, row: &RunRow, how: &str) {
        let detail = format!("of {}; {how}", row.principal);
        self.audit(AuditEvent::RunRemoved, row.id.as_str(), &detail);
    }

    /// Waits for a turn to render the response, if it has this many bytes so far and is large. It ends when the handler has responded.
    pub(crate) async fn weigh_response(&self, bytes: usize) {
        if bytes > LARGE_BYTES {
            self.turn.wait(self.principal()).await;
        }
    }

    pub fn principal(&self) -> &Principal {
        &self.caller.principal
    }

    pub fn scope(&self) -> Scope {
        self.caller.principal.scope()
    }

    pub(crate) fn host(&self) -> Option<&str> {
        self.header(&header::HOST).or(self.authority.as_ref().map(Authority::as_str))
    }

    /// Returns a parameter of the path. The router fills all parameters of the route's path.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str())
    }

    /// Fails with `forbidden` if the caller is a page that has not signed in recently.
    pub(crate) async fn require_new_sign_in(&self) -> Result<()> {
        self.authenticator.require_new_sign_in(&self.caller).await
    }

    /// # Errors
    /// `thread_not_found` if the id is invalid.
    pub fn thread_id(&self) -> Result<ThreadId> {
        let text = self.param("thread_id");
        ThreadId::parse(text).map_err(|_| no_thread(text))
    }

    /// # Errors
    /// `run_not_found` if the id is invalid.
    pub fn run_id(&self) -> Result<RunId> {
        let text = self.param("run_id");
        RunId::parse(text).map_err(|_| no_run(text))
    }

    /// Returns a parameter of the query; the first if it is repeated.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// # Errors
    /// `invalid_json` or `invalid_request`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        super::receive::json(&self.body)
    }

    /// Returns the page of a listing that `limit` and `after` request.
    ///
    /// # Errors
    /// `invalid_request` or `invalid_cursor`.
    pub fn page(&self) -> Result<Page> {
        let after = match self.query("after") {
            Some(text) => Some(text.parse().map_err(|_| {
                Error::new(Code::InvalidCursor, format!("unknown cursor '{}'", text.escape_debug()))
                    .hint("give the 'next' of the page before")
            })?),
            None => None,
        };
        Ok(Page { limit: self.limit()?, after, skip: 0 })
    }

    /// Returns the number of items that `limit` requests.
    pub fn limit(&self) -> Result<usize> {
        let Some(text) = self.query("limit") else { return Ok(limits::DEFAULT_PAGE_ROWS) };
        match text.parse() {
            Ok(limit @ 1..=limits::MAX_PAGE_ROWS) => Ok(limit),
            _ => Err(Error::new(
                Code::InvalidRequest,
                format!("'{}' is not a page length", text.escape_debug()),
            )
            .hint(format!("'limit' is 1 to {}", limits::MAX_PAGE_ROWS))),
        }
    }

    /// Returns the conditions `metadata.KEY=VALUE`: the value is JSON, or text if it is not valid JSON.
    pub fn metadata_filter(&self) -> Vec<(String, String)> {
        let conditions = self.query.iter().filter_map(|(name, value)| {
            let key = name.strip_prefix("metadata.")?;
            let value = match serde_json::from_str::<serde_json::Value>(value) {
                Ok(value) => value,
                Err(_) => serde_json::Value::String(value.clone()),
            };
            Some((key.to_owned(), value.to_string()))
        });
        conditions.collect()
    }
}

fn source_of(is_agent: bool) -> RequestSource {
    if is_agent { RequestSource::Agent } else { RequestSource::Network }
}
