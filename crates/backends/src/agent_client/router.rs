//! Whom what an agent says and asks is for: one of its sessions, or whoever made a call that it works on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use trilogue_sdk::agent_client::peer::{Backpressure, Handler, Notification, RawJson, Request};
use trilogue_wire::agent_client::{Kind, method, splice};
use trilogue_wire::jsonrpc::{About, ErrorObject, Id, Invalid, Oversize, Reason};

use super::callers::{self, Asked, Callers, Found, InFlight, Questions};
use super::inbox::{Inbox, PassedOver};
use super::{ClientMeta, lock};

/// The most that is kept for sessions that are being opened: no more than an inbox has room for.
const MAX_EARLY: usize = 512;
/// Likewise in bytes.
const MAX_EARLY_BYTES: usize = 8 * 1024 * 1024;
/// The longest name of a method that is noted in a log, in bytes.
const MAX_METHOD_BYTES: usize = 256;
/// What asks a person something, in a session or about a call.
const ELICIT: &str = "elicitation/create";
/// What says that such a question is done with.
const ELICITED: &str = "elicitation/complete";

/// Finds whom something is for.
#[derive(Debug)]
pub(super) struct Router {
    /// Itself, for what waits.
    this: Weak<Router>,
    agent: Arc<str>,
    /// Whether all sessions in the process are of one thread.
    is_private: bool,
    /// What becomes of what clients attach to their answers.
    meta: ClientMeta,
    routes: Mutex<Routes>,
    callers: Callers,
    questions: Mutex<Questions>,
}

#[derive(Debug, Default)]
struct Routes {
    sessions: HashMap<String, Inbox>,
    /// How many sessions are being opened whose ids are not known.
    opening: usize,
    /// What came for sessions that are not known, in order, and how much of it there is, in bytes.
    early: Vec<(String, Early)>,
    early_bytes: usize,
    /// Whether there was more of it than is kept.
    early_lost: bool,
    /// The sessions that are being opened again.
    reopening: Vec<Inbox>,
}

/// Something that came before the answer that its session was opened with.
#[derive(Debug)]
enum Early {
    Said(Notification),
    Asked(Request),
    /// A call was answered: one of those that open sessions, as far as anybody can tell.
    Answered,
}

/// Says that a session is being opened whose id is not known, until it is dropped.
#[derive(Debug)]
pub(super) struct Expecting(Arc<Router>);

/// Says that a session is being opened again, until it is dropped.
#[derive(Debug)]
pub(super) struct Reopening {
    router: Arc<Router>,
    inbox: Inbox,
}

// === impl Router ===

impl Router {
    pub(super) fn new(agent: &Arc<str>, is_private: bool, meta: ClientMeta) -> Arc<Self> {
        let agent = Arc::clone(agent);
        Arc::new_cyclic(|this| {
            let (routes, callers, questions) =
                (Mutex::default(), Callers::default(), Mutex::default());
            Self { this: Weak::clone(this), agent, is_private, meta, routes, callers, questions }
        })
    }

    /// The calls that are in flight.
    pub(super) fn callers(&self) -> &Callers {
        &self.callers
    }

    /// From now on what belongs to no session is kept for the one whose id comes.
    pub(super) fn expect(self: &Arc<Self>) -> Expecting {
        lock(&self.routes).opening += 1;
        Expecting(Arc::clone(self))
    }

    /// From now on this session is told when calls are answered.
    pub(super) fn reopen(self: &Arc<Self>, inbox: &Inbox) -> Reopening {
        lock(&self.routes).reopening.push(inbox.clone());
        Reopening { router: Arc::clone(self), inbox: inbox.clone() }
    }

    /// Makes a session known, and gives it what came before.
    pub(super) fn add(&self, session: &str, inbox: Inbox) {
        let mut routes = lock(&self.routes);
        let early = std::mem::take(&mut routes.early);
        routes.early_bytes = 0;
        if routes.early_lost {
            let (limit, method) = (MAX_EARLY_BYTES, None);
            drop(inbox.pass_over(PassedOver { limit, method, is_noted: false }));
        }
        for (of, item) in early {
            if matches!(item, Early::Answered) {
                drop(inbox.answered());
                routes.early.push((of, item));
            } else if of == session {
                // There is room: a new queue is longer than what is kept.
                drop(item.put(&inbox));
            } else {
                routes.early_bytes += item.bytes();
                routes.early.push((of, item));
            }
        }
        routes.sessions.insert(session.to_owned(), inbox);
    }

