//! What clients of the agent's own protocol can do with it beyond runs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use serde_json::value::RawValue;
use trilogue_domain::{Json, ThreadId};
use trilogue_mapping::agent_client::VERSION;
use trilogue_runtime::{CallError, ClientProfile, Opening, Sessions, ThreadContext};
use trilogue_sdk::agent_client::peer::Text;
use trilogue_wire::agent_client::splice;

use super::open::{Authenticates, CALL_TIMEOUT, json};
use super::original::DIALECT;
use super::process::Process;
use super::profile::Profile;
use super::session::Session;
use super::threads::{Agreed, State};
use super::trouble::Trouble;
use super::{AgentClient, Inner, lock};
use crate::workspace::Removal;

/// How long an agent may take to close or delete a session.
const CLOSING: Duration = Duration::from_secs(5);

#[async_trait]
impl Sessions for AgentClient {
    fn dialect(&self) -> (&str, u32) {
        (DIALECT, VERSION)
    }

    async fn meet(&self, client: &ClientProfile) -> Result<Json, CallError> {
        let profile = Profile::of(&self.0.launch(), Some(client));
        if let Some(met) = lock(&self.0.met).get(&profile) {
            return Ok(met.clone());
        }
        let process = self.0.process_for(Some(client)).await.map_err(Trouble::into_call_error)?;
        let greeting = json(process.greeting().clone());
        lock(&self.0.met).insert(profile, greeting.clone());
        Ok(greeting)
    }

    async fn open(&self, thread: &ThreadContext, opening: Opening) -> Result<Json, CallError> {
        let known = self.0.threads.get(thread.thread());
        let mut state = known.state.lock().await;
        state.opening = Some(opening.params);
        let opened = self.0.open(thread, &opening.client, &mut state).await;
        opened.map(|session| session.opened().clone()).map_err(Trouble::into_call_error)
    }

    async fn call(
        &self,
        thread: Option<&ThreadContext>,
        client: &ClientProfile,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError> {
        let called = match thread {
            Some(thread) => self.0.call_in(thread, client, method, params).await,
            None => self.0.call(client, method, params).await,
        };
        called.map(json).map_err(Trouble::into_call_error)
    }

    async fn notify(
        &self,
        thread: Option<&ThreadContext>,
        _client: &ClientProfile,
        method: &str,
        params: Json,
    ) {
        let Ok(params) = Text::parse(params.as_bytes().clone()) else { return };
        let Some(thread) = thread else {
            for process in self.0.pool.all() {
                // One that is gone hears nothing.
                drop(process.peer().notify(method, &params).await);
            }
            return;
        };
        let Some(known) = self.0.threads.find(thread.thread()) else { return };
        let session = known.state.lock().await.open_session();
        if let Some(session) = session {
            let params = of_session(&params, &session);
            drop(session.process().peer().notify(method, &params).await);
        }
    }

    async fn close(&self, thread: &ThreadId) {
        self.0.close(thread, false).await;
    }

    async fn forget(&self, thread: &ThreadId) {
        self.0.close(thread, true).await;
        self.0.threads.remove(thread);
        let Some(folders) = &self.0.launch().folders else { return };
        match folders.remove(thread).await {
            Ok(Removal::Gone) => {}
            Ok(Removal::Kept(why)) => {
                tracing::warn!(%thread, why, "the folder of a thread that was erased is kept");
            }
            Err(error) => {
                tracing::warn!(%thread, %error, "the folder of a thread that was erased is not removed");
            }
        }
    }
}

// === impl Inner ===

impl Inner {
    /// The session of a thread, opened where it is not.
    async fn open(
        &self,
        thread: &ThreadContext,
        client: &ClientProfile,
        state: &mut State,
    ) -> Result<Arc<Session>, Trouble> {
        let how = Authenticates::AsChosen;
        let binding = thread.binding().await?;
        let Some(binding) = binding else {
            let session = self.begin(thread, Some(client), state, Agreed::default(), how).await?;
            self.bind(thread, state, &session).await?;
            return Ok(session);
        };
        if let Some(session) = state.open_session().filter(|it| it.remote() == binding.remote) {
            return Ok(session);
        }
        let bound = (&*binding.remote, Agreed::read(&binding.capabilities));
        let reopened = self.reopen(thread, Some(client), state, bound, how).await?;
        if let Some(why) = reopened.forgot {
            // The next run begins with what was said before, because the new session was told nothing.
            self.bind(thread, state, &reopened.session).await?;
            let data = Json::from_value(&json!({ "reason": why }));
            let kind = "session_restarted".to_owned();
            let body = trilogue_domain::event::StateEvent::Custom { kind, data };
            thread.note(trilogue_domain::Body::State(body), None).await?;
        }
        Ok(reopened.session)
    }

