//! Opens the session of a thread: in the right process, with authentication if the agent requires it.

mod closing;
mod defaults;
mod folder;
mod params;
mod ready;
mod rejoin;
mod room;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Json, Principal, RequestSource, lock};
use trilogue_runtime::{Client, ClientProfile, RunContext, ThreadContext};

use super::failure::AgentFailure;
use super::launch::{Launch, Processes};
use super::process::{
    AdoptedProcess, AuthMode, Authentication, GreetingCache, Pool, PrincipalKey, Process,
    ProcessLease, ProcessSpec, Profile,
};
use super::session::{
    Offers, OpenSubagents, Session, SessionBinding, SessionLease, SessionParams, SessionStart,
    StartingSessions, ThreadState, Threads,
};
use crate::child::Children;
use crate::permission::Rules;
use crate::workspace::lease::WorkspaceLease;

pub(super) use folder::{AcceptedFolders, FOLDER_MEMBER, check_folder};
use folder::{OpeningFolders, check_opening};
pub(super) use params::default_cwd;
pub(super) use ready::{LostSession, ReadySession, not_opened};
pub(super) use rejoin::RejoinedSession;
pub(super) use settings::note_choice;

pub(super) struct SessionOpener {
    launch: Mutex<Arc<Launch>>,
    rules: Arc<Rules>,
    pub(super) pool: Pool,
    pub(super) threads: Arc<Threads>,
    pub(super) greetings: Arc<GreetingCache>,
    pub(super) offers: Arc<Offers>,
    pub(super) starting: Arc<StartingSessions>,
    pub(super) open_subagents: Arc<OpenSubagents>,
    pub(super) authentication: Authentication,
    pub(super) accepted_folders: AcceptedFolders,
}

#[derive(Debug)]
pub(super) struct Requester<'a> {
    principal: PrincipalKey,
    profile: Option<&'a ClientProfile>,
    source: RequestSource,
    /// The client that opens it. It gets the agent's questions about the opening.
    client: Option<&'a Arc<dyn Client>>,
    auth: AuthMode,
}

/// A reopened session, or a new one instead of it.
#[derive(Debug)]
pub(super) struct ReopenedSession {
    pub(super) session: SessionLease,
    /// Why the agent does not remember the conversation; `None` if it does.
    pub(super) forgotten: Option<String>,
}

// === impl SessionOpener ===

impl SessionOpener {
    pub(super) fn new(
        agent: Arc<str>,
        launch: Launch,
        children: Arc<Children>,
        rules: Arc<Rules>,
    ) -> Self {
        let launch = Arc::new(launch);
        let threads = Arc::<Threads>::default();
        let greetings = Arc::new(GreetingCache::new(Arc::clone(&launch)));
        let on_exit = {
            let threads = Arc::clone(&threads);
            move |process: &Arc<Process>| threads.drop_sessions(process)
        };
        let pool = Pool::new(agent, children, Arc::clone(&greetings), on_exit);
        let (launch, authentication) = (Mutex::new(launch), Authentication::default());
        let (offers, starting) = (Arc::default(), Arc::default());
        let accepted_folders = AcceptedFolders::default();
        Self {
            launch,
            rules,
            pool,
            threads,
            greetings,
            offers,
            starting,
            open_subagents: Arc::default(),
            authentication,
            accepted_folders,
        }
    }

    pub(super) fn launch(&self) -> Arc<Launch> {
        Arc::clone(&lock(&self.launch))
    }

    pub(super) fn relaunch(&self, launch: Launch) {
        if **lock(&self.launch) == launch {
            return;
        }
        let launch = Arc::new(launch);
        *lock(&self.launch) = Arc::clone(&launch);
        self.greetings.reset(launch);
        self.offers.reset();
        self.pool.reset();
    }

