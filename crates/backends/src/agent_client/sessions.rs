//! What clients of the agent's own protocol can do with it beyond runs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;
use trilogue_domain::{Code, Json, ThreadKey};
use trilogue_mapping::agent_client::VERSION;
use trilogue_runtime::{CallError, Client, Sessions, ThreadContext};
use trilogue_sdk::agent_client::peer::RawJson;
use trilogue_wire::agent_client::{self as wire, splice};

use super::meta::passed;
use super::open::{Authenticates, CALL_TIMEOUT, CLOSING, Reopened, Whom, end, json_of};
use super::original::DIALECT;
use super::process::Process;
use super::profile::Profile;
use super::session::Session;
use super::threads::{Agreed, Otherwise, State};
use super::trouble::Trouble;
use super::working::Working;
use super::{AgentClient, Authenticated, Inner, lock};
use crate::workspace::Removal;

/// How long an agent may take to take a notification.
const TELLING: Duration = Duration::from_secs(5);

#[async_trait]
impl Sessions for AgentClient {
    fn dialect(&self) -> (&str, u32) {
        (DIALECT, VERSION)
    }

    async fn meet(&self, caller: &Arc<dyn Client>) -> Result<Json, CallError> {
        let client = caller.profile();
        if let Some(met) = self.0.met.get(&Profile::of(&self.0.launch(), Some(client))) {
            return Ok(met);
        }
        let used = self.0.process_for(caller.as_ref()).await.map_err(Trouble::into_call_error)?;
        Ok(json_of(used.process().greeting().clone()))
    }

    async fn open(
        &self,
        thread: &ThreadContext,
        caller: &Arc<dyn Client>,
        params: Json,
    ) -> Result<Json, CallError> {
        let known = self.0.threads.get(thread.key());
        let opened = known.while_there(async {
            let mut state = known.state.lock().await;
            let mut otherwise = Otherwise::with(&mut state, params);
            let opened = self.0.open(thread, caller, otherwise.state()).await?;
            otherwise.done();
            Ok(opened)
        });
        let opened = opened.await.map_err(Trouble::into_call_error)?;
        Ok(opened.opened().now())
    }

    async fn call(
        &self,
        thread: Option<&ThreadContext>,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError> {
        let called = match thread {
            Some(thread) => self.0.call_in(thread, caller, method, params).await,
            None => self.0.call(caller, method, params).await,
        };
        let result = called.map_err(Trouble::into_call_error)?;
        // What the protocol has no word for comes as it is.
        let is_known = wire::method(method).is_some();
        Ok(if is_known || result.as_str() != "null" { json_of(result) } else { Json::null() })
    }

    /// Without a thread only processes that belong to none are told: what belongs to a thread is no business of others.
    async fn notify(
        &self,
        thread: Option<&ThreadContext>,
        _caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) {
        let Ok(params) = self.0.passed(&params) else { return };
        let Some(thread) = thread else {
            let unowned = self.0.pool.unowned();
            join_all(unowned.iter().map(|process| tell(process, method, &params))).await;
            return;
        };
        let Some(known) = self.0.threads.find(thread.key()) else { return };
        let session = known.state.lock().await.open_session();
        if let Some(session) = session {
            tell(session.process(), method, &of_session(&params, &session)).await;
        }
    }

    async fn close(&self, thread: &ThreadContext) {
        self.0.close_whole(thread.key(), false).await;
    }

    async fn forget(&self, thread: &ThreadContext) {
        self.0.forget(thread).await;
    }
}

// === impl Inner ===

impl Inner {
    /// The session of a thread, opened where it is not, or where its client wants it otherwise.
    async fn open(
        self: &Arc<Self>,
        thread: &ThreadContext,
        caller: &Arc<dyn Client>,
        state: &mut State,
    ) -> Result<Working, Trouble> {
        let (how, whom) = (Authenticates::AsChosen, Whom::caller(caller));
        let Some(binding) = thread.binding().await? else {
            let session = self.begin(thread, whom, state, None, how).await?;
            self.bind(thread, &session, state, None).await?;
            return Ok(session);
        };
        let agreed = Agreed::read(&binding.capabilities);
        let bound = (&*binding.remote, &agreed);
        if let Some(session) = self.as_it_is(thread, state, bound).await? {
            return Ok(session);
        }
        let bound = (&*binding.remote, agreed.clone());
        let Reopened { session, forgot } = self.reopen(thread, whom, state, bound, how).await?;
        let remembered = agreed.auth_method.as_deref();
        if forgot.is_some() || self.agreed(&session, remembered) != agreed {
            // Where it forgot, the next run begins with what was said before, because a new session was told nothing.
            self.bind(thread, &session, state, remembered).await?;
        }
        if let Some(why) = forgot {
            let data = Json::from_value(&json!({ "reason": why }));
            let kind = "session_restarted".to_owned();
            let body = trilogue_domain::event::StateEvent::Custom { kind, data };
            thread.note(trilogue_domain::Body::State(body), None).await?;
        }
        Ok(session)
    }

    /// Puts a request into the session of a thread.
    async fn call_in(
        self: &Arc<Self>,
        thread: &ThreadContext,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) -> Result<RawJson, Trouble> {
        let known = self.threads.get(thread.key());
        let session = known
            .while_there(async { self.open(thread, caller, &mut *known.state.lock().await).await });
        let session = session.await?;
        let params = of_session(&self.passed(&params)?, &session);
        let process = session.process();
        let result = process.call_for(Some(caller), method, &params, CALL_TIMEOUT).await?;
        session.opened().was_set(method, params.as_str(), result.as_str());
        Ok(result)
    }

