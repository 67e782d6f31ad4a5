//! One process of an agent: started, greeted, watched.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};
use trilogue_domain::error::Code;
use trilogue_sdk::agent_client::peer::{self, Handler, Notification, Peer, Request, Room, Text};
use trilogue_wire::agent_client::{
    AgentCapabilities, AuthMethod, InitializeResponse, PROTOCOL_VERSION, Rules, read_result, splice,
};
use trilogue_wire::jsonrpc::{ErrorObject, Invalid, Payload};

use super::inbox::Inbox;
use super::profile::Profile;
use super::trouble::{Trouble, of_failed};
use super::{Launch, lock};
use crate::child::{Child, Children, Program};

/// How much of what an agent said last is shown where it fails, in bytes.
const TAIL_BYTES: usize = 2 * 1024;
/// How long an agent that closed its output may take to end.
const ENDING: Duration = Duration::from_millis(500);
/// The most updates that are kept for a session that is being opened.
const MAX_EARLY: usize = 256;

/// A process that has been greeted.
pub(super) struct Process {
    agent: Arc<str>,
    child: Child,
    peer: Peer,
    profile: Profile,
    /// The result of `initialize`, as it came.
    greeting: Text,
    capabilities: AgentCapabilities,
    auth_methods: Vec<AuthMethod>,
    router: Arc<Router>,
    uses: AtomicUsize,
    idle_since: Mutex<Instant>,
}

/// Keeps a process from being stopped as idle.
#[derive(Debug)]
pub(super) struct Use(Arc<Process>);

/// Finds the session that something belongs to.
#[derive(Debug)]
pub(super) struct Router {
    agent: Arc<str>,
    routes: Mutex<Routes>,
}

#[derive(Debug, Default)]
struct Routes {
    sessions: HashMap<String, Inbox>,
    /// How many sessions are being opened whose ids are not known.
    opening: usize,
    /// What came for sessions that are not known.
    early: Vec<(String, Notification)>,
}

/// Says that a session is being opened whose id is not known, until it is dropped.
#[derive(Debug)]
pub(super) struct Expecting(Arc<Router>);

// === impl Process ===

