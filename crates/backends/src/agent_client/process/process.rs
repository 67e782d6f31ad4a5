use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use serde_json::Value;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use trilogue_broker::BrokerGuard;
use trilogue_domain::error::Code;
use trilogue_domain::{Json, ThreadKey, lock};
use trilogue_runtime::Client;
use trilogue_sdk::agent_client::peer::{self, Handler, Peer, RawJson};
use trilogue_wire::agent_client::{AgentCapabilities, AuthMethod, InitializeResponse};
use trilogue_wire::jsonrpc::Payload;

use super::greeting::json_of;
use super::initialize::{initialize, read_greeting};
use super::lease::{Leases, ProcessLease};
use super::pool::ProcessSpec;
use super::principal::PrincipalKey;
use super::profile::Profile;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::host::{AgentHost, StartedHost};
use crate::agent_client::launch::{Launch, Processes};
use crate::agent_client::network::serve;
use crate::agent_client::routing::{CallOrigin, Router, SessionInbox};
use crate::child::{
    Breaker, Child, Children, EXIT_GRACE, IdleChild, OUTPUT_TAIL_BYTES, StartedChild, sandbox_hint,
};
use crate::workspace::lease::WorkspaceLease;

/// The kind of authentication methods whose keys are variables.
const VARIABLES: &str = "env_var";

/// How long the standard error of an agent is read after it refused a call.
const STDERR_TIME: Duration = Duration::from_millis(50);

pub(crate) struct Process {
    agent: Arc<str>,
    /// The principal that it was started for.
    principal: PrincipalKey,
    host: AgentHost,
    peer: Peer,
    profile: Profile,
    greeting: Json,
    capabilities: AgentCapabilities,
    auth_methods: Vec<AuthMethod>,
    router: Arc<Router>,
    /// One permit for each session that may be open in it, if threads share it.
    session_slots: Arc<Semaphore>,
    leases: Leases,
    /// Whether its standard error is about one thread only. That thread may then see it.
    is_private: bool,
    has_completed_turn: AtomicBool,
    breaker: Arc<Breaker>,
    /// The threads that have or had sessions in it.
    threads: Mutex<HashSet<ThreadKey>>,
    /// The lease of the folder in which it works, if it works for one thread.
    workspace_lease: Mutex<Option<Arc<WorkspaceLease>>>,
    /// The variables that may hold credentials for it.
    wanted: Vec<String>,
    /// Its way to the network, which ends with it.
    broker: Mutex<Option<BrokerGuard>>,
}

#[derive(Clone, Copy)]
pub(super) struct PoolContext<'a> {
    pub(super) agent: &'a Arc<str>,
    pub(super) children: &'a Children,
    pub(super) breaker: &'a Arc<Breaker>,
    pub(super) changed: &'a Arc<Notify>,
}

/// The two ends of a process: where it runs, and the connection to it.
struct Ends {
    host: AgentHost,
    peer: Peer,
    router: Arc<Router>,
    broker: Option<BrokerGuard>,
}

/// A process of a previous server.
pub(crate) struct AdoptedProcess {
    pub(crate) started: StartedChild,
    /// Its answer to `initialize`.
    pub(crate) initialize: Value,
    /// The id of the last call that it was sent.
    pub(crate) last_call: Option<u64>,
}

/// Starts the exchange of messages with a process.
fn connect(
    shared: PoolContext<'_>,
    launch: &Launch,
    started: StartedHost,
    options: &peer::Options,
) -> Ends {
    let host = started.host.clone();
    let is_private = launch.processes == Processes::Thread;
    let place = (host.clone(), options.first_byte);
    let router = Router::new(shared.agent, is_private, launch.client_meta, place);
    let options = peer::Options {
        max_line_bytes: launch.max_line_bytes,
        cancels_dropped: true,
        ..options.clone()
    };
    let peer = started.into_peer(Arc::clone(&router) as Arc<dyn Handler>, options);
    let broker = host.child().and_then(|child| serve(shared.agent, launch, child, &router));
    Ends { host, peer, router, broker }
}

