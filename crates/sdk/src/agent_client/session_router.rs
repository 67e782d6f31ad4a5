//! Routes an agent's updates and requests to the session they belong to.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_wire::agent_client::{
    AgentCapabilities, CancelledPermission, ClientCapabilities, ClientNotification, ClientRequest,
    CompleteElicitationNotification, CreateElicitationResponse, ElicitationCancel, Extension,
    Refusal, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, Rules,
    SessionNotification, method, splice,
};
use trilogue_wire::jsonrpc::{ErrorObject, Payload};

use super::client_handler::{ClientHandler, reject};
use super::peer::{Backpressure, Handler, Notification, RawJson, Request};
use super::update_queue::UpdateQueue;

/// The maximum number of held updates for sessions that are still being opened.
const MAX_EARLY_UPDATES: usize = 256;

/// Receives the agent's updates and requests.
#[derive(Debug)]
pub(super) struct SessionRouter {
    handler: Arc<dyn ClientHandler>,
    offered: ClientCapabilities,
    state: Mutex<State>,
    /// The number of notifications that could not be read, or that belong to no open session.
    stray: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<String, Weak<UpdateQueue>>,
    /// The number of sessions that are being opened and whose ids are unknown.
    opening: usize,
    /// Updates that may belong to those sessions.
    early: VecDeque<(SessionNotification, RawJson)>,
}

/// A session that is being opened. Its id is still unknown.
#[derive(Debug)]
pub(super) struct PendingOpen<'a>(&'a SessionRouter);

// === impl SessionRouter ===

impl SessionRouter {
    pub(super) fn new(handler: Arc<dyn ClientHandler>) -> Self {
        let offered = handler.capabilities();
        Self { handler, offered, state: Mutex::default(), stray: AtomicU64::new(0) }
    }

    pub(super) fn offered(&self) -> &ClientCapabilities {
        &self.offered
    }

    /// Returns the number of notifications that could not be read, or that belong to no open session.
    pub(super) fn stray(&self) -> u64 {
        self.stray.load(Ordering::Relaxed)
    }

