use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::counter;
use serde_json::value::RawValue;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{Json, ThreadKey, lock};
use trilogue_runtime::Client;
use trilogue_sdk::agent_client::peer::{self, Handler, Peer, RawJson};
use trilogue_wire::agent_client::{
    AgentCapabilities, AuthMethod, InitializeResponse, PROTOCOL_VERSION, Rules, read_result,
};
use trilogue_wire::jsonrpc::Payload;

use super::breaker::Breaker;
use super::greeting::json_of;
use super::profile::Profile;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::launch::{Launch, Processes};
use crate::agent_client::routing::{CallOrigin, Router};
use crate::child::{Child, Children, IdleChild, Program};

/// How much of the end of an agent's standard error is shown where it fails, in bytes.
const STDERR_TAIL_BYTES: usize = 2 * 1024;
/// How long an agent that closed its output may take to exit.
const EXIT_GRACE: Duration = Duration::from_millis(500);
const COUNT_IGNORED_EVERY: Duration = Duration::from_secs(15);
/// Lines of agents that were no messages, by agent and by what was wrong with them.
const IGNORED_LINES: &str = "trilogue_agent_ignored_lines_total";

pub(crate) struct Process {
    agent: Arc<str>,
    child: Child,
    peer: Peer,
    profile: Profile,
    greeting: Json,
    capabilities: AgentCapabilities,
    auth_methods: Vec<AuthMethod>,
    router: Arc<Router>,
    /// One permit for each session that may be open in it, where threads share it.
    session_slots: Arc<Semaphore>,
    usage: Mutex<LeaseCount>,
    /// Notified when the last lease ends.
    pool_changed: Arc<Notify>,
    /// Whether its standard error is about one thread alone, which may see it.
    is_private: bool,
    has_completed_turn: AtomicBool,
    breaker: Arc<Breaker>,
    /// The threads that have or had sessions in it.
    threads: Mutex<HashSet<ThreadKey>>,
    counted: Mutex<IgnoredLines>,
}

/// Keeps a process from being stopped as idle.
#[derive(Debug)]
pub(crate) struct ProcessLease(Arc<Process>);

#[derive(Debug, Default)]
struct IgnoredLines {
    noise: u64,
    oversize: u64,
}

#[derive(Debug)]
struct LeaseCount {
    leases: usize,
    /// When the last lease ended.
    idle_since: Instant,
    /// Whether the server is stopping it. No further lease is given.
    is_stopping: bool,
}

pub(super) struct PoolContext<'a> {
    pub(super) agent: &'a Arc<str>,
    pub(super) children: &'a Children,
    pub(super) breaker: &'a Arc<Breaker>,
    pub(super) changed: &'a Arc<Notify>,
}

// === impl Process ===

impl Process {
    pub(super) async fn start(
        shared: PoolContext<'_>,
        launch: &Launch,
        profile: Profile,
        cwd: &Path,
    ) -> Result<Arc<Self>, AgentFailure> {
        let agent = shared.agent;
        let program = Program {
            name: agent,
            command: &launch.command,
            cwd,
            env: &launch.env,
            inherit: &launch.inherit,
        };
        let started = shared.children.start(program).await?;
        let is_private = launch.processes == Processes::Thread;
        let router = Router::new(agent, is_private, launch.client_meta);
        let options = peer::Options {
            max_line_bytes: launch.max_line_bytes,
            cancels_dropped: true,
            ..peer::Options::client()
        };
        let handler = Arc::clone(&router) as Arc<dyn Handler>;
        let peer = Peer::start(started.output, started.input, handler, options);
        let mut guard =
            AbortOnDrop { child: started.child.clone(), peer: peer.clone(), is_armed: true };
        let greeting = initialize(agent, &guard, launch, &profile).await?;
        let answer = read_greeting(&greeting)?;
        guard.is_armed = false;
        let usage = LeaseCount { leases: 0, idle_since: Instant::now(), is_stopping: false };
        Ok(Arc::new(Self {
            agent: Arc::clone(agent),
            child: started.child,
            peer,
            profile,
            capabilities: answer.agent_capabilities.unwrap_or_default(),
            auth_methods: answer.auth_methods,
            greeting: json_of(greeting),
            router,
            session_slots: Arc::new(Semaphore::new(
                launch.max_sessions.min(Semaphore::MAX_PERMITS),
            )),
            usage: Mutex::new(usage),
            pool_changed: Arc::clone(shared.changed),
            is_private,
            has_completed_turn: AtomicBool::new(false),
            breaker: Arc::clone(shared.breaker),
            threads: Mutex::default(),
            counted: Mutex::default(),
        }))
    }