    /// A process for this client that belongs to no thread. If it has to be started, it starts where the client's first
    /// session will probably work: that session takes the process over.
    pub(super) async fn process_for(
        &self,
        client: &dyn Client,
    ) -> Result<ProcessLease, AgentFailure> {
        let launch = self.launch();
        let profile = Profile::of(&launch, Some(client.profile()));
        let cwd = match client.folder().filter(|_| params::follows_client(&launch)) {
            Some(folder) if is_folder(folder).await => folder.to_owned(),
            _ => params::unowned_cwd(&launch),
        };
        let principal = PrincipalKey::of_client(client);
        let folders = params::sandbox_folders(&launch, &cwd, &Value::Null);
        self.pool.lease_unowned(ProcessSpec { launch, principal, profile, cwd, folders }).await
    }

    /// Starts a process for this principal that belongs to no thread, so that its greeting is known.
    pub(crate) async fn greet(&self, by: &Principal) -> Result<ProcessLease, AgentFailure> {
        let launch = self.launch();
        let profile = Profile::of(&launch, None);
        let (principal, cwd) = (PrincipalKey::of_principal(by), params::unowned_cwd(&launch));
        let folders = params::sandbox_folders(&launch, &cwd, &Value::Null);
        self.pool.lease_unowned(ProcessSpec { launch, principal, profile, cwd, folders }).await
    }

    /// The session of the thread's binding, if it is open, and if it either has its client's params or cannot be reopened now.
    pub(super) async fn open_session(
        &self,
        thread: &ThreadContext,
        requester: &Requester<'_>,
        state: &mut ThreadState,
        (remote, binding): (&str, &SessionBinding),
    ) -> Result<Option<SessionLease>, AgentFailure> {
        let Some(session) = state.lease(remote) else { return Ok(None) };
        if state.wanted == state.opened_with {
            return Ok(Some(session));
        }
        let launch = self.launch();
        let (wanted, own) = (state.wanted.as_ref(), binding.own_folders());
        let params = params::of_session(&launch, thread, wanted, binding.clone()).await?;
        if *session.params() == params {
            state.opened_with.clone_from(&state.wanted);
            return Ok(Some(session));
        }
        // Check first: a session that cannot be opened must not end the open one.
        self.check_folders(thread, requester, (&launch, wanted, &own), &params).await?;
        if session.has_leases_beyond(1) || !session.process().can_reopen() {
            return Ok(Some(session));
        }
        session.end_remote(false).await;
        session.close();
        state.session = None;
        Ok(None)
    }

    /// Begins a new session for a thread. `binding` is the binding of the previous session, if there was one.
    pub(super) async fn begin(
        &self,
        thread: &ThreadContext,
        requester: &Requester<'_>,
        state: &mut ThreadState,
        binding: Option<SessionBinding>,
    ) -> Result<SessionLease, AgentFailure> {
        let is_another = binding.is_some();
        let binding = binding.unwrap_or_default();
        let remembered = binding.auth_method.clone();
        let (start, lease) = self.start(thread, requester, state, (binding, None)).await?;
        let (process, position) = (Arc::clone(&start.process), position_of(&start.process));
        let launch = Arc::clone(&start.launch);
        let session = match self.begin_in(start, requester, remembered).await {
            Ok(session) => session,
            Err(failure) => return Err(process.diagnose(failure, position).await),
        };
        self.authentication.record_opened_session();
        defaults::set_defaults(&launch.session, &session).await?;
        if is_another {
            settings::restore(thread, &session).await?;
        }
        Ok(replace(thread, state, session, lease).await)
    }

    async fn begin_in(
        &self,
        start: SessionStart,
        requester: &Requester<'_>,
        remembered: Option<String>,
    ) -> Result<Session, AgentFailure> {
        match start.clone().begin().await {
            Err(failure) if failure.is_authentication_required() => {
                self.authenticate(requester, &start.process, failure, remembered).await?;
                start.begin().await
            }
            begun => begun,
        }
    }

