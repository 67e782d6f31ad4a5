//! Who asked for what an agent works on: what it asks about such a call goes to whoever made it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, Weak};

use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trilogue_domain::Json;
use trilogue_runtime::{CallError, Client};
use trilogue_sdk::agent_client::peer::{Notification, RawJson};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{ErrorObject, Id};

use super::meta::passed;
use super::trouble::error_object;
use super::{ClientMeta, lock};

/// How many questions are remembered, to tell whoever was asked that one is done with.
const MAX_QUESTIONS: usize = 256;

/// The calls that are in flight, by the ids under which they were sent.
#[derive(Debug, Default)]
pub(super) struct Callers {
    calls: Mutex<Calls>,
    /// Woken when one is known, or is not made after all.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    known: HashMap<Id<'static>, InFlight>,
    /// How many are being made, whose ids are not known yet.
    beginning: usize,
}

/// A call that is in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    /// Whom what is asked about it is asked.
    pub(super) by: Asked,
    /// Cancelled when the call has ended.
    ended: CancellationToken,
}

/// What is known of a call now.
#[derive(Debug)]
pub(super) enum Found {
    /// It is in flight.
    InFlight(InFlight),
    /// It may be one whose id is not known yet.
    Later,
    /// It is not in flight.
    Nowhere,
}

/// Says that a call is being made whose id is not known, until it is dropped.
pub(super) struct Beginning<'a>(&'a Callers);

/// Keeps a call known until it is dropped.
pub(super) struct Known<'a> {
    callers: &'a Callers,
    id: Id<'static>,
    ended: CancellationToken,
}

/// Whom an agent asked something that it will say is done with.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// Those who see this session.
    Session(String),
    /// Whoever made a call, while they are there.
    Caller(Weak<dyn Client>),
}

/// The questions with names of their own, oldest first.
#[derive(Debug, Default)]
pub(super) struct Questions(VecDeque<(String, Asked)>);

// === impl Callers ===

impl Callers {
    /// From now on a call is being made: what is asked about one that is not known waits.
    pub(super) fn begin(&self) -> Beginning<'_> {
        lock(&self.calls).beginning += 1;
        Beginning(self)
    }

    fn end(&self, id: &Id<'static>) {
        lock(&self.calls).known.remove(id);
    }

    /// The call of this id, as far as it is known.
    pub(super) fn look(&self, id: &Id<'static>) -> Found {
        let calls = lock(&self.calls);
        match calls.known.get(id) {
            Some(call) => Found::InFlight(call.clone()),
            None if calls.beginning > 0 => Found::Later,
            None => Found::Nowhere,
        }
    }

    /// The session whose prompt is in flight, where that is one alone.
    pub(super) fn session_at_work(&self) -> Option<String> {
        let calls = lock(&self.calls);
        let mut sessions = calls.known.values().filter_map(|call| match &call.by {
            Asked::Session(session) => Some(session),
            Asked::Caller(_) => None,
        });
        let one = sessions.next()?;
        sessions.all(|other| other == one).then(|| one.clone())
    }

    /// The call of this id; `None` where it is not in flight. Waits for those whose ids are not known yet.
    pub(super) async fn find(&self, id: &Id<'static>) -> Option<InFlight> {
        loop {
            let changed = self.changed.notified();
            match self.look(id) {
                Found::InFlight(call) => return Some(call),
                Found::Later => changed.await,
                Found::Nowhere => return None,
            }
        }
    }
}

// === impl InFlight ===

impl InFlight {
    /// Asks whoever made the call what the agent asks about it. Where nobody can answer, or the call has ended meanwhile, it is given up.
    pub(super) async fn ask(
        &self,
        caller: &dyn Client,
        method: &str,
        params: &RawJson,
        meta: ClientMeta,
    ) -> Result<RawJson, ErrorObject> {
        let nobody = || Ok(RawJson::of(&json!({ "action": "cancel" })));
        let Ok(carried) = Json::parse(params.as_bytes().clone()) else { return nobody() };
        let answer = tokio::select! {
            biased;
            answer = caller.call(method, carried) => answer,
            () = self.ended.cancelled() => return nobody(),
        };
        match answer {
            Ok(answer) => RawJson::parse(answer.as_bytes().clone())
                .map(|answer| passed(answer, meta))
                .or_else(|_| nobody()),
            Err(error) if error.code == CallError::METHOD_NOT_FOUND => nobody(),
            Err(error) if error == CallError::gone() => nobody(),
            Err(error) => Err(error_object(error)),
        }
    }
}

/// The name of a question.
pub(super) fn question_of(params: &RawJson) -> Option<String> {
    splice::get_text(params.as_str(), &["elicitationId"]).map(std::borrow::Cow::into_owned)
}

/// The call that something is about. Some agents write our ids, which are numbers, as texts.
pub(super) fn call_of(params: &RawJson) -> Option<Id<'static>> {
    let id = splice::get(params.as_str(), &["requestId"])?;
    let number = id.trim_matches('"').parse().map(Id::number);
    number.ok().or_else(|| Id::of(id).map(Id::into_owned))
}

/// Tells whoever made a call something about it.
pub(super) async fn tell(caller: &dyn Client, said: &Notification) {
    if let Ok(params) = Json::parse(said.params.as_bytes().clone()) {
        caller.notify(&said.method, params).await;
    }
}

// === impl Beginning ===

impl<'a> Beginning<'a> {
    /// The call was made, and what is asked about it is asked of these.
    pub(super) fn known(self, id: Id<'static>, by: Asked) -> Known<'a> {
        let ended = CancellationToken::new();
        let call = InFlight { by, ended: ended.clone() };
        lock(&self.0.calls).known.insert(id.clone(), call);
        Known { callers: self.0, id, ended }
    }
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        lock(&self.0.calls).beginning -= 1;
        self.0.changed.notify_waiters();
    }
}

impl fmt::Debug for Beginning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beginning")
    }
}

// === impl Known ===

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.callers.end(&self.id);
        self.ended.cancel();
    }
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Known").field(&self.id).finish()
    }
}

// === impl Questions ===

impl Questions {
    /// Remembers whom a question was asked. The oldest is forgotten where there are too many.
    pub(super) fn add(&mut self, question: String, asked: Asked) {
        self.0.retain(|(known, _)| *known != question);
        if self.0.len() >= MAX_QUESTIONS {
            self.0.pop_front();
        }
        self.0.push_back((question, asked));
    }

    /// Whom this question was asked, which is done with now.
    pub(super) fn take(&mut self, question: &str) -> Option<Asked> {
        let at = self.0.iter().position(|(known, _)| known == question)?;
        self.0.remove(at).map(|(_, asked)| asked)
    }
}