    /// Forgets a session, where it is still the one with this inbox.
    pub(super) fn remove(&self, session: &str, inbox: &Inbox) {
        let mut routes = lock(&self.routes);
        if routes.sessions.get(session).is_some_and(|known| known.is(inbox)) {
            routes.sessions.remove(session);
        }
    }

    /// Whether no session is there.
    pub(super) fn is_empty(&self) -> bool {
        let routes = lock(&self.routes);
        routes.sessions.is_empty() && routes.opening == 0
    }

    pub(super) fn clear(&self) {
        let (sessions, early) = {
            let mut routes = lock(&self.routes);
            (std::mem::take(&mut routes.sessions), routes.forget_early())
        };
        // What is dropped may answer, and take other locks.
        drop((sessions, early));
    }

    /// Gives something to its session; what has none comes back. What belongs to a session that is being opened is kept for it.
    fn put(&self, item: Early) -> Result<Backpressure, Early> {
        let mut routes = lock(&self.routes);
        let named = splice::get_text(item.params(), &["sessionId"]);
        let known = named.as_deref().and_then(|session| routes.sessions.get(session).cloned());
        if let Some(inbox) = known {
            return Ok(item.put(&inbox));
        }
        let Some(session) = named.map(std::borrow::Cow::into_owned) else {
            return match routes.only().filter(|_| self.is_private) {
                Some(inbox) => Ok(item.put(inbox)),
                None => Err(item),
            };
        };
        let bytes = routes.early_bytes + item.bytes();
        if routes.opening == 0 {
            return Err(item);
        }
        if routes.early.len() >= MAX_EARLY || bytes > MAX_EARLY_BYTES {
            routes.early_lost = true;
            return Err(item);
        }
        routes.early_bytes = bytes;
        routes.early.push((session, item));
        Ok(Backpressure::Ready)
    }

    /// Remembers whom a question is asked, where the agent will say that it is done with.
    fn remember(&self, request: &Request) {
        let session = splice::get_text(request.params().as_str(), &["sessionId"]);
        if let (Some(question), Some(session)) = (callers::question_of(request.params()), session) {
            lock(&self.questions).add(question, Asked::Session(session.into_owned()));
        }
    }

    /// Asks what names no session, and is about a call.
    fn ask_about(&self, id: Id<'static>, request: Request) -> Backpressure {
        match self.callers.look(&id) {
            Found::InFlight(call) => self.ask_of(Some(call), request),
            Found::Nowhere => self.ask_of(None, request),
            Found::Later => {
                let Some(this) = self.this.upgrade() else { return Backpressure::Ready };
                tokio::spawn(async move {
                    let call = this.callers.find(&id).await;
                    if let Backpressure::Full(room) = this.ask_of(call, request) {
                        room.await;
                    }
                });
                Backpressure::Ready
            }
        }
    }

    /// Asks those whom a call was made for. What is about none that is in flight is asked in the only session, where there is one.
    fn ask_of(&self, call: Option<InFlight>, request: Request) -> Backpressure {
        let Some(call) = call else { return self.put_or_refuse(request) };
        if let Some(question) = callers::question_of(request.params()) {
            lock(&self.questions).add(question, call.by.clone());
        }
        match call.by.clone() {
            Asked::Caller(caller) => {
                let Some(caller) = caller.upgrade() else { return refuse(request) };
                let (params, meta) = (request.params().clone(), self.meta);
                request
                    .answer(async move { call.ask(caller.as_ref(), ELICIT, &params, meta).await });
                Backpressure::Ready
            }
            Asked::Session(session) => {
                let inbox = lock(&self.routes).sessions.get(&session).cloned();
                match inbox {
                    Some(inbox) => inbox.ask(request),
                    None => refuse(request),
                }
            }
        }
    }