    /// Returns when the process has exited and all its output was read.
    pub(super) async fn watch(&self) {
        tokio::select! {
            _ = self.child.exited() => drop(timeout(EXIT_GRACE, self.peer.ended()).await),
            () = self.peer.ended() => drop(timeout(EXIT_GRACE, self.child.exited()).await),
            () = self.keep_counting_ignored() => {}
        }
        self.peer.abort();
        self.count_ignored();
        self.router.clear();
        self.child.stop().await;
    }

    pub(crate) fn agent(&self) -> &Arc<str> {
        &self.agent
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn child(&self) -> &Child {
        &self.child
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

    /// A slot for one more session, if there is any.
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
        !self.peer.is_ended() && !self.child.has_exited() && !self.is_stopping()
    }

    pub(super) fn is_stopping(&self) -> bool {
        lock(&self.usage).is_stopping
    }

    /// A turn has completed in it: from now on its exit does not count as a failed start.
    pub(crate) fn turn_completed(&self) {
        if !self.has_completed_turn.swap(true, Ordering::AcqRel) {
            self.breaker.reset();
        }
    }

    pub(super) fn has_completed_turn(&self) -> bool {
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

    /// The authentication method: `wanted`, else the first that the agent carries out by itself.
    pub(super) fn auth_method<'a>(&'a self, wanted: Option<&'a str>) -> Option<&'a str> {
        wanted.or_else(|| self.own_auth_methods().next())
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
            let _in_flight = unsent.sent(call.id(), CallOrigin::Client(Arc::downgrade(client)));
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

    /// Why a call failed. Where the connection has ended, that is how the process exited.
    pub(crate) async fn failure(&self, failed: peer::CallFailure) -> AgentFailure {
        match failed {
            peer::CallFailure::Closed => AgentFailure::Exited(self.exit_text().await),
            failed => failed.into(),
        }
    }

    /// How the process exited, with the end of its standard error where that is about one thread alone.
    pub(super) async fn exit_text(&self) -> String {
        // Its last output is read once it has exited.
        let how = how_it_exited(&self.child).await;
        let tail = if self.is_private { stderr_tail(&self.child) } else { String::new() };
        format!("the agent '{}' {how}{tail}", self.agent)
    }

    /// The end of its standard error after a position, where that is about one thread alone.
    pub(crate) fn stderr_after(&self, position: u64) -> String {
        if !self.is_private {
            return String::new();
        }
        self.child.captured().tail_after(position, STDERR_TAIL_BYTES)
    }

    /// Keeps the process; `None` if it is being stopped.
    pub(crate) fn lease(self: &Arc<Self>) -> Option<ProcessLease> {
        let mut usage = lock(&self.usage);
        if usage.is_stopping {
            return None;
        }
        usage.leases += 1;
        Some(ProcessLease(Arc::clone(self)))
    }

    /// Gives no further lease, if there is none now. Returns `true` if the caller must stop the process.
    pub(super) fn retire_if_idle(&self) -> bool {
        let mut usage = lock(&self.usage);
        let is_idle = usage.leases == 0 && !usage.is_stopping;
        usage.is_stopping |= is_idle;
        is_idle
    }

    pub(super) fn is_idle(&self) -> bool {
        let usage = lock(&self.usage);
        usage.leases == 0 && !usage.is_stopping
    }

    /// Whether there are more leases than `known`.
    pub(crate) fn has_leases_beyond(&self, known: usize) -> bool {
        lock(&self.usage).leases > known
    }

    pub(super) fn idle_since(&self) -> Instant {
        lock(&self.usage).idle_since
    }

    pub(crate) async fn kill(&self) {
        lock(&self.usage).is_stopping = true;
        self.child.kill().await;
    }

    pub(crate) async fn stop(&self) {
        lock(&self.usage).is_stopping = true;
        self.peer.close();
        self.child.stop().await;
    }

    async fn keep_counting_ignored(&self) {
        loop {
            tokio::time::sleep(COUNT_IGNORED_EVERY).await;
            self.count_ignored();
        }
    }

    fn count_ignored(&self) {
        let lines = self.peer.tally().lines;
        let mut counted = lock(&self.counted);
        let IgnoredLines { noise, oversize } = &mut *counted;
        for (before, now, kind) in
            [(noise, lines.noise, "noise"), (oversize, lines.oversize, "oversize")]
        {
            let new = now.saturating_sub(*before);
            if new > 0 {
                *before = now;
                let agent = &*self.agent;
                counter!(IGNORED_LINES, "agent" => agent.to_owned(), "kind" => kind).increment(new);
                tracing::info!(agent, lines = new, kind, "ignored lines of an agent");
            }
        }
    }
}

impl IdleChild for Process {
    fn child(&self) -> &Child {
        &self.child
    }

    fn idle_since(&self) -> Option<Instant> {
        let usage = lock(&self.usage);
        (usage.leases == 0 && !usage.is_stopping).then_some(usage.idle_since)
    }

    fn retire(&self) -> bool {
        self.retire_if_idle()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("agent", &self.agent)
            .field("child", &self.child.pid())
            .finish()
    }
}

/// Stops a process that was not handed out.
struct AbortOnDrop {
    child: Child,
    peer: Peer,
    is_armed: bool,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            self.peer.abort();
            self.child.begin_stop();
        }
    }
}

async fn initialize(
    agent: &str,
    started: &AbortOnDrop,
    launch: &Launch,
    profile: &Profile,
) -> Result<RawJson, AgentFailure> {
    let (peer, child, params) = (&started.peer, &started.child, profile.params());
    let greeting = tokio::select! {
        biased;
        greeting = timeout(launch.start_timeout, peer.call("initialize", &params)) => greeting,
        _ = child.exited() => Ok(Err(peer::CallFailure::Closed)),
    };
    match greeting {
        Ok(Ok(greeting)) => Ok(greeting),
        Ok(Err(peer::CallFailure::Closed)) => {
            let how = how_it_exited(child).await;
            let tail = stderr_tail(child);
            Err(AgentFailure::incompatible(format!(
                "the agent '{agent}' {how} during startup{tail}"
            )))
        }
        Ok(Err(peer::CallFailure::Refused(error))) => {
            let tail = stderr_tail(child);
            let message = format!("the agent '{agent}' refused `initialize`: {error}{tail}");
            Err(AgentFailure::incompatible(message))
        }
        Ok(Err(failed)) => Err(failed.into()),
        Err(_) => {
            let seconds = launch.start_timeout.as_secs();
            let tail = stderr_tail(child);
            let message =
                format!("the agent '{agent}' did not answer within {seconds} s of its start{tail}");
            let error = Error::new(Code::PeerUnavailable, message);
            let hint = "check that the command starts an agent of the Agent Client Protocol; if it needs longer to start, raise `start_timeout`";
            Err(error.hint(hint).into())
        }
    }
}

fn read_greeting(greeting: &RawJson) -> Result<InitializeResponse, AgentFailure> {
    let wrong = |why: String| {
        AgentFailure::incompatible(format!("the agent's answer to `initialize` is invalid: {why}"))
    };
    let raw: &RawValue =
        serde_json::from_slice(greeting.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    let answer: InitializeResponse =
        read_result(raw, Rules::Lenient).map_err(|error| wrong(error.to_string()))?;
    if answer.protocol_version != PROTOCOL_VERSION {
        let version = answer.protocol_version;
        let message = format!(
            "the agent speaks version {version} of the Agent Client Protocol, and this server only version {PROTOCOL_VERSION}"
        );
        let hint = "use a version of the agent that speaks version 1 of the Agent Client Protocol";
        let error = Error::new(Code::PeerUnavailable, message).hint(hint);
        return Err(AgentFailure::Incompatible(error));
    }
    Ok(answer)
}

/// Completes "the agent …".
async fn how_it_exited(child: &Child) -> String {
    match timeout(EXIT_GRACE, child.exited()).await {
        Ok(exit) => exit.to_string(),
        Err(_) => "closed its output".to_owned(),
    }
}

fn stderr_tail(child: &Child) -> String {
    let tail = child.captured().tail(STDERR_TAIL_BYTES);
    if tail.is_empty() { String::new() } else { format!("; its standard error ends with: {tail}") }
}

// === impl ProcessLease ===

impl ProcessLease {
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.0
    }
}

impl Drop for ProcessLease {
    fn drop(&mut self) {
        let is_idle = {
            let mut usage = lock(&self.0.usage);
            usage.idle_since = Instant::now();
            usage.leases -= 1;
            usage.leases == 0
        };
        if is_idle {
            self.0.pool_changed.notify_waiters();
        }
    }
}
