//! One process of an agent: started, greeted, watched.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::counter;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error};
use trilogue_runtime::Client;
use trilogue_sdk::agent_client::peer::{self, Handler, Peer, RawJson};
use trilogue_wire::agent_client::{
    AgentCapabilities, AuthMethod, InitializeResponse, PROTOCOL_VERSION, Rules, read_result,
};
use trilogue_wire::jsonrpc::Payload;

use super::breaker::Breaker;
use super::callers::Asked;
use super::profile::Profile;
use super::router::Router;
use super::seat::Seats;
use super::trouble::{Trouble, of_failed};
use super::{Launch, Processes, lock};
use crate::child::{Child, Children, Program};

/// How much of what an agent said last is shown where it fails, in bytes.
const TAIL_BYTES: usize = 2 * 1024;
/// How long an agent that closed its output may take to end.
const ENDING: Duration = Duration::from_millis(500);
/// How often it is counted what an agent writes that is no message.
const COUNTED_EVERY: Duration = Duration::from_secs(15);
/// Lines of agents that were no messages, by agent and by what was wrong with them.
const IGNORED_LINES: &str = "trilogue_agent_ignored_lines_total";

/// A process that has been greeted.
pub(super) struct Process {
    agent: Arc<str>,
    child: Child,
    peer: Peer,
    profile: Profile,
    /// The result of `initialize`, as it came.
    greeting: RawJson,
    capabilities: AgentCapabilities,
    auth_methods: Vec<AuthMethod>,
    router: Arc<Router>,
    /// The places for sessions, where it is shared.
    seats: Arc<Seats>,
    usage: Mutex<Usage>,
    /// Whether its standard error tells of one thread alone, and may be shown where that fails.
    is_private: bool,
    /// Whether a turn of it has ended.
    is_proven: AtomicBool,
    breaker: Arc<Breaker>,
    /// The threads that have or had sessions in it.
    threads: Mutex<HashSet<ThreadKey>>,
    counted: Mutex<Counted>,
}

/// Keeps a process from being stopped as idle.
#[derive(Debug)]
pub(super) struct Use(Arc<Process>);

/// What a process wrote that was no message, as far as it was counted.
#[derive(Debug, Default)]
struct Counted {
    noise: u64,
    oversize: u64,
}

/// Who works with a process.
#[derive(Debug)]
struct Usage {
    uses: usize,
    /// When somebody worked with it last.
    idle_since: Instant,
    /// Whether it is about to be ended by us: nobody works with it any more.
    is_leaving: bool,
}

// === impl Process ===

impl Process {
    /// Starts the agent and greets it.
    pub(super) async fn start(
        agent: &Arc<str>,
        children: &Children,
        launch: &Launch,
        profile: Profile,
        cwd: &Path,
        breaker: Arc<Breaker>,
    ) -> Result<Arc<Self>, Trouble> {
        let program = Program {
            name: agent,
            command: &launch.command,
            cwd,
            env: &launch.env,
            inherit: &launch.inherit,
        };
        let started = children.start(program).await?;
        let is_private = launch.processes == Processes::Thread;
        let router = Router::new(agent, is_private, launch.client_meta);
        let options = peer::Options {
            max_line_bytes: launch.max_line_bytes,
            cancels_dropped: true,
            ..peer::Options::client()
        };
        let handler = Arc::clone(&router) as Arc<dyn Handler>;
        let peer = Peer::start(started.output, started.input, handler, options);
        let ends = Ends { child: started.child.clone(), peer: peer.clone(), is_armed: true };
        let greeting = greet(agent, &ends, launch, &profile).await?;
        let answer = read(&greeting)?;
        let mut ends = ends;
        ends.is_armed = false;
        let process = Arc::new(Self {
            agent: Arc::clone(agent),
            child: started.child,
            peer,
            profile,
            capabilities: answer.agent_capabilities.unwrap_or_default(),
            auth_methods: answer.auth_methods,
            greeting,
            router,
            seats: Arc::default(),
            usage: Mutex::new(Usage { uses: 0, idle_since: Instant::now(), is_leaving: false }),
            is_private,
            is_proven: AtomicBool::new(false),
            breaker,
            threads: Mutex::default(),
            counted: Mutex::default(),
        });
        Ok(process)
    }

    /// Returns when the process has ended and everything that it said was taken.
    pub(super) async fn watch(&self) {
        tokio::select! {
            _ = self.child.ended() => drop(timeout(ENDING, self.peer.ended()).await),
            () = self.peer.ended() => drop(timeout(ENDING, self.child.ended()).await),
            () = self.count_noise() => {}
        }
        self.peer.abort();
        self.count_noise_now();
        self.router.clear();
        self.child.stop().await;
    }