    fn put_or_refuse(&self, request: Request) -> Backpressure {
        match self.put(Early::Asked(request)) {
            Ok(room) => room,
            Err(Early::Asked(request)) => refuse(request),
            Err(Early::Said(_) | Early::Answered) => Backpressure::Ready,
        }
    }

    /// Has all sessions know that something was let go by which may have been of any of them.
    fn lost(&self, line: &Oversize) -> Backpressure {
        let inboxes: Vec<_> = {
            let mut routes = lock(&self.routes);
            routes.early_lost |= routes.opening > 0;
            routes.sessions.values().cloned().collect()
        };
        let lost = |inbox: &Inbox| {
            let method = line.method.clone().filter(|method| method.len() <= MAX_METHOD_BYTES);
            inbox.pass_over(PassedOver { limit: line.limit, method, is_noted: false })
        };
        together(inboxes.iter().map(lost))
    }

    /// The session of what was let go by: the one that it names; else the only one, or the only one with a turn at work.
    fn session_of(&self, named: Option<&str>) -> Option<Inbox> {
        let routes = lock(&self.routes);
        if let Some(named) = named {
            return routes.sessions.get(named).cloned();
        }
        if let Some(only) = routes.only() {
            return Some(only.clone());
        }
        let at_work = self.callers.session_at_work()?;
        routes.sessions.get(&at_work).cloned()
    }

    /// Says that a question is done with, to whom it was asked; what nobody was asked comes back.
    fn elicited(&self, said: Notification) -> Result<Backpressure, Notification> {
        let question = callers::question_of(&said.params);
        let asked = question.and_then(|question| lock(&self.questions).take(&question));
        match asked {
            Some(Asked::Caller(caller)) => {
                let Some(caller) = caller.upgrade() else { return Ok(Backpressure::Ready) };
                tokio::spawn(async move { callers::tell(caller.as_ref(), &said).await });
                Ok(Backpressure::Ready)
            }
            Some(Asked::Session(session)) => {
                let inbox = lock(&self.routes).sessions.get(&session).cloned();
                match inbox {
                    Some(inbox) => Ok(inbox.say(said)),
                    None => Err(said),
                }
            }
            None => Err(said),
        }
    }
}

impl Handler for Router {
    fn on_request(&self, request: Request) -> Backpressure {
        if method(request.method()).is_some_and(|known| known.kind == Kind::Notification) {
            // What is only ever told is no question, for us or for clients.
            return unknown(request);
        }
        let is_question = request.method() == ELICIT;
        if is_question {
            self.remember(&request);
        }
        let has_session = splice::get_text(request.params().as_str(), &["sessionId"]).is_some();
        let call = callers::call_of(request.params()).filter(|_| is_question && !has_session);
        match call {
            Some(call) => self.ask_about(call, request),
            None => self.put_or_refuse(request),
        }
    }

    fn on_notification(&self, notification: Notification) -> Backpressure {
        let notification = match &*notification.method {
            ELICITED => match self.elicited(notification) {
                Ok(room) => return room,
                Err(notification) => notification,
            },
            _ => notification,
        };
        match self.put(Early::Said(notification)) {
            Ok(room) => room,
            Err(item) => {
                let method = item.method();
                let bytes = item.bytes();
                tracing::debug!(
                    agent = &*self.agent,
                    ?method,
                    bytes,
                    "what an agent said belongs to no session"
                );
                Backpressure::Ready
            }
        }
    }

    fn on_invalid(&self, invalid: &Invalid<'_>) {
        let (agent, reason) = (&*self.agent, &invalid.reason);
        if matches!(reason, Reason::TooLong(_)) {
            tracing::warn!(agent, %reason, "a message of an agent was let go by");
        } else {
            tracing::debug!(agent, %reason, "an agent wrote a line that is no message");
        }
    }