/// An authentication method that takes its key from variables, as JSON.
fn method_of_variables(method: &AuthMethod) -> Option<Value> {
    let AuthMethod::Other(other) = method else { return None };
    let method = Some(other).filter(|other| other.kind == VARIABLES)?;
    serde_json::from_str(method.json.as_str()).ok()
}

/// The variables that may hold an agent's credentials: those that its methods name, and those that are known for it.
fn wanted_variables(known: &[String], methods: &[AuthMethod]) -> Vec<String> {
    let methods: Vec<_> = methods.iter().filter_map(method_of_variables).collect();
    let listed = methods.iter().filter_map(|method| method["vars"].as_array()).flatten();
    let named = listed.filter_map(|one| one["name"].as_str()).map(str::to_owned);
    let mut all: Vec<String> = named.collect();
    for name in known {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

// === impl Process ===

impl Process {
    pub(super) async fn start(
        shared: PoolContext<'_>,
        spec: ProcessSpec,
    ) -> Result<Arc<Self>, AgentFailure> {
        let (agent, launch) = (shared.agent, &*spec.launch);
        let place = (&*spec.cwd, &*spec.folders);
        let started = StartedHost::start(agent, launch, place, shared.children).await?;
        let ends = connect(shared, launch, started, &peer::Options::client());
        let greeted = initialize(agent, (&ends.host, &ends.peer), launch, &spec.profile).await?;
        Ok(Self::new(shared, spec, ends, greeted))
    }

    /// Continues with a process that a previous server has started. `initialize` is its answer.
    /// Its output begins at this position.
    pub(super) fn adopt(
        shared: PoolContext<'_>,
        spec: ProcessSpec,
        (adopted, position): (AdoptedProcess, u64),
    ) -> Result<Arc<Self>, AgentFailure> {
        let first_call = adopted.last_call.map_or(0, |id| id.saturating_add(1));
        let options = peer::Options { first_call, first_byte: position, ..peer::Options::client() };
        let started = StartedHost::adopt(adopted.started);
        let ends = connect(shared, &spec.launch, started, &options);
        let greeting = RawJson::of(&adopted.initialize);
        let answer = read_greeting(&ends.host, &greeting)?;
        Ok(Self::new(shared, spec, ends, (greeting, answer)))
    }

    fn new(
        shared: PoolContext<'_>,
        spec: ProcessSpec,
        ends: Ends,
        (greeting, answer): (RawJson, InitializeResponse),
    ) -> Arc<Self> {
        let launch = &*spec.launch;
        let Ends { host, peer, router, broker } = ends;
        Arc::new(Self {
            agent: Arc::clone(shared.agent),
            principal: spec.principal,
            host,
            peer,
            profile: spec.profile,
            capabilities: answer.agent_capabilities.unwrap_or_default(),
            wanted: wanted_variables(&launch.credentials, &answer.auth_methods),
            auth_methods: answer.auth_methods,
            greeting: json_of(greeting),
            router,
            session_slots: Arc::new(Semaphore::new(
                launch.max_sessions.min(Semaphore::MAX_PERMITS),
            )),
            leases: Leases::new(Arc::clone(shared.changed)),
            is_private: launch.processes == Processes::Thread,
            has_completed_turn: AtomicBool::new(false),
            breaker: Arc::clone(shared.breaker),
            threads: Mutex::default(),
            workspace_lease: Mutex::default(),
            broker: Mutex::new(broker),
        })
    }

    /// Returns when the process has exited and all its output was read.
    pub(super) async fn watch(&self) {
        tokio::select! {
            // What has not ended within the grace period is ended below.
            () = self.host.exited() => drop(timeout(EXIT_GRACE, self.peer.wait_for_end()).await),
            () = self.peer.wait_for_end() => drop(timeout(EXIT_GRACE, self.host.exited()).await),
            () = self.router.ignored().keep_reporting(&self.agent) => {}
        }
        self.peer.abort();
        self.router.ignored().report(&self.agent);
        self.router.clear();
        self.host.stop().await;
        lock(&self.workspace_lease).take();
        lock(&self.broker).take();
    }

    /// Ends the process when the lease is lost. A process for a single thread keeps the lease until no process of its tree is left.
    pub(crate) async fn work_under(self: &Arc<Self>, lease: &Arc<WorkspaceLease>) {
        if let Some(child) = self.host.child() {
            lease.name_child(child).await;
        }
        if self.is_private {
            *lock(&self.workspace_lease) = Some(Arc::clone(lease));
        }
        let (watch, process) = (lease.watch(), Arc::downgrade(self));
        tokio::spawn(async move {
            if watch.wait_for_loss().await {
                if let Some(process) = process.upgrade() {
                    process.kill().await;
                }
                watch.release();
            }
        });
    }

    pub(crate) fn agent(&self) -> &Arc<str> {
        &self.agent
    }

    pub(crate) fn principal(&self) -> &PrincipalKey {
        &self.principal
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn host(&self) -> &AgentHost {
        &self.host
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn greeting(&self) -> &Json {
        &self.greeting
    }

    pub(crate) fn capabilities(&self) -> &AgentCapabilities {
        &self.capabilities
    }

    pub(crate) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// A slot for one more session. `None` if all are taken.
    pub(crate) fn session_slot(&self) -> Option<Arc<OwnedSemaphorePermit>> {
        Arc::clone(&self.session_slots).try_acquire_owned().ok().map(Arc::new)
    }

    pub(crate) fn owns_slot(&self, slot: &OwnedSemaphorePermit) -> bool {
        Arc::ptr_eq(&self.session_slots, slot.semaphore())
    }

    /// Whether the agent can open its sessions again in another process.
    pub(crate) fn can_reopen(&self) -> bool {
        self.capabilities.load_session || self.can_resume()
    }

    pub(crate) fn can_resume(&self) -> bool {
        self.capabilities.session.as_ref().is_some_and(|session| session.resume.is_some())
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.peer.is_ended() && !self.host.has_exited() && !self.is_stopping()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.leases.is_stopping()
    }

    /// Notes that a turn has completed in it: after that, its exit does not count as a failed start.
    pub(crate) fn record_completed_turn(&self) {
        if !self.has_completed_turn.swap(true, Ordering::AcqRel) {
            self.breaker.reset();
        }
    }

    pub(crate) fn has_completed_turn(&self) -> bool {
        self.has_completed_turn.load(Ordering::Acquire)
    }

    pub(crate) fn add_thread(&self, thread: ThreadKey) {
        lock(&self.threads).insert(thread);
    }

    pub(crate) fn remove_thread(&self, thread: ThreadKey) {
        lock(&self.threads).remove(&thread);
    }

    pub(crate) fn threads(&self) -> Vec<ThreadKey> {
        lock(&self.threads).iter().copied().collect()
    }

    /// The first authentication method that takes its key from variables, if the agent has all of them.
    pub(super) fn auth_method_of_variables(&self) -> Option<String> {
        let env = self.host.env();
        self.auth_methods.iter().find_map(|method| {
            let method = method_of_variables(method)?;
            let mut names = method["vars"].as_array()?.iter();
            let is_set =
                |name: &str| env.iter().any(|(known, value)| known == name && !value.is_empty());
            let are_set = names
                .all(|one| one["optional"] == true || one["name"].as_str().is_some_and(is_set));
            are_set.then(|| method["id"].as_str().map(str::to_owned))?
        })
    }

    pub(super) fn auth_methods(&self) -> &[AuthMethod] {
        &self.auth_methods
    }

    pub(super) fn has_auth_method(&self, id: &str) -> bool {
        self.own_auth_methods().any(|method| method == id)
    }

    /// The authentication methods that the agent carries out by itself.
    fn own_auth_methods(&self) -> impl Iterator<Item = &str> {
        self.auth_methods.iter().filter_map(|method| match method {
            AuthMethod::Agent(method) => Some(method.id.as_str()),
            _ => None,
        })
    }

    pub(crate) async fn call<P: Payload + Sync + ?Sized>(
        &self,
        method: &str,
        params: &P,
        time_limit: Duration,
    ) -> Result<RawJson, AgentFailure> {
        self.call_for(None, method, params, time_limit).await
    }

    /// Calls the agent for a client, which gets the agent's requests about this call.
    pub(crate) async fn call_for<P: Payload + Sync + ?Sized>(
        &self,
        client: Option<&Arc<dyn Client>>,
        method: &str,
        params: &P,
        time_limit: Duration,
    ) -> Result<RawJson, AgentFailure> {
        let call = async {
            let Some(client) = client else { return self.peer.call(method, params).await };
            let unsent = self.router.calls().prepare();
            let call = self.peer.begin(method, params).await?;
            let _in_flight = unsent.register(call.id(), CallOrigin::Client(Arc::downgrade(client)));
            call.await
        };
        match timeout(time_limit, call).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(failed)) => Err(self.failure(failed).await),
            Err(_) => Err(AgentFailure::local(
                Code::PeerUnavailable,
                format!(
                    "the agent '{}' did not answer {method} within {} s",
                    self.agent,
                    time_limit.as_secs()
                ),
            )),
        }
    }

    /// The reason of a failed call. If the connection has ended, that is the status with which the process exited.
    pub(crate) async fn failure(&self, failed: peer::CallFailure) -> AgentFailure {
        match failed {
            peer::CallFailure::Closed => AgentFailure::Exited(self.exit_text().await),
            failed => failed.into(),
        }
    }

    /// The status with which the process exited, and the end of its output if the output is about one thread only.
    pub(super) async fn exit_text(&self) -> String {
        // Its last output is read once it has exited.
        let how = self.host.how_it_exited().await;
        let tail = if self.is_private { self.host.output_tail() } else { String::new() };
        match sandbox_hint(self.host.layers(), &tail) {
            Some(hint) => format!("the agent '{}' {how}{tail}; {hint}", self.agent),
            None => format!("the agent '{}' {how}{tail}", self.agent),
        }
    }

    /// The end of its standard error after a position, if it is about one thread only.
    fn stderr_after(&self, position: u64) -> String {
        if !self.is_private {
            return String::new();
        }
        self.host.captured().tail_after(position, OUTPUT_TAIL_BYTES)
    }

    /// Adds the agent's standard error after a position, and a hint, to its failure.
    pub(crate) async fn diagnose(&self, failure: AgentFailure, position: u64) -> AgentFailure {
        if failure.is_refusal() {
            // Output that it wrote before its response may not have been read yet.
            sleep(STDERR_TIME).await;
        }
        failure.with_diagnosis(&self.host, &self.wanted, self.stderr_after(position))
    }

    /// A lease of the process. `None` if it is being stopped.
    pub(crate) fn lease(self: &Arc<Self>) -> Option<ProcessLease> {
        ProcessLease::take(self)
    }

    pub(super) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Notes a sign of work: it counts as idle from now on.
    pub(crate) fn touch(&self) {
        self.leases.touch();
    }

    /// Whether a session has a tool call that the agent has not ended.
    pub(super) fn has_open_calls(&self) -> bool {
        self.router.inboxes().iter().any(SessionInbox::has_open_calls)
    }

    /// Whether there are more leases than `known`.
    pub(crate) fn has_leases_beyond(&self, known: usize) -> bool {
        self.leases.count() > known
    }

    pub(crate) async fn kill(&self) {
        self.leases.stop();
        self.host.kill().await;
    }

    /// Stops a process that does nothing, and tells its threads the reason.
    pub(super) async fn stop_idle(&self, reason: &'static str) {
        let (agent, pid) = (&*self.agent, self.host.pid());
        tracing::info!(agent, pid, reason, "stopping an agent's process");
        let inboxes = self.router.inboxes();
        join_all(inboxes.iter().map(|inbox| inbox.log_stop(reason))).await;
        self.stop().await;
    }

    pub(crate) async fn stop(&self) {
        self.leases.stop();
        self.peer.close();
        self.host.stop().await;
    }
}

impl IdleChild for Process {
    fn child(&self) -> Option<&Child> {
        self.host.child()
    }

    fn idle_since(&self) -> Option<Instant> {
        self.leases.idle_since()
    }

    fn has_open_calls(&self) -> bool {
        Self::has_open_calls(self)
    }

    fn retire(&self) -> bool {
        self.leases.retire_if_idle()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.stop_idle("another agent needs its place").boxed()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("agent", &self.agent).field("host", &self.host).finish()
    }
}