impl Process {
    /// Starts the agent and greets it.
    pub(super) async fn start(
        agent: &Arc<str>,
        children: &Children,
        launch: &Launch,
        profile: Profile,
        cwd: &Path,
    ) -> Result<Arc<Self>, Trouble> {
        let program = Program {
            name: agent,
            command: &launch.command,
            cwd,
            env: &launch.env,
            inherit: &launch.inherit,
        };
        let started = children.start(program).await?;
        let router = Arc::new(Router { agent: Arc::clone(agent), routes: Mutex::default() });
        let options =
            peer::Options { max_line_bytes: launch.max_line_bytes, ..peer::Options::client() };
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
            uses: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
        });
        Ok(process)
    }

    /// Returns when the process has ended and everything that it said was taken.
    pub(super) async fn watch(&self) {
        tokio::select! {
            _ = self.child.ended() => drop(timeout(ENDING, self.peer.ended()).await),
            () = self.peer.ended() => drop(timeout(ENDING, self.child.ended()).await),
        }
        self.peer.abort();
        self.router.clear();
        self.child.stop().await;
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

    pub(super) fn greeting(&self) -> &Text {
        &self.greeting
    }

    pub(super) fn capabilities(&self) -> &AgentCapabilities {
        &self.capabilities
    }

    pub(super) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// Whether the agent can open its sessions again in another process.
    pub(super) fn opens_again(&self) -> bool {
        self.capabilities.load_session || self.resumes()
    }

    pub(super) fn resumes(&self) -> bool {
        self.capabilities.session.as_ref().is_some_and(|session| session.resume.is_some())
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.peer.is_ended() && !self.child.has_ended()
    }

    /// The way to authenticate, where the agent has one that it carries out by itself.
    pub(super) fn auth_method<'a>(&'a self, wanted: Option<&'a str>) -> Option<&'a str> {
        let own = self.auth_methods.iter().find_map(|method| match method {
            AuthMethod::Agent(method) => Some(method.id.as_str()),
            _ => None,
        });
        wanted.or(own)
    }

    /// Asks the agent, and waits so long.
    pub(super) async fn call<P: Payload + Sync + ?Sized>(
        &self,
        method: &str,
        params: &P,
        time: Duration,
    ) -> Result<Text, Trouble> {
        let answer = timeout(time, self.peer.call(method, params)).await;
        match answer {
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
    pub(super) async fn trouble(&self, failed: peer::Failed) -> Trouble {
        match failed {
            peer::Failed::Closed => Trouble::Lost(self.obituary().await),
            failed => of_failed(failed),
        }
    }

    /// How the process ended, and what it said last.
    async fn obituary(&self) -> String {
        obituary(&self.agent, &self.child).await
    }

    /// Notes that somebody works with it.
    pub(super) fn hold(self: &Arc<Self>) -> Use {
        self.uses.fetch_add(1, Ordering::AcqRel);
        Use(Arc::clone(self))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.uses.load(Ordering::Acquire) == 0
    }

    /// Whether nobody works with it but so many.
    pub(super) fn is_idle_but_for(&self, uses: usize) -> bool {
        self.uses.load(Ordering::Acquire) <= uses
    }

    /// When somebody worked with it last.
    pub(super) fn idle_since(&self) -> Instant {
        *lock(&self.idle_since)
    }

    /// Ends it and waits until nothing is left of it.
    pub(super) async fn stop(&self) {
        self.peer.close();
        self.child.stop().await;
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
) -> Result<Text, Trouble> {
    let params = profile.params();
    let greeting = tokio::select! {
        biased;
        greeting = timeout(launch.start_timeout, ends.peer.call("initialize", &params)) => greeting,
        _ = ends.child.ended() => Ok(Err(peer::Failed::Closed)),
    };
    match greeting {
        Ok(Ok(greeting)) => Ok(greeting),
        Ok(Err(peer::Failed::Closed)) => {
            let how = obituary(agent, &ends.child).await;
            Err(Trouble::ours(Code::PeerUnavailable, format!("{how} (while it was started)")))
        }
        Ok(Err(failed)) => Err(of_failed(failed)),
        Err(_) => {
            let seconds = launch.start_timeout.as_secs();
            let said = last_words(&ends.child);
            let message =
                format!("the agent '{agent}' did not answer within {seconds} s of its start{said}");
            Err(Trouble::ours(Code::PeerUnavailable, message))
        }
    }
}

fn read(greeting: &Text) -> Result<InitializeResponse, Trouble> {
    let wrong = |why: String| Trouble::ours(Code::PeerUnavailable, why);
    let raw: &RawValue = serde_json::from_slice(greeting.as_bytes())
        .map_err(|error| wrong(format!("the agent's first answer is no JSON: {error}")))?;
    let answer: InitializeResponse = read_result(raw, Rules::Lenient)
        .map_err(|error| wrong(format!("the agent's first answer does not fit: {error}")))?;
    if answer.protocol_version != PROTOCOL_VERSION {
        let version = answer.protocol_version;
        return Err(wrong(format!(
            "the agent speaks version {version} of its protocol, and only version {PROTOCOL_VERSION} is spoken here"
        )));
    }
    Ok(answer)
}

async fn obituary(agent: &str, child: &Child) -> String {
    let ended = timeout(ENDING, child.ended()).await;
    let how =
        ended.map_or_else(|_| "closed its output".to_owned(), |exit| format!("ended ({exit})"));
    format!("the agent '{agent}' {how}{}", last_words(child))
}

fn last_words(child: &Child) -> String {
    let tail = child.captured().tail(TAIL_BYTES);
    if tail.is_empty() { String::new() } else { format!("; it said last: {tail}") }
}

// === impl Use ===

impl Drop for Use {
    fn drop(&mut self) {
        *lock(&self.0.idle_since) = Instant::now();
        self.0.uses.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl Router ===

impl Router {
    /// From now on what belongs to no session is kept for the one whose id comes.
    pub(super) fn expect(self: &Arc<Self>) -> Expecting {
        lock(&self.routes).opening += 1;
        Expecting(Arc::clone(self))
    }

    /// Makes a session known, and gives it what came before.
    pub(super) fn add(&self, session: &str, inbox: Inbox) {
        let mut routes = lock(&self.routes);
        let early = std::mem::take(&mut routes.early);
        for (of, said) in early {
            if of == session {
                // There is room: a new queue is longer than what is kept.
                drop(inbox.say(said));
            } else {
                routes.early.push((of, said));
            }
        }
        routes.sessions.insert(session.to_owned(), inbox);
    }

    pub(super) fn remove(&self, session: &str) {
        lock(&self.routes).sessions.remove(session);
    }

    /// Whether no session is there.
    pub(super) fn is_empty(&self) -> bool {
        let routes = lock(&self.routes);
        routes.sessions.is_empty() && routes.opening == 0
    }

    fn clear(&self) {
        *lock(&self.routes) = Routes::default();
    }

    /// The session that this belongs to. What names none belongs to the only one that there is.
    fn find(&self, params: &str) -> (Option<String>, Option<Inbox>) {
        let routes = lock(&self.routes);
        match splice::get_text(params, &["sessionId"]) {
            Some(id) => {
                let inbox = routes.sessions.get(&*id).cloned();
                (Some(id.into_owned()), inbox)
            }
            None if routes.sessions.len() == 1 => (None, routes.sessions.values().next().cloned()),
            None => (None, None),
        }
    }
}

impl Handler for Router {
    fn asked(&self, request: Request) -> Room {
        let (_, inbox) = self.find(request.params().as_str());
        match inbox {
            Some(inbox) => inbox.ask(request),
            None => {
                let method = request.method().to_owned();
                let refusal = match &*method {
                    "session/request_permission" => Ok(cancelled_permission()),
                    "elicitation/create" => Ok(serde_json::json!({ "action": "cancel" })),
                    _ => Err(ErrorObject::method_not_found(&method)),
                };
                request.answer(async move { refusal });
                Room::Enough
            }
        }
    }

    fn told(&self, notification: Notification) -> Room {
        let (session, inbox) = self.find(notification.params.as_str());
        if let Some(inbox) = inbox {
            return inbox.say(notification);
        }
        let mut routes = lock(&self.routes);
        match session {
            Some(session) if routes.opening > 0 && routes.early.len() < MAX_EARLY => {
                routes.early.push((session, notification));
            }
            _ => {
                let method = &*notification.method;
                tracing::debug!(
                    agent = &*self.agent,
                    ?method,
                    "what an agent said belongs to no session"
                );
            }
        }
        Room::Enough
    }

    fn puzzled(&self, invalid: &Invalid<'_>) {
        tracing::debug!(agent = &*self.agent, reason = %invalid, "an agent wrote a line that is no message");
    }
}

pub(super) fn cancelled_permission() -> serde_json::Value {
    serde_json::json!({ "outcome": { "outcome": "cancelled" } })
}

// === impl Expecting ===

impl Drop for Expecting {
    fn drop(&mut self) {
        let mut routes = lock(&self.0.routes);
        routes.opening -= 1;
        if routes.opening == 0 {
            routes.early.clear();
        }
    }
}
