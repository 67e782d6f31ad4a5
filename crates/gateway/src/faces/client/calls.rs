//! What agents ask of the client that prompted.

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use tokio::sync::oneshot;
use trilogue_domain::{Json, ThreadId};
use trilogue_mapping::native::json;
use trilogue_runtime::{CallError, Client, ClientProfile};
use trilogue_wire::agent_client::{ClientCapabilities, Gate, Side, method, splice};
use trilogue_wire::jsonrpc::{ErrorObject, Id};
use trilogue_wire::native::local::Control;

use super::link::{Lines, Link, Met};
use super::pending::{Asked, NotAsked};

tokio::task_local! {
    /// The request of the client that is worked on.
    static REQUEST: Id<'static>;
}

/// Works on a request of the client: what the agent asks about it meanwhile, it asks about this one.
pub(super) fn on_behalf_of<W: Future>(id: Id<'static>, work: W) -> impl Future<Output = W::Output> {
    REQUEST.scope(id, work)
}

/// A client, in one of its sessions or outside of all of them.
pub(super) struct SessionClient {
    link: Weak<Link>,
    session: Option<ThreadId>,
    /// Where the client works, as far as it is known before it opens a session.
    folder: Option<PathBuf>,
    /// The client's own request that it is asked about.
    request: Option<Id<'static>>,
    profile: ClientProfile,
    capabilities: ClientCapabilities,
}

// === impl SessionClient ===

impl SessionClient {
    pub(super) fn new(link: &Arc<Link>, met: &Met, session: &ThreadId) -> Self {
        Self {
            link: Arc::downgrade(link),
            session: Some(session.clone()),
            folder: None,
            request: None,
            profile: met.profile.clone(),
            capabilities: met.client.clone(),
        }
    }

    /// The client that asks for something of its own, for what the agent asks about that.
    pub(super) fn caller(link: &Arc<Link>, met: &Met) -> Arc<dyn Client> {
        Self::of(link, met.profile.clone(), met.client.clone())
    }

    /// Likewise, before it has met the agent.
    pub(super) fn of(
        link: &Arc<Link>,
        profile: ClientProfile,
        capabilities: ClientCapabilities,
    ) -> Arc<dyn Client> {
        let request = REQUEST.try_with(Id::clone).ok();
        let (folder, link) = (link.folder.clone(), Arc::downgrade(link));
        Arc::new(Self { link, session: None, folder, request, profile, capabilities })
    }

    /// What is carried, with the session's id where there is one, or with the id of the client's own request in place of the agent's.
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

    /// Whether the client said that it can be asked this. A method that the protocol has no word for can always be tried.
    fn takes(&self, name: &str) -> bool {
        method(name).is_none_or(|method| match method.gate {
            Gate::Client(gate) => gate.is_open(&self.capabilities),
            _ => method.to != Side::Agent,
        })
    }

    /// Whether a question has a form that the client did not say it has. Agents are told that all forms are there: nobody answers it then.
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
impl Client for SessionClient {
    fn profile(&self) -> &ClientProfile {
        &self.profile
    }

    fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    async fn call(&self, method: &str, params: Json) -> Result<Json, CallError> {
        let link = self.link.upgrade().ok_or_else(CallError::gone)?;
        // Nothing is read from a client that waits for the agent's first word: it is asked nothing.
        let is_met = link.met().is_some();
        if self.lacks_form(method, &params) || method == "elicitation/create" && !is_met {
            return Ok(Json::from_value(&serde_json::json!({ "action": "cancel" })));
        }
        if !is_met || !self.takes(method) {
            return Err(call_error(&ErrorObject::method_not_found(method)));
        }
        let invalid = || CallError::new(CallError::INTERNAL, "the params cannot be written");
        let params = self.params(&params).ok_or_else(invalid)?;
        let (sender, answer) = oneshot::channel();
        let number = link.pending.next();
        match link.pending.wait(number, Asked::Call(sender)) {
            Ok(()) => {}
            Err(NotAsked::Closed) => return Err(CallError::gone()),
            Err(NotAsked::Full) => {
                let message = "the client has not answered too many requests already";
                return Err(CallError::new(CallError::INTERNAL, message));
            }
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