    /// Begins to hold updates of unknown sessions, until no session is being opened.
    pub(super) fn pending_open(&self) -> PendingOpen<'_> {
        self.state().opening += 1;
        PendingOpen(self)
    }

    /// Routes the updates of a session to this queue, including the held ones.
    pub(super) fn open(&self, session: &str, updates: &Arc<UpdateQueue>) {
        let mut state = self.state();
        state.sessions.insert(session.to_owned(), Arc::downgrade(updates));
        let early = std::mem::take(&mut state.early);
        // The lock is held meanwhile, so that later updates come after the held ones.
        for (said, original) in early {
            if said.session_id == session {
                updates.push(said.update, original);
            } else {
                state.early.push_back((said, original));
            }
        }
    }

    /// Stops routing the updates of a session to this queue.
    pub(super) fn retire(&self, session: &str, updates: &UpdateQueue) {
        let mut state = self.state();
        let held = state.sessions.get(session);
        if held.is_some_and(|held| std::ptr::eq(held.as_ptr(), updates)) {
            state.sessions.remove(session);
        }
    }

    fn update(&self, said: SessionNotification, original: RawJson) {
        let updates = {
            let mut state = self.state();
            let updates = state.sessions.get(&said.session_id).and_then(Weak::upgrade);
            match updates {
                Some(updates) => updates,
                None if state.opening > 0 && state.early.len() < MAX_EARLY_UPDATES => {
                    state.early.push_back((said, original));
                    return;
                }
                None => {
                    drop(state);
                    self.note_stray();
                    return;
                }
            }
        };
        updates.push(said.update, original);
    }

    /// Returns the token of the session's turn. A request about the session is cancelled with it.
    fn turn(&self, params: &str) -> CancellationToken {
        let session = splice::get_text(params, &["sessionId"]);
        let updates =
            session.and_then(|id| self.state().sessions.get(&*id).and_then(Weak::upgrade));
        updates.map_or_else(CancellationToken::new, |updates| updates.turn())
    }

    /// Returns `true` if the client offered this method to the agent.
    fn is_offered(&self, name: &str) -> bool {
        let gate = method(name).map(|method| method.gate);
        gate.is_none_or(|gate| gate.is_open(&AgentCapabilities::new(), &self.offered))
    }

    fn note_stray(&self) {
        self.stray.fetch_add(1, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Handler for SessionRouter {
    fn on_request(&self, request: Request) -> Backpressure {
        let read = if self.is_offered(request.method()) {
            let params = serde_json::from_str::<&RawValue>(request.params().as_str()).ok();
            ClientRequest::read(request.method(), params, Rules::Lenient)
        } else {
            Err(Refusal::NoSuchMethod(request.method().to_owned()))
        };
        match read {
            Ok(asked) => {
                let (handler, turn) =
                    (Arc::clone(&self.handler), self.turn(request.params().as_str()));
                request.answer(Box::pin(answer(handler, asked, turn)));
            }
            Err(refusal) => request.answer(async move { Err::<(), _>(refusal.error()) }),
        }
        Backpressure::Ready
    }

    fn on_notification(&self, said: Notification) -> Backpressure {
        let params = serde_json::from_str::<&RawValue>(said.params.as_str()).ok();
        match ClientNotification::read(&said.method, params, Rules::Lenient) {
            Ok(ClientNotification::SessionUpdate(update)) => self.update(*update, said.params),
            Ok(ClientNotification::CompleteElicitation(done)) => {
                let CompleteElicitationNotification { elicitation_id, .. } = *done;
                self.handler.elicitation_completed(&elicitation_id);
            }
            Ok(ClientNotification::Extension(_)) => {
                self.handler.extension_notification(&said.method, &said.params);
            }
            Ok(ClientNotification::CancelRequest(_)) => {}
            Err(_) => self.note_stray(),
        }
        Backpressure::Ready
    }
}

/// Answers a request. `turn` is cancelled when the answer is no longer needed.
async fn answer(
    handler: Arc<dyn ClientHandler>,
    asked: ClientRequest,
    turn: CancellationToken,
) -> Result<RawJson, ErrorObject> {
    match asked {
        ClientRequest::RequestPermission(request) => {
            Ok(RawJson::of(&permission(&*handler, *request, &turn).await))
        }
        ClientRequest::CreateElicitation(request) => {
            let answer = within(&turn, handler.elicitation(*request)).await;
            let cancelled = || CreateElicitationResponse::Cancel(ElicitationCancel::new());
            Ok(RawJson::of(&answer.unwrap_or_else(cancelled)))
        }
        ClientRequest::ReadTextFile(request) => of(handler.read_text_file(*request).await),
        ClientRequest::WriteTextFile(request) => of(handler.write_text_file(*request).await),
        ClientRequest::CreateTerminal(request) => of(handler.create_terminal(*request).await),
        ClientRequest::TerminalOutput(request) => of(handler.terminal_output(*request).await),
        ClientRequest::WaitForTerminalExit(request) => {
            of(handler.wait_for_terminal_exit(*request).await)
        }
        ClientRequest::KillTerminal(request) => of(handler.kill_terminal(*request).await),
        ClientRequest::ReleaseTerminal(request) => of(handler.release_terminal(*request).await),
        ClientRequest::Extension(extension) => {
            let Extension { method, params } = *extension;
            let params = params.map_or(RawJson::EMPTY, |params| RawJson::of(&params));
            handler.extension(&method, params).await
        }
    }
}

/// Answers a permission request. Accepts only an option that the request offers.
async fn permission(
    handler: &dyn ClientHandler,
    request: RequestPermissionRequest,
    turn: &CancellationToken,
) -> RequestPermissionResponse {
    let offered = request.clone();
    let Some(answer) = within(turn, handler.permission(request)).await else {
        let cancelled = CancelledPermission::new();
        return RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled(cancelled));
    };
    let is_choice = matches!(answer.outcome, RequestPermissionOutcome::Selected(_));
    if is_choice && offered.chosen(&answer).is_none() {
        return reject(&offered);
    }
    answer
}

/// Returns the result of the future, or `None` if the turn is cancelled first.
async fn within<T>(turn: &CancellationToken, answer: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = turn.cancelled() => None,
        answer = answer => Some(answer),
    }
}

fn of<P: Payload>(answer: Result<P, ErrorObject>) -> Result<RawJson, ErrorObject> {
    answer.map(|answer| RawJson::of(&answer))
}

// === impl PendingOpen ===

impl Drop for PendingOpen<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.opening -= 1;
        if state.opening == 0 {
            let strays = state.early.len();
            state.early.clear();
            drop(state);
            self.0.stray.fetch_add(strays as u64, Ordering::Relaxed);
        }
    }
}
