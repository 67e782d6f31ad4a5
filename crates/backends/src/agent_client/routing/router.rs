//! The message handler of one process: finds the session or the client of each message.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use memchr::memmem::Finder;
use serde_json::{Value, json};
use trilogue_domain::event::SubagentState;
use trilogue_domain::lock;
use trilogue_mapping::agent_client::{SUBAGENT_UPDATE, WorkReport, work_report};
use trilogue_sdk::agent_client::peer::{
    Backpressure, Handler, IgnoredInput, IgnoredReason, Notification, RawJson, Request,
};
use trilogue_wire::agent_client::{Kind, method, splice};
use trilogue_wire::jsonrpc::{About, ErrorObject, Id, Oversize, Reason};

use super::calls::{
    CallOrigin, InFlightCall, InFlightCalls, Lookup, OpenElicitations, elicitation_id, notify,
    request_id,
};
use super::ignored_lines::IgnoredLines;
use super::inbox::{IgnoredLine, NewSubagentSession, OversizeLine, SessionInbox, SessionItem};
use crate::agent_client::host::AgentHost;
use crate::agent_client::launch::ClientMeta;

/// The most messages that are kept for sessions that are being opened: fewer than an inbox accepts.
const MAX_EARLY: usize = 512;
/// The most bytes of these messages.
const MAX_EARLY_BYTES: usize = 8 * 1024 * 1024;
const MAX_METHOD_BYTES: usize = 256;
/// The reason for which a message of an unknown session is ignored.
const UNKNOWN_SESSION: &str = "unknown_session";
/// Finds what every announcement of a sub-agent has.
static ANNOUNCEMENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(SUBAGENT_UPDATE));
/// Finds characters that are written as escapes.
static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u"));
/// Asks a person, in a session or about a call.
const ELICIT: &str = "elicitation/create";
/// Completes such a question.
const ELICIT_COMPLETE: &str = "elicitation/complete";

#[derive(Debug)]
pub(crate) struct Router {
    /// Keeps the lines of the agent that are not messages.
    host: AgentHost,
    ignored: IgnoredLines,
    /// Itself, for tasks.
    this: Weak<Router>,
    agent: Arc<str>,
    is_private: bool,
    meta: ClientMeta,
    routes: Mutex<Routes>,
    calls: InFlightCalls,
    elicitations: Mutex<OpenElicitations>,
    /// Where the line ends whose message is being routed, in bytes from the start of the agent's output.
    line_end: AtomicU64,
    /// Whether a session has had sub-agents, whose runs no next server can continue.
    has_subagents: AtomicBool,
}

#[derive(Debug, Default)]
struct Routes {
    /// Where the last line ends that was routed.
    routed_to: u64,
    sessions: HashMap<String, SessionInbox>,
    /// The parents of the sessions that are sub-agents.
    parents: HashMap<String, String>,
    /// The number of sessions that are being opened and whose ids are not known yet.
    opening: usize,
    early: Vec<(String, EarlyMessage)>,
    early_bytes: usize,
    /// Whether an early message was dropped because there were too many.
    lost_early: bool,
    /// The sessions that are being opened again.
    reopening: Vec<SessionInbox>,
}

/// A message that arrived before the response that names its session.
#[derive(Debug)]
enum EarlyMessage {
    Notification(Notification),
    Request(Request),
    /// A response arrived here. It may be the one that opens a session.
    Response,
}

/// Marks that a session with an unknown id is being opened, until this is dropped.
#[derive(Debug)]
pub(crate) struct NewSessionGuard(Arc<Router>);

/// Marks that a session is being reopened, until this is dropped.
#[derive(Debug)]
pub(crate) struct ReopenGuard {
    router: Arc<Router>,
    inbox: SessionInbox,
}

// === impl Router ===