    /// The agent's name.
    pub(super) fn agent(&self) -> &Arc<str> {
        &self.agent
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn child(&self) -> &Child {
        &self.child
    }

    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(super) fn greeting(&self) -> &RawJson {
        &self.greeting
    }

    pub(super) fn capabilities(&self) -> &AgentCapabilities {
        &self.capabilities
    }

    pub(super) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    pub(super) fn seats(&self) -> &Arc<Seats> {
        &self.seats
    }

    /// Whether the agent can open its sessions again in another process.
    pub(super) fn opens_again(&self) -> bool {
        self.capabilities.load_session || self.resumes()
    }

    pub(super) fn resumes(&self) -> bool {
        self.capabilities.session.as_ref().is_some_and(|session| session.resume.is_some())
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.peer.is_ended() && !self.child.has_ended() && !self.is_leaving()
    }

    /// Whether it is about to be ended by us.
    pub(super) fn is_leaving(&self) -> bool {
        lock(&self.usage).is_leaving
    }

    /// A turn of it has ended.
    pub(super) fn prove(&self) {
        if !self.is_proven.swap(true, Ordering::AcqRel) {
            self.breaker.reset();
        }
    }

    /// Whether a turn of it has ended.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Acquire)
    }

    /// A thread has a session in it.
    pub(super) fn serves(&self, thread: ThreadKey) {
        lock(&self.threads).insert(thread);
    }

    /// A thread has no session in it any more.
    pub(super) fn serves_no_more(&self, thread: ThreadKey) {
        lock(&self.threads).remove(&thread);
    }

    /// The threads that have sessions in it, or had.
    pub(super) fn served(&self) -> Vec<ThreadKey> {
        lock(&self.threads).iter().copied().collect()
    }

    /// The way to authenticate, where the agent has one that it carries out by itself.
    pub(super) fn auth_method<'a>(&'a self, wanted: Option<&'a str>) -> Option<&'a str> {
        let own = self.auth_methods.iter().find_map(|method| match method {
            AuthMethod::Agent(method) => Some(method.id.as_str()),
            _ => None,
        });
        wanted.or(own)
    }

    /// Whether the agent has this way to authenticate, and carries it out by itself.
    pub(super) fn has_auth_method(&self, id: &str) -> bool {
        let mut methods = self.auth_methods.iter();
        methods.any(|method| matches!(method, AuthMethod::Agent(method) if method.id == id))
    }

    /// Asks the agent, and waits so long.
    pub(super) async fn call<P: Payload + Sync + ?Sized>(
        &self,
        method: &str,
        params: &P,
        time: Duration,
    ) -> Result<RawJson, Trouble> {
        self.call_for(None, method, params, time).await
    }

    /// The same for a client: what the agent asks about the call is asked of it.
    pub(super) async fn call_for<P: Payload + Sync + ?Sized>(
        &self,
        caller: Option<&Arc<dyn Client>>,
        method: &str,
        params: &P,
        time: Duration,
    ) -> Result<RawJson, Trouble> {
        let call = async {
            let Some(caller) = caller else { return self.peer.call(method, params).await };
            let beginning = self.router.callers().begin();
            let call = self.peer.begin(method, params).await?;
            let _known = beginning.known(call.id(), Asked::Caller(Arc::downgrade(caller)));
            call.await
        };
        match timeout(time, call).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(failed)) => Err(self.trouble(failed).await),
            Err(_) => Err(Trouble::ours(
                Code::PeerUnavailable,
                format!(
                    "the agent '{}' did not answer {method} within {} s",
                    self.agent,
                    time.as_secs()
                ),
            )),
        }
    }

    /// What a call failed with.
    pub(super) async fn trouble(&self, failed: peer::CallFailure) -> Trouble {
        match failed {
            peer::CallFailure::Closed => Trouble::Lost(self.obituary().await),
            failed => of_failed(failed),
        }
    }

    /// How the process ended, and what it said last, where that tells of nobody else.
    pub(super) async fn obituary(&self) -> String {
        obituary(&self.agent, &self.child, self.is_private).await
    }

    /// Notes that somebody works with it; `None` where it is about to be ended.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Use> {
        let mut usage = lock(&self.usage);
        if usage.is_leaving {
            return None;
        }
        usage.uses += 1;
        Some(Use(Arc::clone(self)))
    }

    /// Has it end, where nobody works with it: from now on nobody does. Says whether it may be ended.
    pub(super) fn leave(&self) -> bool {
        let mut usage = lock(&self.usage);
        let may = usage.uses == 0 && !usage.is_leaving;
        usage.is_leaving |= may;
        may
    }

    pub(super) fn is_idle(&self) -> bool {
        let usage = lock(&self.usage);
        usage.uses == 0 && !usage.is_leaving
    }

    /// Whether nobody works with it but so many.
    pub(super) fn is_idle_but_for(&self, uses: usize) -> bool {
        lock(&self.usage).uses <= uses
    }

    /// When somebody worked with it last.
    pub(super) fn idle_since(&self) -> Instant {
        lock(&self.usage).idle_since
    }

    /// Ends it without asking, and waits until nothing is left of it.
    pub(super) async fn kill(&self) {
        lock(&self.usage).is_leaving = true;
        self.child.kill().await;
    }

    /// Ends it and waits until nothing is left of it.
    pub(super) async fn stop(&self) {
        lock(&self.usage).is_leaving = true;
        self.peer.close();
        self.child.stop().await;
    }

    /// Counts what it writes that is no message, for as long as it is waited for.
    async fn count_noise(&self) {
        loop {
            tokio::time::sleep(COUNTED_EVERY).await;
            self.count_noise_now();
        }
    }

    fn count_noise_now(&self) {
        let lines = self.peer.tally().lines;
        let mut counted = lock(&self.counted);
        let Counted { noise, oversize } = &mut *counted;
        for (known, now, kind) in
            [(noise, lines.noise, "noise"), (oversize, lines.oversize, "oversize")]
        {
            let new = now.saturating_sub(*known);
            if new > 0 {
                *known = now;
                let agent = &*self.agent;
                counter!(IGNORED_LINES, "agent" => agent.to_owned(), "kind" => kind).increment(new);
                tracing::info!(agent, lines = new, kind, "lines of an agent were let go by");
            }
        }
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

/// Ends a process that nobody gets to know.
struct Ends {
    child: Child,
    peer: Peer,
    is_armed: bool,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if self.is_armed {
            self.peer.abort();
            self.child.begin_stop();
        }
    }
}

