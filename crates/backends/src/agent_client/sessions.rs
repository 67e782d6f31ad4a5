//! Operations of clients of the agent's own protocol, outside of runs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use tokio::time::timeout;
use trilogue_domain::{Code, Error, Json};
use trilogue_mapping::agent_client::{UPDATE as DIALECT, VERSION};
use trilogue_runtime::{CallError, Client, Sessions, ThreadContext};
use trilogue_sdk::agent_client::peer::RawJson;
use trilogue_wire::agent_client::{self as wire, splice};

use super::agent::AgentClient;
use super::failure::AgentFailure;
use super::launch::Launch;
use super::meta::for_agent;
use super::opening::{
    FOLDER_MEMBER, ReopenedSession, Requester, SessionOpener, default_cwd, session_restarted,
};
use super::process::{
    CLIENT_CALL_TIMEOUT, PrincipalKey, Process, Profile, SERVER_CALL_TIMEOUT, json_of,
};
use super::session::{OpeningRollback, Session, SessionBinding, SessionLease, ThreadState};

/// The method whose params name the folder of a session that does not exist.
const OPTIONS_METHOD: &str = "session/options";
/// How long an agent may take to read a notification.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

#[async_trait]
impl Sessions for AgentClient {
    fn dialect(&self) -> (&str, u32) {
        (DIALECT, VERSION)
    }

    fn takes_folder(&self) -> bool {
        let launch = self.opener().launch();
        launch.folders.is_none() && launch.remote_cwd().is_none()
    }

    async fn greet(&self, client: &Arc<dyn Client>) -> Result<Json, CallError> {
        let opener = self.opener();
        let profile = Profile::of(&opener.launch(), Some(client.profile()));
        if let Some(greeting) = opener.greetings.get(&profile) {
            return Ok(greeting);
        }
        let lease = opener.process_for(client.as_ref()).await;
        Ok(lease.map_err(AgentFailure::into_call_error)?.process().greeting().clone())
    }

    async fn open(
        &self,
        thread: &ThreadContext,
        client: &Arc<dyn Client>,
        params: Json,
    ) -> Result<Json, CallError> {
        if is_of_subagent(thread).await.map_err(AgentFailure::into_call_error)? {
            // The agent opens it itself. Without its parent, there is nothing but the history.
            let session = self.opener().open_subagents.get(thread.key());
            return Ok(session.map_or_else(Json::empty_object, |session| session.modes().current()));
        }
        let known = self.opener().threads.get_or_insert(thread.key());
        let opened = known.unless_erased(async {
            let mut state = known.state.lock().await;
            let mut rollback = OpeningRollback::new(&mut state, params);
            let opened = open(self.opener(), thread, client, rollback.state()).await?;
            rollback.commit();
            Ok(opened)
        });
        let opened = Box::pin(opened).await.map_err(AgentFailure::into_call_error)?;
        Ok(opened.modes().current())
    }

    async fn call(
        &self,
        thread: Option<&ThreadContext>,
        client: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) -> Result<Json, CallError> {
        let called = match thread {
            Some(thread) => call_session(self.opener(), thread, client, method, params).await,
            None => call_agent(self.opener(), client, method, params).await,
        };
        let result = called.map_err(AgentFailure::into_call_error)?;
        // The result of a method outside of the protocol stays unchanged.
        let is_known = wire::method(method).is_some();
        Ok(if is_known || result.as_str() != "null" { json_of(result) } else { Json::null() })
    }

    /// Without a thread, only the principal's processes without a thread are notified: those of a thread do not concern other clients.
    async fn notify(
        &self,
        thread: Option<&ThreadContext>,
        client: &Arc<dyn Client>,
        method: &str,
        params: Json,
    ) {
        let opener = self.opener();
        let Ok(params) = client_params(opener, &params) else { return };
        let Some(thread) = thread else {
            let principal = PrincipalKey::of_client(client.as_ref());
            let processes = opener.pool.unowned_of(&principal);
            join_all(processes.iter().map(|process| notify(process, method, &params))).await;
            return;
        };
        let Some(known) = opener.threads.get(thread.key()) else { return };
        let session = known.state.lock().await.open_session();
        if let Some(session) = session {
            notify(session.process(), method, &with_session_id(&params, &session)).await;
        }
    }

    async fn close(&self, thread: &ThreadContext) {
        self.opener().close(thread.key(), false).await;
    }

    async fn forget(&self, thread: &ThreadContext) {
        self.opener().forget(thread).await;
    }
}

/// The session of a thread. Opens it if it is not open with the params that its client wants.
async fn open(
    opener: &Arc<SessionOpener>,
    thread: &ThreadContext,
    client: &Arc<dyn Client>,
    state: &mut ThreadState,
) -> Result<SessionLease, AgentFailure> {
    let requester = Requester::client(client);
    let Some(row) = thread.binding().await? else {
        let session = opener.begin(thread, &requester, state, None).await?;
        opener.bind(thread, &session, state, None).await?;
        return Ok(session);
    };
    let binding = SessionBinding::read(&row.capabilities);
    let bound = (&*row.remote, &binding);
    if let Some(session) = opener.open_session(thread, &requester, state, bound).await? {
        return Ok(session);
    }
    let bound = (&*row.remote, binding.clone());
    let ReopenedSession { session, forgotten } =
        opener.reopen(thread, &requester, state, bound).await?;
    let remembered = binding.auth_method.as_deref();
    if forgotten.is_some() || opener.binding(&session, remembered) != binding {
        // The next run primes a new session with the history.
        opener.bind(thread, &session, state, remembered).await?;
    }
    if let Some(why) = forgotten {
        thread.append_event(session_restarted(&why), None).await?;
    }
    Ok(session)
}