impl Router {
    pub(crate) fn new(
        agent: &Arc<str>,
        is_private: bool,
        meta: ClientMeta,
        (host, first_byte): (AgentHost, u64),
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            host,
            ignored: IgnoredLines::default(),
            this: Weak::clone(this),
            agent: Arc::clone(agent),
            is_private,
            meta,
            routes: Mutex::new(Routes { routed_to: first_byte, ..Routes::default() }),
            calls: InFlightCalls::default(),
            elicitations: Mutex::default(),
            line_end: AtomicU64::new(first_byte),
            has_subagents: AtomicBool::new(false),
        })
    }

    /// Adds the beginning of a turn to the queue of a session. Returns the position in the agent's output from which on messages belong to the turn.
    pub(crate) async fn begin(&self, inbox: &SessionInbox, begin: SessionItem) -> u64 {
        let Some(place) = inbox.place().await else { return 0 };
        // Under the lock under which messages are added.
        let routes = lock(&self.routes);
        place.send(begin);
        routes.routed_to
    }

    /// Whether a session has had sub-agents.
    pub(crate) fn has_subagents(&self) -> bool {
        self.has_subagents.load(Ordering::Acquire)
    }

    /// Notes a new sub-agent: from now on the process ends with this server.
    fn record_subagent(&self) {
        if !self.has_subagents.swap(true, Ordering::AcqRel)
            && let Some(child) = self.host.child().cloned()
        {
            child.set_outlives(false);
            tokio::spawn(async move { child.keep_for_owner(Value::Null).await });
        }
    }

    /// Notes that what the current line says needs no session, or is on its way to one.
    fn record_routed(&self) {
        lock(&self.routes).routed_to = self.position();
    }

    fn position(&self) -> u64 {
        self.line_end.load(Ordering::Acquire)
    }

    pub(crate) fn ignored(&self) -> &IgnoredLines {
        &self.ignored
    }

    pub(crate) fn calls(&self) -> &InFlightCalls {
        &self.calls
    }

    /// Keeps messages for unknown sessions while the guard is held.
    pub(crate) fn expect_session(self: &Arc<Self>) -> NewSessionGuard {
        lock(&self.routes).opening += 1;
        NewSessionGuard(Arc::clone(self))
    }

    /// Adds an item to the session's inbox for each response, while the guard is held.
    pub(crate) fn reopen(self: &Arc<Self>, inbox: &SessionInbox) -> ReopenGuard {
        lock(&self.routes).reopening.push(inbox.clone());
        ReopenGuard { router: Arc::clone(self), inbox: inbox.clone() }
    }

    /// Adds a session, and delivers the messages that arrived before.
    pub(crate) fn add(&self, session: &str, inbox: &SessionInbox) {
        let mut routes = lock(&self.routes);
        let early = std::mem::take(&mut routes.early);
        routes.early_bytes = 0;
        if routes.lost_early {
            let (limit, method) = (MAX_EARLY_BYTES, None);
            // A new inbox has room, so there is nothing to wait for.
            drop(inbox.oversize(OversizeLine { limit, method, is_logged: false }));
        }
        // Before the early messages: they can announce sub-agents, whose messages follow. Still under the lock: a message that arrives now is routed after the early ones.
        routes.sessions.insert(session.to_owned(), inbox.clone());
        for (named, message) in early {
            if matches!(message, EarlyMessage::Response) {
                // Responses are kept: another session that is being opened needs their positions too.
                drop(inbox.response());
                routes.early.push((named, message));
            } else if let Some(inbox) = routes.sessions.get(&named).cloned() {
                // A new inbox accepts more messages than are kept, so this never has to wait.
                drop(routes.deliver(&named, &inbox, message));
            } else {
                routes.early_bytes += message.bytes();
                routes.early.push((named, message));
            }
        }
    }

    /// Removes a session, unless another inbox has taken its id.
    pub(crate) fn remove(&self, session: &str, inbox: &SessionInbox) {
        let mut routes = lock(&self.routes);
        if routes.sessions.get(session).is_some_and(|it| it.is_same(inbox)) {
            routes.sessions.remove(session);
            routes.parents.remove(session);
        }
    }

    pub(crate) fn clear(&self) {
        let (sessions, early) = {
            let mut routes = lock(&self.routes);
            routes.parents.clear();
            (std::mem::take(&mut routes.sessions), routes.take_early())
        };
        sessions.values().for_each(SessionInbox::process_ended);
        // Drop them outside the lock: dropping a request answers it and takes other locks.
        drop((sessions, early));
    }

    /// Asks whether the process may reach a host, or reports a connection, in the session to which the work of the process most likely belongs: the only one, or the only one with a prompt in flight. With several, in any of them: they share the process, and what is allowed in one is allowed in all.
    pub(crate) fn put_network(&self, item: SessionItem) {
        let inbox =
            self.session_of(None).or_else(|| lock(&self.routes).sessions.values().next().cloned());
        if let Some(inbox) = inbox {
            inbox.try_put(item);
        }
    }

    /// The queues of its sessions.
    pub(crate) fn inboxes(&self) -> Vec<SessionInbox> {
        lock(&self.routes).sessions.values().cloned().collect()
    }

    fn inbox(&self, session: &str) -> Option<SessionInbox> {
        lock(&self.routes).sessions.get(session).cloned()
    }

    /// Delivers a message to its session, or keeps it for one that is being opened. Returns a message without a session.
    fn put(&self, message: EarlyMessage) -> Result<Backpressure, EarlyMessage> {
        let mut routes = lock(&self.routes);
        routes.routed_to = self.position();
        let named = splice::get_text(message.params(), &["sessionId"]);
        let inbox = named.as_deref().and_then(|session| routes.sessions.get(session).cloned());
        if let Some(inbox) = inbox {
            // Under the lock that `add` holds: otherwise this message could overtake the early ones.
            let parent = named.filter(|_| message.may_announce()).map(Cow::into_owned);
            return Ok(match parent {
                Some(session) => {
                    if announced_subagent(message.params()).is_some() {
                        self.record_subagent();
                    }
                    routes.deliver(&session, &inbox, message)
                }
                None => message.put(&inbox),
            });
        }
        let Some(session) = named.map(Cow::into_owned) else {
            return match routes.only().filter(|_| self.is_private) {
                Some(inbox) => Ok(message.put(inbox)),
                None => Err(message),
            };
        };
        let bytes = routes.early_bytes + message.bytes();
        // No opening is in progress, so no session with this id can follow.
        if routes.opening == 0 {
            return Err(message);
        }
        // The agent may wait for the answer before it opens the session. A question needs a run, so no client could answer it later either.
        if matches!(&message, EarlyMessage::Request(request) if !is_of_workspace(request.method()))
        {
            return Err(message);
        }
        if routes.early.len() >= MAX_EARLY || bytes > MAX_EARLY_BYTES {
            // Do not keep it beyond the bounds, but let the new session note the loss.
            routes.lost_early = true;
            return Err(message);
        }
        routes.early_bytes = bytes;
        routes.early.push((session, message));
        Ok(Backpressure::Ready)
    }

    /// Remembers the session of an elicitation that the agent will complete later.
    fn remember(&self, request: &Request) {
        let session = splice::get_text(request.params().as_str(), &["sessionId"]);
        if let (Some(id), Some(session)) = (elicitation_id(request.params()), session) {
            lock(&self.elicitations).insert(id, CallOrigin::Session(session.into_owned()));
        }
    }

    /// Handles an elicitation about a call, without a session.
    fn elicit(&self, id: Id<'static>, request: Request) -> Backpressure {
        match self.calls.look_up(&id) {
            Lookup::InFlight(call) => self.elicit_for(Some(call), request),
            Lookup::Unknown => self.elicit_for(None, request),
            Lookup::Unsent => {
                let Some(this) = self.this.upgrade() else { return Backpressure::Ready };
                // In a task: the agent's other messages must not wait until the call is sent.
                tokio::spawn(async move {
                    let call = this.calls.find(&id).await;
                    if let Backpressure::Full(ready) = this.elicit_for(call, request) {
                        ready.await;
                    }
                });
                Backpressure::Ready
            }
        }
    }

    /// Asks the origin of a call. Without a call, asks the only session, if there is one.
    fn elicit_for(&self, call: Option<InFlightCall>, request: Request) -> Backpressure {
        let Some(call) = call else { return self.put_or_refuse(request) };
        if let Some(id) = elicitation_id(request.params()) {
            // Before the request is sent: its completion may follow at once.
            lock(&self.elicitations).insert(id, call.origin.clone());
        }
        match call.origin.clone() {
            CallOrigin::Client(client) => {
                let Some(client) = client.upgrade() else { return refuse(request) };
                let (params, meta) = (request.params().clone(), self.meta);
                request.answer(
                    async move { call.elicit(client.as_ref(), ELICIT, &params, meta).await },
                );
                Backpressure::Ready
            }
            CallOrigin::Session(session) => match self.inbox(&session) {
                Some(inbox) => inbox.request(request),
                None => refuse(request),
            },
        }
    }

    fn put_or_refuse(&self, request: Request) -> Backpressure {
        match self.put(EarlyMessage::Request(request)) {
            Ok(backpressure) => backpressure,
            Err(EarlyMessage::Request(request)) => refuse(request),
            Err(EarlyMessage::Notification(_) | EarlyMessage::Response) => Backpressure::Ready,
        }
    }

    /// Notifies all sessions of a line that may have been for any of them.
    fn notify_oversize(&self, line: &Oversize) -> Backpressure {
        // Copy the inboxes, so that the lock is not held while the lines are added.
        let inboxes: Vec<_> = {
            let mut routes = lock(&self.routes);
            // A session that is being opened gets the note when it is added.
            routes.lost_early |= routes.opening > 0;
            routes.sessions.values().cloned().collect()
        };
        let lost = |inbox: &SessionInbox| {
            let method = line.method.clone().filter(|method| method.len() <= MAX_METHOD_BYTES);
            inbox.oversize(OversizeLine { limit: line.limit, method, is_logged: false })
        };
        all_of(inboxes.iter().map(lost))
    }

    /// The session of an oversize line: the named one; otherwise the only one, or the only one with a prompt in flight.
    fn session_of(&self, named: Option<&str>) -> Option<SessionInbox> {
        let routes = lock(&self.routes);
        if let Some(named) = named {
            return routes.sessions.get(named).cloned();
        }
        if let Some(only) = routes.only() {
            return Some(only.clone());
        }
        // Takes the lock of the calls under that of the routes. No code takes them the other way round.
        let prompting = self.calls.prompting_session()?;
        routes.sessions.get(&prompting).cloned()
    }

    /// Forwards the completion of an elicitation to its origin. Returns the notification if the origin is unknown.
    fn elicitation_completed(
        &self,
        notification: Notification,
    ) -> Result<Backpressure, Notification> {
        let id = elicitation_id(&notification.params);
        match id.and_then(|id| lock(&self.elicitations).remove(&id)) {
            Some(CallOrigin::Client(client)) => {
                // A client that has disconnected needs no notification.
                let Some(client) = client.upgrade() else { return Ok(Backpressure::Ready) };
                // In a task, because other messages of the agent must not wait for the client.
                tokio::spawn(async move { notify(client.as_ref(), &notification).await });
                Ok(Backpressure::Ready)
            }
            Some(CallOrigin::Session(session)) => match self.inbox(&session) {
                Some(inbox) => Ok(inbox.notify(notification)),
                None => Err(notification),
            },
            None => Err(notification),
        }
    }
}