async fn greet(
    agent: &str,
    ends: &Ends,
    launch: &Launch,
    profile: &Profile,
) -> Result<RawJson, Trouble> {
    let params = profile.params();
    let greeting = tokio::select! {
        biased;
        greeting = timeout(launch.start_timeout, ends.peer.call("initialize", &params)) => greeting,
        _ = ends.child.ended() => Ok(Err(peer::CallFailure::Closed)),
    };
    match greeting {
        Ok(Ok(greeting)) => Ok(greeting),
        Ok(Err(peer::CallFailure::Closed)) => {
            let how = obituary(agent, &ends.child, true).await;
            Err(Trouble::unfit(format!("{how} (while it was started)")))
        }
        Ok(Err(peer::CallFailure::Refused(error))) => {
            let said = last_words(&ends.child);
            Err(Trouble::unfit(format!("the agent '{agent}' refused `initialize`: {error}{said}")))
        }
        Ok(Err(failed)) => Err(of_failed(failed)),
        Err(_) => {
            let seconds = launch.start_timeout.as_secs();
            let said = last_words(&ends.child);
            let message =
                format!("the agent '{agent}' did not answer within {seconds} s of its start{said}");
            let error = Error::new(Code::PeerUnavailable, message);
            let hint = "check that the command is an agent of the Agent Client Protocol; for one that needs longer, raise `start_timeout`";
            Err(error.hint(hint).into())
        }
    }
}

fn read(greeting: &RawJson) -> Result<InitializeResponse, Trouble> {
    let wrong = Trouble::unfit;
    let raw: &RawValue = serde_json::from_slice(greeting.as_bytes())
        .map_err(|error| wrong(format!("the agent's first answer is no JSON: {error}")))?;
    let answer: InitializeResponse = read_result(raw, Rules::Lenient)
        .map_err(|error| wrong(format!("the agent's first answer does not fit: {error}")))?;
    if answer.protocol_version != PROTOCOL_VERSION {
        let version = answer.protocol_version;
        let message = format!(
            "the agent speaks version {version} of its protocol, and only version {PROTOCOL_VERSION} is spoken here"
        );
        let hint = "use a version of the agent that speaks version 1 of the Agent Client Protocol";
        return Err(Trouble::Unfit(Error::new(Code::PeerUnavailable, message).hint(hint)));
    }
    Ok(answer)
}

async fn obituary(agent: &str, child: &Child, shows_words: bool) -> String {
    let ended = timeout(ENDING, child.ended()).await;
    let how =
        ended.map_or_else(|_| "closed its output".to_owned(), |exit| format!("ended ({exit})"));
    let said = if shows_words { last_words(child) } else { String::new() };
    format!("the agent '{agent}' {how}{said}")
}

fn last_words(child: &Child) -> String {
    let tail = child.captured().tail(TAIL_BYTES);
    if tail.is_empty() { String::new() } else { format!("; it said last: {tail}") }
}

// === impl Use ===

impl Use {
    pub(super) fn process(&self) -> &Arc<Process> {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut usage = lock(&self.0.usage);
        usage.idle_since = Instant::now();
        usage.uses -= 1;
    }
}