    /// Puts a request to the agent that belongs to no session.
    async fn call(
        &self,
        caller: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) -> Result<RawJson, Trouble> {
        let params = self.passed(&params)?;
        let used = self.process_for(caller.as_ref()).await?;
        let process = used.process();
        let result = process.call_for(Some(caller), method, &params, CALL_TIMEOUT).await?;
        match method {
            "authenticate" => {
                let chosen = splice::get_text(params.as_str(), &["methodId"]).map(Cow::into_owned);
                let chosen = chosen.map_or(Authenticated::NotYet, Authenticated::By);
                *lock(&self.authenticated) = chosen;
            }
            "logout" => {
                *lock(&self.authenticated) = Authenticated::LoggedOut;
                let all = self.pool.all();
                let others = all.iter().filter(|other| !Arc::ptr_eq(other, process));
                // What one of them thinks of it does not matter.
                drop(join_all(others.map(|other| other.call(method, &params, CLOSING))).await);
            }
            _ => {}
        }
        Ok(result)
    }

    /// What a client says, as the agent gets it.
    fn passed(&self, params: &Json) -> Result<RawJson, Trouble> {
        text(params).map(|params| passed(params, self.launch().client_meta))
    }

    /// Ends what is held for a thread, also where nobody waits for that any more.
    async fn close_whole(self: &Arc<Self>, thread: ThreadKey, for_good: bool) {
        let inner = Arc::clone(self);
        let closing = tokio::spawn(async move { inner.close(thread, for_good).await });
        if closing.await.is_err() {
            tracing::error!("what an agent held for a thread was not ended");
        }
    }

    /// Ends what is held for a thread: its session, its terminals, its own process. What somebody works with stays, unless it is for good.
    async fn close(&self, thread: ThreadKey, for_good: bool) {
        let Some(known) = self.threads.find(thread) else { return };
        let mut state = known.state.lock().await;
        let is_at_work = |session: &Arc<Session>| session.is_at_work_but_for(0);
        if !for_good && state.session.as_ref().is_some_and(is_at_work) {
            return;
        }
        let session = state.session.take();
        if for_good {
            *state = State::default();
        }
        if let Some(session) = &session {
            end(session, for_good).await;
            session.close();
            session.process().serves_no_more(thread);
            session.close_workspace().await;
        }
        // Whoever opens a session for it waits until they have ended.
        for process in self.pool.own(thread) {
            process.child().captured().clear();
            process.stop().await;
        }
    }

    /// Removes what is kept for a thread that is erased.
    async fn forget(self: &Arc<Self>, thread: &ThreadContext) {
        if let Some(known) = self.threads.find(thread.key()) {
            known.gone.cancel();
        }
        self.close_whole(thread.key(), true).await;
        self.threads.remove(thread.key());
        let Some(folders) = &self.launch().folders else { return };
        let (tenant, thread, key) = (thread.tenant(), thread.thread(), thread.key());
        match folders.remove(tenant, thread, key).await {
            Ok(Removal::Gone) => {}
            Ok(Removal::Kept(why)) => {
                tracing::warn!(%tenant, %thread, why, "the folder of a thread that was erased is kept");
            }
            Err(error) => {
                tracing::warn!(%tenant, %thread, %error, "the folder of a thread that was erased is not removed");
            }
        }
    }

    /// A session of a thread could not be stored. Where that is because the thread was erased meanwhile, everything of it is removed beside: whoever erased it may not have seen what was opened since.
    pub(super) fn not_bound(self: &Arc<Self>, thread: ThreadContext) -> Trouble {
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            if matches!(thread.is_there().await, Ok(false)) {
                inner.forget(&thread).await;
            }
        });
        Trouble::ours(Code::Internal, "the agent's session could not be stored")
    }

    /// Binds the thread to a session. One that cannot be bound is closed. `remembered` is the way to authenticate that the binding before said.
    async fn bind(
        self: &Arc<Self>,
        thread: &ThreadContext,
        session: &Session,
        state: &mut State,
        remembered: Option<&str>,
    ) -> Result<(), Trouble> {
        let agreed = self.agreed(session, remembered).to_json();
        let bound = thread.bind(session.remote(), agreed).await;
        if bound.is_ok() {
            return Ok(());
        }
        if let Some(session) = state.session.take() {
            session.close();
        }
        Err(self.not_bound(thread.clone()))
    }
}

/// Tells an agent something. One that is gone, or takes nothing, hears nothing.
async fn tell(process: &Process, method: &str, params: &RawJson) {
    drop(timeout(TELLING, process.peer().notify(method, params)).await);
}

fn text(params: &Json) -> Result<RawJson, Trouble> {
    RawJson::parse(params.as_bytes().clone()).map_err(|error| {
        Trouble::ours(Code::InvalidJson, format!("the params are no JSON: {error}"))
    })
}

/// The params with the id by which the agent knows the session.
fn of_session(params: &RawJson, session: &Session) -> RawJson {
    let put = splice::put_session(params.as_str(), session.remote());
    let put = put.filter(|put| serde_json::from_str::<&RawValue>(put).is_ok());
    put.and_then(|put| RawJson::parse(put).ok()).unwrap_or_else(|| params.clone())
}