    /// What nobody hears of otherwise is noted in its session's log: requests and answers have their errors.
    fn on_oversize(&self, oversize: Oversize) -> Backpressure {
        if matches!(oversize.about, About::Response(_)) {
            return Backpressure::Ready;
        }
        let is_noted = !matches!(oversize.about, About::Request(_));
        let inbox = self.session_of(oversize.session.as_deref());
        // Where it names no session, it may have been of any.
        let others = if inbox.is_none() || oversize.session.is_none() {
            self.lost(&oversize)
        } else {
            Backpressure::Ready
        };
        let method = oversize.method.filter(|method| method.len() <= MAX_METHOD_BYTES);
        let line = PassedOver { limit: oversize.limit, method, is_noted };
        let own = inbox.map_or(Backpressure::Ready, |inbox| inbox.pass_over(line));
        together([others, own].into_iter())
    }

    /// What opens a session is answered at a place among what is told.
    fn on_response(&self) -> Backpressure {
        let mut routes = lock(&self.routes);
        let is_last = matches!(routes.early.last(), Some((_, Early::Answered)));
        if routes.opening > 0 && !is_last && routes.early.len() < MAX_EARLY {
            routes.early.push((String::new(), Early::Answered));
        }
        together(routes.reopening.iter().map(Inbox::answered))
    }
}

/// Room where there is room in all of these.
fn together(rooms: impl Iterator<Item = Backpressure>) -> Backpressure {
    let waits: Vec<_> = rooms
        .filter_map(|room| match room {
            Backpressure::Ready => None,
            Backpressure::Full(room) => Some(room),
        })
        .collect();
    if waits.is_empty() {
        return Backpressure::Ready;
    }
    Backpressure::Full(Box::pin(async move {
        for room in waits {
            room.await;
        }
    }))
}

/// Answers what is no request.
fn unknown(request: Request) -> Backpressure {
    let error = ErrorObject::method_not_found(request.method());
    request.answer(async move { Err::<RawJson, _>(error) });
    Backpressure::Ready
}

/// Answers what nobody can be asked.
fn refuse(request: Request) -> Backpressure {
    let method = request.method().to_owned();
    request.answer(async move {
        match &*method {
            "session/request_permission" => Ok(cancelled_permission()),
            ELICIT => Ok(serde_json::json!({ "action": "cancel" })),
            _ => Err(ErrorObject::method_not_found(&method)),
        }
    });
    Backpressure::Ready
}

pub(super) fn cancelled_permission() -> serde_json::Value {
    serde_json::json!({ "outcome": { "outcome": "cancelled" } })
}

// === impl Routes ===

impl Routes {
    /// The session that what names none is of: the only one, while no other is being opened.
    fn only(&self) -> Option<&Inbox> {
        if self.opening > 0 || self.sessions.len() > 1 {
            return None;
        }
        self.sessions.values().next()
    }

    fn forget_early(&mut self) -> Vec<(String, Early)> {
        self.early_bytes = 0;
        self.early_lost = false;
        std::mem::take(&mut self.early)
    }
}

// === impl Early ===

impl Early {
    fn params(&self) -> &str {
        match self {
            Self::Said(said) => said.params.as_str(),
            Self::Asked(request) => request.params().as_str(),
            Self::Answered => "{}",
        }
    }

    fn method(&self) -> &str {
        match self {
            Self::Said(said) => &said.method,
            Self::Asked(request) => request.method(),
            Self::Answered => "",
        }
    }

    fn bytes(&self) -> usize {
        self.params().len()
    }

    fn put(self, inbox: &Inbox) -> Backpressure {
        match self {
            Self::Said(said) => inbox.say(said),
            Self::Asked(request) => inbox.ask(request),
            Self::Answered => inbox.answered(),
        }
    }
}

// === impl Expecting ===

impl Drop for Expecting {
    fn drop(&mut self) {
        let early = {
            let mut routes = lock(&self.0.routes);
            routes.opening -= 1;
            if routes.opening > 0 {
                return;
            }
            routes.forget_early()
        };
        // A request that is dropped is answered.
        drop(early);
    }
}

// === impl Reopening ===

impl Drop for Reopening {
    fn drop(&mut self) {
        lock(&self.router.routes).reopening.retain(|inbox| !inbox.is(&self.inbox));
    }
}