    /// Reopens the session of the thread's binding. If the agent cannot reopen it or no longer knows it, begins a new one.
    pub(super) async fn reopen(
        &self,
        thread: &ThreadContext,
        requester: &Requester<'_>,
        state: &mut ThreadState,
        (remote, binding): (&str, SessionBinding),
    ) -> Result<ReopenedSession, AgentFailure> {
        let remembered = binding.auth_method.clone();
        self.pool.end_held(remote).await;
        let opening = (binding.clone(), None);
        let (start, lease) = self.start(thread, requester, state, opening).await?;
        if !start.process.can_reopen() {
            // Release its slot for the new session.
            drop((start, lease));
            let session = self.begin(thread, requester, state, Some(binding)).await?;
            let forgotten = Some("the agent cannot open its sessions again".to_owned());
            return Ok(ReopenedSession { session, forgotten });
        }
        let (process, position) = (Arc::clone(&start.process), position_of(&start.process));
        let reopened = match start.clone().reopen(remote).await {
            Err(failure) if failure.is_authentication_required() => {
                match self.authenticate(requester, &process, failure, remembered).await {
                    Ok(()) => start.clone().reopen(remote).await,
                    Err(failure) => return Err(process.diagnose(failure, position).await),
                }
            }
            reopened => reopened,
        };
        let launch = Arc::clone(&start.launch);
        // The opening is over, so others need not wait for the process any more.
        drop(start);
        match reopened {
            Ok(session) => {
                self.authentication.record_opened_session();
                defaults::set_defaults(&launch.session, &session).await?;
                settings::restore(thread, &session).await?;
                let session = replace(thread, state, session, lease).await;
                Ok(ReopenedSession { session, forgotten: None })
            }
            Err(failure) if failure.is_refusal() && !failure.is_authentication_required() => {
                let why = failure.text();
                let forgotten = Some(format!("the agent did not open its session again: {why}"));
                let session = self.begin(thread, requester, state, Some(binding)).await?;
                Ok(ReopenedSession { session, forgotten })
            }
            Err(failure) => Err(process.diagnose(failure, position).await),
        }
    }

    /// Authenticates with the agent of a run, after the agent refused a call with `failure`.
    pub(super) async fn authenticate_for_run(
        &self,
        context: &RunContext,
        process: &Process,
        failure: AgentFailure,
    ) -> Result<(), AgentFailure> {
        let binding = context.thread_context().binding().await?;
        let binding = binding.map(|binding| SessionBinding::read(&binding.capabilities));
        let remembered = binding.and_then(|binding| binding.auth_method);
        self.authenticate(&Requester::run(context, None), process, failure, remembered).await
    }

    async fn authenticate(
        &self,
        requester: &Requester<'_>,
        process: &Process,
        failure: AgentFailure,
        remembered: Option<String>,
    ) -> Result<(), AgentFailure> {
        let launch = self.launch();
        let methods = (launch.auth_method.as_deref(), remembered.as_deref());
        let Requester { client, auth, .. } = requester;
        self.authentication.authenticate(*client, process, failure, *auth, methods).await
    }

    async fn check_folders(
        &self,
        thread: &ThreadContext,
        requester: &Requester<'_>,
        (launch, wanted, own): (&Launch, Option<&Json>, &[PathBuf]),
        params: &SessionParams,
    ) -> Result<(), AgentFailure> {
        let (agent, source, by) = (thread.agent(), requester.source, &requester.principal);
        let opening = OpeningFolders { agent, source, by, wanted, own, params };
        check_opening(launch, &self.accepted_folders, &opening).await?;
        params::check_cwd(launch, params).await
    }

    pub(super) fn binding(&self, session: &Session, remembered: Option<&str>) -> SessionBinding {
        let method = self.authentication.method(session.process(), remembered);
        let params = session.params();
        let by = session.process().principal();
        params.to_binding(method, self.accepted_folders.has(by, &params.cwd))
    }

