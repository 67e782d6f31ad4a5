//! What agents ask of the client that prompted.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::sync::oneshot;
use trilogue_domain::{Json, ThreadId};
use trilogue_mapping::native::json;
use trilogue_runtime::{CallError, Client, ClientProfile};
use trilogue_wire::agent_client::{ClientCapabilities, Gate, Side, method, splice};
use trilogue_wire::jsonrpc::ErrorObject;
use trilogue_wire::native::local::Control;

use super::link::{Lines, Link, Met};
use super::pending::Asked;

/// A client, in one of its sessions.
pub(super) struct SessionClient {
    link: Weak<Link>,
    session: ThreadId,
    profile: ClientProfile,
    capabilities: ClientCapabilities,
}

// === impl SessionClient ===

impl SessionClient {
    pub(super) fn new(link: &Arc<Link>, met: &Met, session: &ThreadId) -> Self {
        Self {
            link: Arc::downgrade(link),
            session: session.clone(),
            profile: met.profile.clone(),
            capabilities: met.client.clone(),
        }
    }

    /// What is carried, with the session's id where there is one.
    fn params(&self, params: &Json) -> Option<trilogue_wire::native::Json> {
        if !params.is_object() {
            return Some(json(params));
        }
        let params = splice::put_session(params.as_str(), self.session.as_str())?;
        trilogue_wire::native::Json::parse(&params).ok()
    }

    /// Whether the client said that it can be asked this. A method that the protocol has no word for can always be tried.
    fn takes(&self, name: &str) -> bool {
        method(name).is_none_or(|method| match method.gate {
            Gate::Client(gate) => gate.is_open(&self.capabilities),
            _ => method.to != Side::Agent,
        })
    }
}

#[async_trait]
impl Client for SessionClient {
    fn profile(&self) -> &ClientProfile {
        &self.profile
    }

    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError> {
        if !self.takes(method) {
            return Err(call_error(&ErrorObject::method_not_found(method)));
        }
        let link = self.link.upgrade().ok_or_else(CallError::gone)?;
        let invalid = || CallError::new(CallError::INTERNAL, "the params cannot be written");
        let params = self.params(&params).ok_or_else(invalid)?;
        let (sender, answer) = oneshot::channel();
        let number = link.pending.next();
        if !link.pending.wait(number, Asked::Call(sender)) {
            return Err(CallError::gone());
        }
        let mut waiting = Waiting { link: Arc::downgrade(&link), number, is_over: false };
        let mut lines = Lines::default();
        lines.request(number, method, &params);
        link.send(lines, Control::Boundary).await;
        drop(link);
        let answer = answer.await;
        waiting.is_over = true;
        answer.unwrap_or_else(|_| Err(CallError::gone()))
    }

    async fn notify(&self, method: &str, params: Json) {
        let Some(link) = self.link.upgrade().filter(|_| self.takes(method)) else { return };
        let Some(params) = self.params(&params) else { return };
        let mut lines = Lines::default();
        lines.notification(method, &params);
        link.send(lines, Control::Boundary).await;
    }
}

impl fmt::Debug for SessionClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionClient").field("session", &self.session).finish_non_exhaustive()
    }
}

/// A call that waits. Where nobody waits any more, the client is told.
struct Waiting {
    link: Weak<Link>,
    number: u64,
    is_over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Some(link) = self.link.upgrade() else { return };
        if link.pending.take(self.number).is_some() {
            let number = self.number;
            link.tasks.clone().spawn(async move { withdraw(&link, number).await });
        }
    }
}

/// Tells the client that nobody waits for the answer to a request any more.
pub(super) async fn withdraw(link: &Link, number: u64) {
    let mut lines = Lines::default();
    write_withdrawal(&mut lines, number);
    link.send(lines, Control::Boundary).await;
}

/// Adds the line that says so.
pub(super) fn write_withdrawal(lines: &mut Lines, number: u64) {
    let params = serde_json::json!({ "requestId": number });
    lines.notification("$/cancel_request", &params);
}

/// An error of the wire as the agent is told it.
pub(super) fn call_error(error: &ErrorObject) -> CallError {
    let data = error.data.as_ref().and_then(|data| Json::parse(data.as_str().to_owned()).ok());
    CallError { code: error.code.0, message: error.message.clone(), data }
}

/// An agent's refusal as the client is told it.
pub(super) fn error_object(error: &CallError) -> ErrorObject {
    ErrorObject {
        code: trilogue_wire::jsonrpc::Code(error.code),
        message: error.message.clone(),
        data: error.data.as_ref().map(json),
    }
}