impl Handler for Router {
    fn on_line_end(&self, bytes: u64) {
        self.line_end.store(bytes, Ordering::Release);
    }

    fn on_request(&self, request: Request) -> Backpressure {
        if method(request.method()).is_some_and(|known| known.kind == Kind::Notification) {
            // No client can answer a request with the name of a notification.
            let error = ErrorObject::method_not_found(request.method());
            request.answer(async move { Err::<RawJson, _>(error) });
            return Backpressure::Ready;
        }
        let is_elicitation = request.method() == ELICIT;
        if is_elicitation {
            self.remember(&request);
        }
        let has_session = splice::get_text(request.params().as_str(), &["sessionId"]).is_some();
        let call = request_id(request.params()).filter(|_| is_elicitation && !has_session);
        match call {
            Some(call) => self.elicit(call, request),
            None => self.put_or_refuse(request),
        }
    }

    fn on_notification(&self, notification: Notification) -> Backpressure {
        let notification = match &*notification.method {
            ELICIT_COMPLETE => match self.elicitation_completed(notification) {
                Ok(backpressure) => return backpressure,
                Err(notification) => notification,
            },
            _ => notification,
        };
        match self.put(EarlyMessage::Notification(notification)) {
            Ok(backpressure) => backpressure,
            Err(message) => {
                let (agent, method) = (&*self.agent, message.method());
                let bytes = message.bytes();
                tracing::debug!(agent, ?method, bytes, "dropped a notification without a session");
                self.ignored.count(&self.agent, UNKNOWN_SESSION);
                Backpressure::Ready
            }
        }
    }