    async fn start(
        &self,
        thread: &ThreadContext,
        requester: &Requester<'_>,
        state: &ThreadState,
        (binding, adopted): (SessionBinding, Option<(AdoptedProcess, u64)>),
    ) -> Result<(SessionStart, ProcessLease), AgentFailure> {
        let launch = self.launch();
        let (wanted, own) = (state.wanted.as_ref(), binding.own_folders());
        let mut params = params::of_session(&launch, thread, wanted, binding).await?;
        self.check_folders(thread, requester, (&launch, wanted, &own), &params).await?;
        let profile = Profile::of(&launch, requester.profile);
        let cwd = params::process_cwd(&launch, &params);
        let workspace_lease = match self.pool.node().filter(|_| launch.remote.is_none()) {
            Some(node) => WorkspaceLease::take(node, &params.cwd, thread).await?,
            None => None,
        };
        if let Some(lease) = &workspace_lease {
            self.pool.release_at_close(lease);
        }
        let principal = requester.principal.clone();
        let folders = params::sandbox_folders(&launch, &params.cwd, &params.directories);
        let spec = ProcessSpec { launch: Arc::clone(&launch), principal, profile, cwd, folders };
        let (lease, slot) = match (launch.processes, adopted) {
            (_, Some(adopted)) => (self.pool.adopt(spec, thread.key(), adopted).await?, None),
            (Processes::Thread, None) => (self.pool.of_thread(spec, thread.key()).await?, None),
            (Processes::Shared, None) => {
                let own = state.session.as_ref().and_then(|session| session.slot());
                let (lease, slot) = self.shared_process(&spec, own).await?;
                (lease, Some(slot))
            }
        };
        let process = Arc::clone(lease.process());
        if let Some(lease) = &workspace_lease {
            process.work_under(lease).await;
        }
        if let Some(child) = process.host().child() {
            let (agent, thread, pid) = (process.agent(), thread.thread(), child.pid());
            let sandbox = child.layers();
            tracing::info!(%agent, %thread, pid, %sandbox, "an agent works for a thread");
        }
        params::check_servers(&launch, &process)?;
        params::check_system_prompt(wanted, &process, &mut params);
        let extra = wanted.and_then(params::extra_members);
        params::hide_secrets(process.host(), &params, extra.as_ref());
        let start = SessionStart {
            process,
            launch,
            thread: thread.clone(),
            rules: Arc::clone(&self.rules),
            params,
            offers: Arc::clone(&self.offers),
            starting: Arc::clone(&self.starting),
            open_subagents: Arc::clone(&self.open_subagents),
            extra,
            slot,
            client: requester.client.cloned(),
            workspace_lease,
            _opening: Arc::new(self.pool.opening()),
        };
        Ok((start, lease))
    }
}

async fn replace(
    thread: &ThreadContext,
    state: &mut ThreadState,
    session: Session,
    lease: ProcessLease,
) -> SessionLease {
    let session = Arc::new(session);
    session.process().add_thread(thread.key());
    session.record_opened().await;
    session.keep_for_next_server().await;
    state.opened_with.clone_from(&state.wanted);
    if let Some(before) = state.session.replace(Arc::clone(&session)) {
        before.close();
        if before.is_open() && before.remote() != session.remote() {
            // End the old session at the agent in the background: its data is no longer used.
            tokio::spawn(async move {
                let _lease = before.process().lease();
                before.end_remote(false).await;
            });
        }
    }
    SessionLease::new(session, lease)
}

/// The position from which a process's standard error belongs to this opening: its start, if the process had no other work.
fn position_of(process: &Process) -> u64 {
    if process.has_completed_turn() { process.host().captured().position() } else { 0 }
}

/// The event that tells clients that the agent does not remember the conversation.
pub(super) fn session_restarted(why: &str) -> Body {
    let data = Json::from_value(&json!({ "reason": why }));
    Body::State(StateEvent::Custom { kind: "session_restarted".to_owned(), data })
}

async fn is_folder(path: &Path) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|found| found.is_dir())
}

// === impl Requester ===

impl<'a> Requester<'a> {
    pub(super) fn client(client: &'a Arc<dyn Client>) -> Self {
        Self {
            principal: PrincipalKey::of_client(client.as_ref()),
            profile: Some(client.profile()),
            source: client.profile().source,
            client: Some(client),
            auth: AuthMode::AsChosen,
        }
    }

    /// A run, whose client has this profile.
    pub(super) fn run(context: &RunContext, profile: Option<&'a ClientProfile>) -> Self {
        let principal = PrincipalKey::of_run(context);
        let source = context.source();
        Self { principal, profile, source, client: None, auth: AuthMode::Always }
    }
}
