//! The server's calls in flight: an agent's question about a call is sent to the client that made the call.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, Weak};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Json, lock};
use trilogue_runtime::{CallError, Client};
use trilogue_sdk::agent_client::peer::{Notification, RawJson};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{ErrorObject, Id};

use super::router::cancelled_elicitation;
use crate::agent_client::failure::error_object;
use crate::agent_client::launch::ClientMeta;
use crate::agent_client::meta::for_agent;

/// The most elicitations that are remembered until the agent completes them.
const MAX_ELICITATIONS: usize = 256;
/// An elicitation with a longer id, in bytes, is not remembered: its completion is not forwarded to a client.
const MAX_ELICITATION_ID_BYTES: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct InFlightCalls {
    calls: Mutex<Calls>,
    /// Notified when an unsent call was sent, or was given up.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    by_id: HashMap<Id<'static>, InFlightCall>,
    /// The number of calls that are being sent, whose ids are not known yet.
    unsent: usize,
}

#[derive(Clone, Debug)]
pub(super) struct InFlightCall {
    pub(super) origin: CallOrigin,
    ended: CancellationToken,
}

#[derive(Debug)]
pub(super) enum Lookup {
    InFlight(InFlightCall),
    Unsent,
    Unknown,
}

/// Announces a call whose id is not known yet, until it is dropped.
pub(crate) struct UnsentCall<'a>(&'a InFlightCalls);

/// Keeps a call in flight until it is dropped.
pub(crate) struct CallGuard<'a> {
    calls: &'a InFlightCalls,
    id: Id<'static>,
    ended: CancellationToken,
}

/// The receiver of the agent's requests about a call.
#[derive(Clone, Debug)]
pub(crate) enum CallOrigin {
    /// The clients of this session.
    Session(String),
    /// The client that made the call, while it is connected.
    Client(Weak<dyn Client>),
}

/// The elicitations that the agent has not completed, oldest first, with their origins.
#[derive(Debug, Default)]
pub(super) struct OpenElicitations(VecDeque<(String, CallOrigin)>);

// === impl InFlightCalls ===

impl InFlightCalls {
    /// Announces a call: while it is unsent, a question about an unknown call waits.
    pub(crate) fn prepare(&self) -> UnsentCall<'_> {
        lock(&self.calls).unsent += 1;
        UnsentCall(self)
    }

    pub(super) fn look_up(&self, id: &Id<'static>) -> Lookup {
        let calls = lock(&self.calls);
        match calls.by_id.get(id) {
            Some(call) => Lookup::InFlight(call.clone()),
            None if calls.unsent > 0 => Lookup::Unsent,
            None => Lookup::Unknown,
        }
    }

    /// The session whose prompt is in flight, if there is only one.
    pub(super) fn prompting_session(&self) -> Option<String> {
        let calls = lock(&self.calls);
        let mut sessions = calls.by_id.values().filter_map(|call| match &call.origin {
            CallOrigin::Session(session) => Some(session),
            CallOrigin::Client(_) => None,
        });
        let one = sessions.next()?;
        sessions.all(|other| other == one).then(|| one.clone())
    }

    /// The call with this id. Waits until the ids of all calls that are being sent are known.
    pub(super) async fn find(&self, id: &Id<'static>) -> Option<InFlightCall> {
        loop {
            // Subscribe before the look-up, so that no change is missed.
            let changed = self.changed.notified();
            match self.look_up(id) {
                Lookup::InFlight(call) => return Some(call),
                Lookup::Unsent => changed.await,
                Lookup::Unknown => return None,
            }
        }
    }
}

// === impl InFlightCall ===

