//! Handles the editor's requests.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use trilogue_domain::{AgentCard, Json, lock};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{
    AgentNotification, AgentRequest, ClientCapabilities, InitializeResponse, NewSessionRequest,
    NewSessionResponse, Rules, SessionCapabilities, SetSessionConfigOptionResponse,
    SystemPromptCapabilities, check_system_prompt,
};
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use super::Options;
use super::session::StdioSession;
use crate::agent::Agent;
use crate::agent_client::peer::{Backpressure, Handler, Notification, Peer, RawJson, Request};

/// One agent on one connection, with its sessions.
pub(super) struct StdioConnection {
    pub(super) agent: Arc<dyn Agent>,
    pub(super) card: AgentCard,
    pub(super) options: Options,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    client: Arc<ClientInfo>,
    sessions: HashMap<String, Arc<StdioSession>>,
}

/// The editor's capabilities.
#[derive(Default, Debug)]
pub(super) struct ClientInfo {
    pub(super) capabilities: ClientCapabilities,
    /// The capabilities as the editor wrote them.
    pub(super) original: Option<Json>,
}

// === impl StdioConnection ===

impl StdioConnection {
    pub(super) fn new(agent: Arc<dyn Agent>, card: AgentCard, options: Options) -> Self {
        Self { agent, card, options, state: Mutex::default() }
    }

    pub(super) fn client(&self) -> Arc<ClientInfo> {
        Arc::clone(&self.state().client)
    }

    /// Cancels every turn. Called after the editor has disconnected.
    pub(super) fn end(&self) {
        for session in self.state().sessions.values() {
            session.cancel();
        }
    }

    fn initialize(&self, params: &RawJson, capabilities: Option<ClientCapabilities>) -> RawJson {
        let original = serde_json::from_str::<Original<'_>>(params.as_str()).ok();
        let original = original.and_then(|original| original.client_capabilities);
        self.state().client = Arc::new(ClientInfo {
            capabilities: capabilities.unwrap_or_default(),
            original: original.and_then(|json| Json::parse(json.get().to_owned()).ok()),
        });
        let mut answer: InitializeResponse = mapping::initialize_result(&self.card, None);
        if let Some(capabilities) = &mut answer.agent_capabilities {
            // Sessions end with the process, so the editor cannot load one again.
            capabilities.load_session = false;
            let system_prompt = self.system_prompt();
            capabilities.session = system_prompt
                .is_some()
                .then(|| SessionCapabilities { system_prompt, ..SessionCapabilities::default() });
        }
        RawJson::of(&answer)
    }

    fn system_prompt(&self) -> Option<SystemPromptCapabilities> {
        let whole = mapping::initialize_result(&self.card, None).agent_capabilities?;
        whole.session?.system_prompt
    }

    fn new_session(
        self: &Arc<Self>,
        peer: &Peer,
        request: &NewSessionRequest,
    ) -> Result<RawJson, ErrorObject> {
        if let Some(prompt) = &request.system_prompt {
            let checked = check_system_prompt(prompt, self.system_prompt().as_ref());
            checked.map_err(|violation| violation.error())?;
        }
        let mut state = self.state();
        if state.sessions.len() >= self.options.max_sessions {
            return Err(ErrorObject::new(Code::INTERNAL_ERROR, "too many sessions are open"));
        }
        let session = StdioSession::new(Arc::clone(self), peer.clone());
        session.state().system_prompt = request.system_prompt.as_ref().map(mapping::system_prompt);
        let id = session.id().to_owned();
        state.sessions.insert(id.clone(), Arc::new(session));
        let options = mapping::config_options(&self.card, None);
        let options = mapping::for_client(options, &state.client.capabilities);
        let mut answer = NewSessionResponse::new(id);
        answer.config_options = (!options.is_empty()).then_some(options);
        Ok(RawJson::of(&answer))
    }

    fn session(&self, id: &str) -> Result<Arc<StdioSession>, ErrorObject> {
        let session = self.state().sessions.get(id).cloned();
        session.ok_or_else(|| {
            let unknown = ErrorObject::new(Code::RESOURCE_NOT_FOUND, "unknown session");
            let data = serde_json::json!({ "sessionId": id });
            unknown.data(trilogue_wire::native::Json::from_value(&data))
        })
    }

    /// Returns the response to a request that can be answered at once. A prompt gets its response when its turn ends.
    fn answer(
        self: &Arc<Self>,
        request: &Request,
        asked: AgentRequest,
    ) -> Result<RawJson, ErrorObject> {
        match asked {
            AgentRequest::Initialize(hello) => {
                Ok(self.initialize(request.params(), hello.client_capabilities))
            }
            AgentRequest::NewSession(new) => self.new_session(request.peer(), &new),
            AgentRequest::SetSessionConfigOption(set) => {
                let options = self.session(&set.session_id)?.set_config_option(&set)?;
                Ok(RawJson::of(&SetSessionConfigOptionResponse::new(options)))
            }
            other => Err(ErrorObject::method_not_found(other.method())),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The params of `initialize`, to give the agent the capabilities as the editor wrote them.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Original<'a> {
    #[serde(borrow)]
    client_capabilities: Option<&'a serde_json::value::RawValue>,
}

/// Handles requests in the order in which they arrive, so that a cancellation finds the turn that was prompted before it.
#[derive(Debug)]
pub(super) struct RequestHandler(pub(super) Arc<StdioConnection>);

impl Handler for RequestHandler {
    fn on_request(&self, request: Request) -> Backpressure {
        let params = serde_json::from_str(request.params().as_str()).ok();
        let read = AgentRequest::read(request.method(), params, Rules::Lenient);
        match read.map_err(|refusal| refusal.error()) {
            Ok(AgentRequest::Prompt(prompt)) => {
                let session = self.0.session(&prompt.session_id);
                match session.and_then(|session| session.prompt(&prompt)) {
                    Ok(end) => request.answer(async move {
                        end.await.unwrap_or_else(|_| Err(ErrorObject::of(Code::INTERNAL_ERROR)))
                    }),
                    Err(error) => request.answer(async move { Err::<(), _>(error) }),
                }
            }
            Ok(asked) => {
                let answer = self.0.answer(&request, asked);
                request.answer(async move { answer });
            }
            Err(error) => request.answer(async move { Err::<(), _>(error) }),
        }
        Backpressure::Ready
    }

    fn on_notification(&self, notification: Notification) -> Backpressure {
        let params = serde_json::from_str(notification.params.as_str()).ok();
        if let Ok(AgentNotification::Cancel(cancel)) =
            AgentNotification::read(&notification.method, params, Rules::Lenient)
            && let Ok(session) = self.0.session(&cancel.session_id)
        {
            session.cancel();
        }
        Backpressure::Ready
    }
}

impl fmt::Debug for StdioConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioConnection").field("agent", &self.card.name).finish_non_exhaustive()
    }
}