    /// The only place that counts ignored input and notes it in its thread.
    fn on_ignored(&self, input: IgnoredInput<'_>) -> Backpressure {
        let IgnoredInput { reason, bytes } = input;
        self.record_routed();
        self.ignored.count(&self.agent, reason.word());
        if reason == IgnoredReason::Noise {
            self.host.stray_output().add_line(&self.agent, bytes);
        }
        let named = match reason {
            IgnoredReason::Noise => None,
            _ => named_session(bytes),
        };
        let Some(inbox) = self.session_of(named.as_deref()) else {
            let (agent, reason, bytes) = (&*self.agent, reason.word(), bytes.len());
            tracing::debug!(agent, reason, bytes, "ignored a line of an agent");
            return Backpressure::Ready;
        };
        // A line that names no session may be about a session of another principal.
        let is_shown = named.is_some() || self.is_private;
        inbox.ignored(IgnoredLine::new(reason, bytes, is_shown))
    }

    /// Notes a dropped notification in the log of its session. Dropped requests and responses end with an error anyway.
    fn on_oversize(&self, oversize: Oversize) -> Backpressure {
        self.record_routed();
        self.ignored.count(&self.agent, Reason::TooLong(oversize.limit).word());
        // The call of the response fails, so no session needs a note.
        if matches!(oversize.about, About::Response(_)) {
            return Backpressure::Ready;
        }
        let (agent, method) = (&*self.agent, oversize.method.as_deref().unwrap_or("unknown"));
        tracing::warn!(
            agent,
            method,
            limit = oversize.limit,
            "dropped a line of an agent that is too long: raise `max_line`"
        );
        let is_logged = !matches!(oversize.about, About::Request(_));
        let inbox = self.session_of(oversize.session.as_deref());
        // A line without a session may have been for any session.
        let others = if inbox.is_none() || oversize.session.is_none() {
            self.notify_oversize(&oversize)
        } else {
            Backpressure::Ready
        };
        let method = oversize.method.filter(|method| method.len() <= MAX_METHOD_BYTES);
        let line = OversizeLine { limit: oversize.limit, method, is_logged };
        let own = inbox.map_or(Backpressure::Ready, |inbox| inbox.oversize(line));
        all_of([others, own].into_iter())
    }