impl InFlightCall {
    /// Asks the client that made the call. Cancels the elicitation if the call ends or the client cannot answer.
    pub(super) async fn elicit(
        &self,
        client: &dyn Client,
        method: &str,
        params: &RawJson,
        meta: ClientMeta,
    ) -> Result<RawJson, ErrorObject> {
        let cancelled = || Ok(RawJson::of(&cancelled_elicitation()));
        let Ok(carried) = Json::parse_mended(params.as_bytes().clone()) else { return cancelled() };
        let answer = tokio::select! {
            biased;
            answer = client.call(method, carried) => answer,
            () = self.ended.cancelled() => return cancelled(),
        };
        match answer {
            Ok(answer) => RawJson::parse(answer.as_bytes().clone())
                .map(|answer| for_agent(answer, meta))
                .or_else(|_| cancelled()),
            Err(error) if error.code == CallError::METHOD_NOT_FOUND => cancelled(),
            Err(error) if error == CallError::not_connected() => cancelled(),
            Err(error) => Err(error_object(error)),
        }
    }
}

pub(super) fn elicitation_id(params: &RawJson) -> Option<String> {
    splice::get_text(params.as_str(), &["elicitationId"]).map(std::borrow::Cow::into_owned)
}

/// The id of the call that a request is about. Some agents write this server's numeric ids as strings.
pub(super) fn request_id(params: &RawJson) -> Option<Id<'static>> {
    let id = splice::get(params.as_str(), &["requestId"])?;
    let number = id.trim_matches('"').parse().map(Id::number);
    number.ok().or_else(|| Id::of(id).map(Id::into_owned))
}

/// Forwards a notification about a call to the client that made it.
pub(super) async fn notify(client: &dyn Client, notification: &Notification) {
    if let Ok(params) = Json::parse_mended(notification.params.as_bytes().clone()) {
        client.notify(&notification.method, params).await;
    }
}

// === impl UnsentCall ===

impl<'a> UnsentCall<'a> {
    /// Registers the call under its id, after it was sent.
    pub(crate) fn register(self, id: Id<'static>, origin: CallOrigin) -> CallGuard<'a> {
        let ended = CancellationToken::new();
        let call = InFlightCall { origin, ended: ended.clone() };
        lock(&self.0.calls).by_id.insert(id.clone(), call);
        CallGuard { calls: self.0, id, ended }
    }
}

impl Drop for UnsentCall<'_> {
    fn drop(&mut self) {
        lock(&self.0.calls).unsent -= 1;
        self.0.changed.notify_waiters();
    }
}

impl fmt::Debug for UnsentCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnsentCall")
    }
}

// === impl CallGuard ===

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        lock(&self.calls.calls).by_id.remove(&self.id);
        self.ended.cancel();
    }
}

impl fmt::Debug for CallGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallGuard").field(&self.id).finish()
    }
}

// === impl OpenElicitations ===

impl OpenElicitations {
    /// Remembers the origin of an elicitation, unless its id is too long. The oldest is forgotten if there are too many.
    pub(super) fn insert(&mut self, elicitation: String, origin: CallOrigin) {
        if elicitation.len() > MAX_ELICITATION_ID_BYTES {
            return;
        }
        self.0.retain(|(id, _)| *id != elicitation);
        if self.0.len() >= MAX_ELICITATIONS {
            self.0.pop_front();
        }
        self.0.push_back((elicitation, origin));
    }

    pub(super) fn remove(&mut self, elicitation: &str) -> Option<CallOrigin> {
        let at = self.0.iter().position(|(id, _)| id == elicitation)?;
        self.0.remove(at).map(|(_, origin)| origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_elicitations_are_bounded_by_count_and_by_bytes() {
        let mut open = OpenElicitations::default();
        let origin = || CallOrigin::Session("s".to_owned());
        let long = "x".repeat(MAX_ELICITATION_ID_BYTES + 1);
        open.insert(long.clone(), origin());
        assert!(open.remove(&long).is_none());
        for number in 0..=MAX_ELICITATIONS {
            open.insert(number.to_string(), origin());
        }
        assert!(open.remove("0").is_none());
        assert!(open.remove("1").is_some() && open.remove("1").is_none());
    }
}