    async fn bind(
        &self,
        thread: &ThreadContext,
        state: &State,
        session: &Session,
    ) -> Result<(), Trouble> {
        let agreed = self.agreed(thread.thread(), state).await;
        let bound = thread.bind(session.remote(), agreed.to_json()).await;
        bound.map_err(|_| {
            Trouble::ours(
                trilogue_domain::Code::Internal,
                "the agent's session could not be stored",
            )
        })
    }

    /// Puts a request into the session of a thread.
    async fn call_in(
        &self,
        thread: &ThreadContext,
        client: &ClientProfile,
        method: &str,
        params: Json,
    ) -> Result<Text, Trouble> {
        let known = self.threads.get(thread.thread());
        let session = self.open(thread, client, &mut *known.state.lock().await).await?;
        let _used = session.process().hold();
        let params = text(&params)?;
        session.process().call(method, &of_session(&params, &session), CALL_TIMEOUT).await
    }

    /// Puts a request to the agent that belongs to no session.
    async fn call(
        &self,
        client: &ClientProfile,
        method: &str,
        params: Json,
    ) -> Result<Text, Trouble> {
        let params = text(&params)?;
        let process = self.process_for(Some(client)).await?;
        let _used = process.hold();
        let result = process.call(method, &params, CALL_TIMEOUT).await?;
        match method {
            "authenticate" => {
                let chosen = splice::get_text(params.as_str(), &["methodId"]).map(Cow::into_owned);
                *lock(&self.authenticated) = chosen;
            }
            "logout" => {
                *lock(&self.authenticated) = None;
                let others = self.pool.all().into_iter();
                for other in others.filter(|other| !Arc::ptr_eq(other, &process)) {
                    // What one of them thinks of it does not matter.
                    drop(other.call(method, &params, CLOSING).await);
                }
            }
            _ => {}
        }
        Ok(result)
    }

    /// Ends what is held for a thread: its session, its terminals, its own process.
    async fn close(&self, thread: &ThreadId, for_good: bool) {
        let Some(known) = self.threads.find(thread) else { return };
        let mut state = known.state.lock().await;
        let session = state.session.take();
        if for_good {
            state.opening = None;
        }
        if let Some(session) = &session {
            end(session, for_good).await;
            session.close();
            session.close_workspace().await;
        }
        drop(state);
        if let Some(process) = self.pool.own(thread) {
            process.child().captured().clear();
            process.stop().await;
        }
    }
}

/// Tells the agent that a session is over, in whatever way it can hear that.
async fn end(session: &Session, for_good: bool) {
    let process: &Process = session.process();
    let Some(can) = &process.capabilities().session else { return };
    let params = json!({ "sessionId": session.remote() });
    let method = match (for_good && can.delete.is_some(), can.close.is_some()) {
        (true, _) => "session/delete",
        (false, true) => "session/close",
        (false, false) => return,
    };
    // An agent that will not is ended all the same.
    drop(process.call(method, &params, CLOSING).await);
}

fn text(params: &Json) -> Result<Text, Trouble> {
    Text::parse(params.as_bytes().clone()).map_err(|error| {
        Trouble::ours(
            trilogue_domain::Code::InvalidJson,
            format!("the params are no JSON: {error}"),
        )
    })
}

/// The params with the id by which the agent knows the session.
fn of_session(params: &Text, session: &Session) -> Text {
    let put = splice::put_session(params.as_str(), session.remote());
    let put = put.filter(|put| serde_json::from_str::<&RawValue>(put).is_ok());
    put.and_then(|put| Text::parse(put).ok()).unwrap_or_else(|| params.clone())
}