    /// Marks the position of a response among the notifications, for sessions that are being opened.
    fn on_response(&self) -> Backpressure {
        let mut routes = lock(&self.routes);
        routes.routed_to = self.position();
        let is_marked = matches!(routes.early.last(), Some((_, EarlyMessage::Response)));
        // Consecutive responses need one mark: only their position among the notifications matters.
        if routes.opening > 0 && !is_marked && routes.early.len() < MAX_EARLY {
            routes.early.push((String::new(), EarlyMessage::Response));
        }
        all_of(routes.reopening.iter().map(SessionInbox::response))
    }
}

/// The sub-agent that an update of its parent's session is about.
fn announced_subagent(params: &str) -> Option<String> {
    let kind = splice::get_text(params, &["update", "sessionUpdate"])?;
    let child = splice::get_text(params, &["update", "sessionId"])?;
    (kind == SUBAGENT_UPDATE && !child.is_empty()).then(|| child.into_owned())
}

/// Ready once all of these are.
fn all_of(all: impl Iterator<Item = Backpressure>) -> Backpressure {
    let full: Vec<_> = all
        .filter_map(|backpressure| match backpressure {
            Backpressure::Ready => None,
            Backpressure::Full(ready) => Some(ready),
        })
        .collect();
    if full.is_empty() {
        return Backpressure::Ready;
    }
    // The peer reads no further line until this is done, which keeps the order of messages.
    Backpressure::Full(Box::pin(async move {
        for ready in full {
            ready.await;
        }
    }))
}

/// Returns the session that a line names which is not a message or not UTF-8.
fn named_session(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    splice::get_text(&text, &["params", "sessionId"]).map(Cow::into_owned)
}

/// Whether a method is about files or terminals, which the server can have itself.
pub(in crate::agent_client) fn is_of_workspace(method: &str) -> bool {
    ["fs/", "terminal/"].iter().any(|prefix| method.starts_with(prefix))
}

/// Answers a request that no client can answer.
fn refuse(request: Request) -> Backpressure {
    let method = request.method().to_owned();
    request.answer(async move {
        match &*method {
            "session/request_permission" => Ok(cancelled_permission()),
            ELICIT => Ok(cancelled_elicitation()),
            _ => Err(ErrorObject::method_not_found(&method)),
        }
    });
    Backpressure::Ready
}

