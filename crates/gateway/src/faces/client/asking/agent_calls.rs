//! Calls of agents to the client that prompted them.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::sync::oneshot;
use trilogue_domain::{Json, Principal, Right, ThreadId};
use trilogue_mapping::native::json;
use trilogue_runtime::{CallError, Client, ClientProfile};
use trilogue_wire::agent_client::{ClientCapabilities, Gate, Side, method, splice};
use trilogue_wire::jsonrpc::{ErrorObject, Id};
use trilogue_wire::native::local::Control;

use super::super::connection::pending::{AskRefusal, PendingReply};
use super::super::connection::{ClientConnection, Handshake};
use super::super::wire::lines::OutgoingLines;

tokio::task_local! {
    /// The client's request that this task processes.
    static REQUEST: Id<'static>;
}

/// Processes a request of the client. Calls that the agent makes meanwhile refer to that request.
pub(crate) fn on_behalf_of<W: Future>(id: Id<'static>, work: W) -> impl Future<Output = W::Output> {
    REQUEST.scope(id, work)
}

/// The client as agents call it, in one of its sessions or outside of sessions.
pub(crate) struct AgentCalls {
    connection: Weak<ClientConnection>,
    session: Option<ThreadId>,
    /// The client's working directory, if it is known before a session is opened.
    folder: Option<PathBuf>,
    /// The client's own request that the agent's call is about.
    request: Option<Id<'static>>,
    principal: Arc<Principal>,
    profile: ClientProfile,
    capabilities: ClientCapabilities,
}

// === impl AgentCalls ===

impl AgentCalls {
    pub(crate) fn in_session(
        connection: &Arc<ClientConnection>,
        handshake: &Handshake,
        session: &ThreadId,
    ) -> Self {
        Self {
            connection: Arc::downgrade(connection),
            session: Some(session.clone()),
            folder: None,
            request: None,
            principal: Arc::clone(&connection.principal),
            profile: handshake.profile.clone(),
            capabilities: handshake.client.clone(),
        }
    }

    /// Creates the calls that the agent makes while it processes a request of the client.
    pub(crate) fn of_request(
        connection: &Arc<ClientConnection>,
        handshake: &Handshake,
    ) -> Arc<dyn Client> {
        let (profile, capabilities) = (handshake.profile.clone(), handshake.client.clone());
        Self::before_handshake(connection, profile, capabilities)
    }

    /// Like [`Self::of_request`], for `initialize`.
    pub(crate) fn before_handshake(
        connection: &Arc<ClientConnection>,
        profile: ClientProfile,
        capabilities: ClientCapabilities,
    ) -> Arc<dyn Client> {
        let request = REQUEST.try_with(Id::clone).ok();
        // A client elsewhere has its folder there.
        let folder = connection.folder.clone().filter(|_| connection.origin.is_local());
        let principal = Arc::clone(&connection.principal);
        let (connection, session) = (Arc::downgrade(connection), None);
        Arc::new(Self { connection, session, folder, request, principal, profile, capabilities })
    }

    /// Returns the parameters with our session id or the client's request id instead of the agent's.
    fn params(&self, params: &Json) -> Option<trilogue_wire::native::Json> {
        if !params.is_object() {
            return Some(json(params));
        }
        let text = params.as_str();
        let ours = match (&self.session, &self.request) {
            (Some(session), _) => splice::put_session(text, session.as_str())?,
            (None, Some(request)) if splice::get(text, &["requestId"]).is_some() => {
                let id = serde_json::to_string(request).ok()?;
                splice::set(text, &["requestId"], &id)?
            }
            _ => return Some(json(params)),
        };
        trilogue_wire::native::Json::parse(&ours).ok()
    }

    /// Whether the client's capabilities include this method. Methods outside of the protocol always pass.
    fn accepts(&self, name: &str) -> bool {
        method(name).is_none_or(|method| match method.gate {
            Gate::Client(gate) => gate.is_open(&self.capabilities),
            _ => method.to != Side::Agent,
        })
    }