async fn call_session(
    opener: &Arc<SessionOpener>,
    thread: &ThreadContext,
    client: &Arc<dyn Client>,
    method: &str,
    params: Json,
) -> Result<RawJson, AgentFailure> {
    if is_of_subagent(thread).await? {
        let message = format!("{method} cannot change a sub-agent's session");
        return Err(Error::new(Code::ThreadOfSubagent, message)
            .hint("change the session of its parent")
            .into());
    }
    let known = opener.threads.get_or_insert(thread.key());
    let opening = async { open(opener, thread, client, &mut *known.state.lock().await).await };
    let session = Box::pin(known.unless_erased(opening)).await?;
    let params = with_session_id(&client_params(opener, &params)?, &session);
    let process = session.process();
    let result = process.call_for(Some(client), method, &params, CLIENT_CALL_TIMEOUT).await?;
    session.modes().record_setting(method, params.as_str(), result.as_str());
    Ok(with_our_id(result, session.remote(), thread.thread().as_str()))
}

/// Whether the thread is bound to a session that the agent has opened itself, as a sub-agent.
async fn is_of_subagent(thread: &ThreadContext) -> Result<bool, AgentFailure> {
    let bound = thread.binding().await?;
    Ok(bound.is_some_and(|bound| SessionBinding::read(&bound.capabilities).subagent.is_some()))
}

/// A result with this server's id of the session, if the agent used its own.
fn with_our_id(result: RawJson, remote: &str, ours: &str) -> RawJson {
    if splice::get_text(result.as_str(), &["sessionId"]).as_deref() != Some(remote) {
        return result;
    }
    let put = splice::set_text(result.as_str(), &["sessionId"], ours);
    put.and_then(|put| RawJson::parse(put).ok()).unwrap_or(result)
}

async fn call_agent(
    opener: &SessionOpener,
    client: &Arc<dyn Client>,
    method: &str,
    params: Json,
) -> Result<RawJson, AgentFailure> {
    let params = match method {
        OPTIONS_METHOD => client_params(opener, &in_own_folder(&opener.launch(), params))?,
        _ => client_params(opener, &params)?,
    };
    let lease = opener.process_for(client.as_ref()).await?;
    let process = lease.process();
    let result = process.call_for(Some(client), method, &params, CLIENT_CALL_TIMEOUT).await?;
    let principal = PrincipalKey::of_client(client.as_ref());
    match method {
        "authenticate" => {
            let method = splice::get_text(params.as_str(), &["methodId"]).map(Cow::into_owned);
            opener.authentication.record_sign_in(&principal, method);
        }
        "logout" => {
            opener.authentication.record_sign_out(&principal);
            let all = opener.pool.all_of(&principal);
            let others = all.iter().filter(|other| !Arc::ptr_eq(other, process));
            // Only the result of the process that the client called is returned.
            let calls = others.map(|other| other.call(method, &params, SERVER_CALL_TIMEOUT));
            for failure in join_all(calls).await.into_iter().filter_map(Result::err) {
                tracing::warn!(
                    failure = failure.text(),
                    "a process of the agent did not sign out, and stays signed in until it ends"
                );
            }
        }
        _ => {}
    }
    Ok(result)
}

/// Params with the folder in which the agent works, if clients do not choose it: a session would open there too.
fn in_own_folder(launch: &Launch, params: Json) -> Json {
    if launch.folders.is_none() && launch.remote_cwd().is_none() {
        return params;
    }
    let folder = default_cwd(launch);
    let named =
        folder.to_str().and_then(|it| splice::set_text(params.as_str(), &[FOLDER_MEMBER], it));
    named.and_then(|it| Json::parse(it).ok()).unwrap_or(params)
}

/// A client's params, as the agent gets them.
fn client_params(opener: &SessionOpener, params: &Json) -> Result<RawJson, AgentFailure> {
    let params = RawJson::parse(params.as_bytes().clone()).map_err(|error| {
        AgentFailure::local(Code::InvalidJson, format!("the params are not JSON: {error}"))
    })?;
    Ok(for_agent(params, opener.launch().client_meta))
}

/// Notifies an agent. One that has exited or reads nothing is skipped.
async fn notify(process: &Process, method: &str, params: &RawJson) {
    drop(timeout(NOTIFY_TIMEOUT, process.peer().notify(method, params)).await);
}

fn with_session_id(params: &RawJson, session: &Session) -> RawJson {
    let put = splice::put_session(params.as_str(), session.remote());
    let put = put.filter(|put| serde_json::from_str::<&RawValue>(put).is_ok());
    put.and_then(|put| RawJson::parse(put).ok()).unwrap_or_else(|| params.clone())
}