pub(crate) fn cancelled_permission() -> Value {
    json!({ "outcome": { "outcome": "cancelled" } })
}

pub(crate) fn cancelled_elicitation() -> Value {
    json!({ "action": "cancel" })
}

// === impl Routes ===

impl Routes {
    /// The only session, while no other is being opened. Messages without a session belong to it.
    fn only(&self) -> Option<&SessionInbox> {
        if self.opening > 0 {
            return None;
        }
        // A sub-agent is named in all of its messages.
        let mut roots = self.sessions.iter().filter(|(id, _)| !self.parents.contains_key(*id));
        let (_, only) = roots.next()?;
        roots.next().is_none().then_some(only)
    }

    /// Adds a message to its session. One that announces a sub-agent makes the sub-agent's queue, because the sub-agent's messages may follow at once.
    fn deliver(
        &mut self,
        session: &str,
        inbox: &SessionInbox,
        message: EarlyMessage,
    ) -> Backpressure {
        let child = message.may_announce().then(|| announced_subagent(message.params())).flatten();
        let (Some(child), EarlyMessage::Notification(notification)) = (child, &message) else {
            return message.put(inbox);
        };
        let (params, notification) = (notification.params.as_str(), notification.clone());
        let report = splice::get(params, &["update", "state"]).and_then(|state| match state {
            // A state that is cleared is not known any more.
            "null" => Some(WorkReport { state: SubagentState::Unknown, error: None }),
            state => work_report(state),
        });
        let new = (!self.sessions.contains_key(&child)).then(|| {
            let (own, items) = SessionInbox::new();
            self.sessions.insert(child.clone(), own.clone());
            self.parents.insert(child.clone(), session.to_owned());
            NewSubagentSession { remote: child.clone(), inbox: own, items }
        });
        let update = match new {
            Some(new) => inbox.announce(new, notification),
            None => inbox.notify(notification),
        };
        // Another session's state is not this session's to report.
        let is_own = self.parents.get(&child).is_some_and(|parent| parent == session);
        let own = self.sessions.get(&child).filter(|_| is_own).zip(report);
        let told =
            own.map_or(Backpressure::Ready, |(own, report)| own.note(SessionItem::Work(report)));
        all_of([update, told].into_iter())
    }

    fn take_early(&mut self) -> Vec<(String, EarlyMessage)> {
        self.early_bytes = 0;
        self.lost_early = false;
        std::mem::take(&mut self.early)
    }
}

// === impl EarlyMessage ===

impl EarlyMessage {
    /// Whether it may announce a sub-agent. Most messages do not, and need not be parsed for it.
    fn may_announce(&self) -> bool {
        let names_kind = || {
            let params = self.params().as_bytes();
            // A kind can be written with escapes.
            ANNOUNCEMENT.find(params).is_some() || ESCAPE.find(params).is_some()
        };
        self.method() == "session/update" && names_kind()
    }

    fn params(&self) -> &str {
        match self {
            Self::Notification(notification) => notification.params.as_str(),
            Self::Request(request) => request.params().as_str(),
            Self::Response => "{}",
        }
    }

    fn method(&self) -> &str {
        match self {
            Self::Notification(notification) => &notification.method,
            Self::Request(request) => request.method(),
            Self::Response => "",
        }
    }

    fn bytes(&self) -> usize {
        self.params().len()
    }

    fn put(self, inbox: &SessionInbox) -> Backpressure {
        match self {
            Self::Notification(notification) => inbox.notify(notification),
            Self::Request(request) => inbox.request(request),
            Self::Response => inbox.response(),
        }
    }
}

// === impl NewSessionGuard ===

impl Drop for NewSessionGuard {
    fn drop(&mut self) {
        let early = {
            let mut routes = lock(&self.0.routes);
            // The end of the last opening discards the messages that no session has claimed.
            routes.opening -= 1;
            if routes.opening > 0 {
                return;
            }
            routes.take_early()
        };
        // Drop them outside the lock: dropping a request answers it.
        drop(early);
    }
}

// === impl ReopenGuard ===

impl Drop for ReopenGuard {
    fn drop(&mut self) {
        lock(&self.router.routes).reopening.retain(|inbox| !inbox.is_same(&self.inbox));
    }
}