    /// Whether this asks for a form that the client lacks. The server announces every form to agents, so such a question counts as cancelled.
    fn lacks_form(&self, method: &str, params: &Json) -> bool {
        let forms = self.capabilities.elicitation.as_ref();
        method == "elicitation/create"
            && match splice::get_text(params.as_str(), &["mode"]).as_deref() {
                Some("url") => forms.is_none_or(|forms| forms.url.is_none()),
                Some("form") | None => forms.is_none_or(|forms| forms.form.is_none()),
                Some(_) => forms.is_none(),
            }
    }
}

#[async_trait]
impl Client for AgentCalls {
    fn profile(&self) -> &ClientProfile {
        &self.profile
    }

    fn principal(&self) -> &Principal {
        &self.principal
    }

    fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError> {
        let connection = self.connection.upgrade().ok_or_else(CallError::not_connected)?;
        // Before the handshake the server reads nothing from the client, so it cannot reply.
        let is_ready = connection.handshake().is_some();
        let is_question = method == "elicitation/create";
        if self.lacks_form(method, &params)
            || is_question && (!is_ready || !connection.may(Right::Answer))
        {
            return Ok(Json::from_value(&serde_json::json!({ "action": "cancel" })));
        }
        if !is_ready || !self.accepts(method) {
            return Err(call_error(&ErrorObject::method_not_found(method)));
        }
        let invalid = || CallError::new(CallError::INTERNAL, "the params cannot be written");
        let params = self.params(&params).ok_or_else(invalid)?;
        let (sender, reply) = oneshot::channel();
        let number = connection.pending.next();
        match connection.pending.add(number, PendingReply::Call(sender)) {
            Ok(()) => {}
            Err(AskRefusal::Closed) => return Err(CallError::not_connected()),
            Err(AskRefusal::Full) => {
                let message = "the client has left too many requests unanswered";
                return Err(CallError::new(CallError::INTERNAL, message));
            }
        }
        let mut guard =
            CallGuard { connection: Arc::downgrade(&connection), number, is_over: false };
        let mut lines = OutgoingLines::default();
        lines.request(number, method, &params);
        connection.send(lines, Control::Boundary).await;
        // The call can wait long and must not keep a closed connection alive.
        drop(connection);
        let reply = reply.await;
        guard.is_over = true;
        reply.unwrap_or_else(|_| Err(CallError::not_connected()))
    }

    async fn notify(&self, method: &str, params: Json) {
        let Some(connection) = self.connection.upgrade().filter(|_| self.accepts(method)) else {
            return;
        };
        let Some(params) = self.params(&params) else { return };
        let mut lines = OutgoingLines::default();
        lines.notification(method, &params);
        connection.send(lines, Control::Boundary).await;
    }
}

impl fmt::Debug for AgentCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCalls").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Withdraws the request from the client if the agent stops waiting for the reply.
struct CallGuard {
    connection: Weak<ClientConnection>,
    number: u64,
    is_over: bool,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let Some(connection) = self.connection.upgrade() else { return };
        if connection.pending.take(self.number).is_some() {
            let mut lines = OutgoingLines::default();
            lines.withdrawal(self.number);
            let tasks = connection.tasks.clone();
            tasks.spawn(async move { connection.send(lines, Control::Boundary).await });
        }
    }
}

/// Converts a client's error for the agent.
pub(crate) fn call_error(error: &ErrorObject) -> CallError {
    let data = error.data.as_ref().and_then(|data| Json::parse(data.as_str().to_owned()).ok());
    CallError { code: error.code.0, message: error.message.clone(), data }
}

/// Converts an agent's error for the client.
pub(crate) fn error_object(error: &CallError) -> ErrorObject {
    ErrorObject {
        code: trilogue_wire::jsonrpc::Code(error.code),
        message: error.message.clone(),
        data: error.data.as_ref().map(json),
    }
}
