//! Opening the session of a thread: in its process, with authentication where the agent asks for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::{Code, Error, Json};
use trilogue_runtime::{Client, ClientProfile, ThreadContext};
use trilogue_sdk::agent_client::peer::Text;
use trilogue_wire::agent_client::splice;

use super::pool::Wanted;
use super::process::{Process, Use};
use super::profile::Profile;
use super::session::{Opener, Session, Site};
use super::threads::{Agreed, State};
use super::trouble::Trouble;
use super::working::Working;
use super::{Inner, Launch, Processes, lock};

/// How long a call that a client puts through may take: a person may have to sign in somewhere.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long an agent may take to close or delete a session.
pub(super) const CLOSING: Duration = Duration::from_secs(5);

/// Whether the agent is authenticated with without anybody being asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Authenticates {
    /// By the agent's first own way, or the configured one.
    Always,
    /// Only by the configured way, or one that a client chose before: the client chooses for itself.
    AsChosen,
}

/// Whom a session is opened for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whom<'a> {
    profile: Option<&'a ClientProfile>,
    /// Who asked for it, and is asked about it.
    caller: Option<&'a Arc<dyn Client>>,
}

/// A session that had to be opened anew, and why.
#[derive(Debug)]
pub(super) struct Reopened {
    pub(super) session: Working,
    /// Why the agent does not remember what was said; `None` where it does.
    pub(super) forgot: Option<String>,
}

// === impl Inner ===

impl Inner {
    pub(super) fn launch(&self) -> Arc<Launch> {
        Arc::clone(&lock(&self.launch))
    }

    /// A process for clients of this profile, which belongs to no thread.
    pub(super) async fn process_for(&self, client: &ClientProfile) -> Result<Use, Trouble> {
        let launch = self.launch();
        let (profile, cwd) = (Profile::of(&launch, Some(client)), default_cwd(&launch));
        self.pool.any(Wanted { launch, profile, cwd }).await
    }

    /// The session that a thread is bound to, where it is open, and as its client wants it by now or cannot be opened in another way.
    pub(super) async fn as_it_is(
        &self,
        thread: &ThreadContext,
        state: &mut State,
        (remote, agreed): (&str, &Agreed),
    ) -> Result<Option<Working>, Trouble> {
        let Some(session) = state.working(remote) else { return Ok(None) };
        if state.opening == state.opened_with {
            return Ok(Some(session));
        }
        let launch = self.launch();
        let site = self.site(&launch, thread, state.opening.as_ref(), agreed.clone()).await?;
        if *session.site() == site {
            state.opened_with.clone_from(&state.opening);
            return Ok(Some(session));
        }
        // What cannot be opened must not end what is open.
        check_cwd(&launch, &site).await?;
        if session.is_at_work_but_for(1) || !session.process().opens_again() {
            return Ok(Some(session));
        }
        end(&session, false).await;
        session.close();
        state.session = None;
        Ok(None)
    }

    /// Begins a new session for a thread.
    pub(super) async fn begin(
        &self,
        thread: &ThreadContext,
        whom: Whom<'_>,
        state: &mut State,
        agreed: Agreed,
        how: Authenticates,
    ) -> Result<Working, Trouble> {
        let (opener, used) = self.opener(thread, whom, state, agreed).await?;
        let session = match opener.clone().begin().await {
            Err(trouble) if trouble.wants_authentication() => {
                self.authenticate_for(whom.caller, &opener.process, trouble, how).await?;
                opener.begin().await?
            }
            begun => begun?,
        };
        Ok(keep(thread, state, session, used))
    }

    /// Opens the session that a thread is bound to again; where the agent cannot, or does not know it any more, begins another.
    pub(super) async fn reopen(
        &self,
        thread: &ThreadContext,
        whom: Whom<'_>,
        state: &mut State,
        (remote, agreed): (&str, Agreed),
        how: Authenticates,
    ) -> Result<Reopened, Trouble> {
        let (opener, used) = self.opener(thread, whom, state, agreed.clone()).await?;
        if !opener.process.opens_again() {
            let session = self.begin(thread, whom, state, agreed, how).await?;
            let forgot = Some("the agent cannot open its sessions again".to_owned());
            return Ok(Reopened { session, forgot });
        }
        let reopened = match opener.clone().reopen(remote).await {
            Err(trouble) if trouble.wants_authentication() => {
                self.authenticate_for(whom.caller, &opener.process, trouble, how).await?;
                opener.reopen(remote).await
            }
            reopened => reopened,
        };
        match reopened {
            Ok(session) => {
                Ok(Reopened { session: keep(thread, state, session, used), forgot: None })
            }
            Err(trouble @ Trouble::Refused(_)) if !trouble.wants_authentication() => {
                let forgot =
                    Some(format!("the agent did not open its session again: {}", trouble.text()));
                let session = self.begin(thread, whom, state, agreed, how).await?;
                Ok(Reopened { session, forgot })
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Authenticates with the agent, which asked for it with `trouble`.
    pub(super) async fn authenticate(
        &self,
        process: &Process,
        trouble: Trouble,
        how: Authenticates,
    ) -> Result<(), Trouble> {
        self.authenticate_for(None, process, trouble, how).await
    }

    async fn authenticate_for(
        &self,
        caller: Option<&Arc<dyn Client>>,
        process: &Process,
        trouble: Trouble,
        how: Authenticates,
    ) -> Result<(), Trouble> {
        let launch = self.launch();
        let chosen = lock(&self.authenticated).clone();
        let chosen = launch.auth_method.clone().or(chosen);
        let method = match how {
            Authenticates::Always => process.auth_method(chosen.as_deref()).map(str::to_owned),
            Authenticates::AsChosen => chosen,
        };
        let Some(method) = method else { return Err(trouble) };
        let params = json!({ "methodId": method });
        process.call_for(caller, "authenticate", &params, CALL_TIMEOUT).await?;
        *lock(&self.authenticated) = Some(method);
        Ok(())
    }

    async fn opener(
        &self,
        thread: &ThreadContext,
        whom: Whom<'_>,
        state: &State,
        agreed: Agreed,
    ) -> Result<(Opener, Use), Trouble> {
        let launch = self.launch();
        let site = self.site(&launch, thread, state.opening.as_ref(), agreed).await?;
        check_cwd(&launch, &site).await?;
        let (profile, cwd) = (Profile::of(&launch, whom.profile), place(&launch, &site));
        let wanted = Wanted { launch: Arc::clone(&launch), profile, cwd };
        let used = self.pool.of_thread(wanted, thread.key()).await?;
        let process = Arc::clone(used.process());
        process.child().hide(secrets(&site.servers).iter().map(String::as_str));
        let (thread, rules) = (thread.clone(), Arc::clone(&self.rules));
        let caller = whom.caller.cloned();
        Ok((Opener { process, launch, thread, rules, site, caller }, used))
    }

    /// Where a session works: in a folder of ours, or where its client says, or where it worked before, or where the agent is started.
    async fn site(
        &self,
        launch: &Launch,
        thread: &ThreadContext,
        opening: Option<&Json>,
        agreed: Agreed,
    ) -> Result<Site, Trouble> {
        let given = opening.and_then(Site::given);
        let cwd = match &launch.folders {
            Some(folders) => {
                folders.prepare(thread.tenant(), thread.thread(), thread.key()).await?
            }
            None => given.or(agreed.cwd).unwrap_or_else(|| default_cwd(launch)),
        };
        // A client gives all of it each time.
        let Some(opening) = opening else {
            return Ok(Site { cwd, directories: agreed.directories, servers: Value::Null });
        };
        let member = |name: &str| {
            let raw = splice::get(opening.as_str(), &[name])?;
            serde_json::from_str::<Value>(raw).ok()
        };
        let directories = member("additionalDirectories").unwrap_or_default();
        Ok(Site { cwd, directories, servers: member("mcpServers").unwrap_or_default() })
    }
}

fn keep(thread: &ThreadContext, state: &mut State, session: Session, used: Use) -> Working {
    let session = Arc::new(session);
    session.process().serves(thread.key());
    state.opened_with.clone_from(&state.opening);
    if let Some(before) = state.session.replace(Arc::clone(&session)) {
        before.close();
        if before.is_open() && before.remote() != session.remote() {
            // What the agent keeps of it is of no use any more.
            tokio::spawn(async move {
                let _used = before.process().hold();
                end(&before, false).await;
            });
        }
    }
    Working::new(session, used)
}

/// Tells the agent that a session is over, in whatever way it can hear that.
pub(super) async fn end(session: &Session, for_good: bool) {
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

/// Where the process for a session is started.
fn place(launch: &Launch, site: &Site) -> PathBuf {
    if launch.processes == Processes::Shared {
        return default_cwd(launch);
    }
    match &launch.cwd {
        Some(cwd) if launch.folders.is_none() => cwd.clone(),
        _ => site.cwd.clone(),
    }
}

/// Passes when the folder that a client chose is there, where this server works in it too. That it is not is no fault of the agent.
async fn check_cwd(launch: &Launch, site: &Site) -> Result<(), Trouble> {
    let is_chosen = launch.folders.is_none() && launch.cwd.as_ref() != Some(&site.cwd);
    // Elsewhere, such as in a container, only the agent can tell.
    let is_ours = place(launch, site) == site.cwd || !launch.grants.is_empty();
    if !is_chosen || !is_ours {
        return Ok(());
    }
    let why = match tokio::fs::metadata(&site.cwd).await {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "it is no folder".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("the session cannot work in '{}': {why}", site.cwd.display());
    let hint =
        "make that folder on this server, or open the session with the `cwd` of one that is there";
    Err(Error::new(Code::InvalidRequest, message).hint(hint).into())
}

fn default_cwd(launch: &Launch) -> PathBuf {
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    launch.cwd.clone().unwrap_or_else(here)
}

/// What a client gave its servers for tools that nobody else is to see: what they find in their environment, and what they are sent with each request.
fn secrets(servers: &Value) -> Vec<String> {
    let lists = servers.as_array().into_iter().flatten();
    let entries = lists.flat_map(|server| ["env", "headers"].map(|name| server.get(name)));
    let entries = entries.flatten().filter_map(Value::as_array).flatten();
    let values = entries.filter_map(|entry| entry.get("value")?.as_str());
    let mut secrets = Vec::new();
    for value in values {
        secrets.push(value.to_owned());
        // `Bearer` stands before what is secret.
        if let Some((_, token)) = value.split_once(' ') {
            secrets.push(token.trim().to_owned());
        }
    }
    secrets
}

/// A result as the runtime carries it: what is no JSON that we keep, or nothing, is an empty object.
pub(super) fn json_of(text: Text) -> Json {
    if text.as_str() == "null" {
        return Json::empty_object();
    }
    Json::parse(text.into_bytes()).unwrap_or_else(|_| Json::empty_object())
}

// === impl Whom ===

impl<'a> Whom<'a> {
    /// Somebody who asks for it.
    pub(super) fn caller(caller: &'a Arc<dyn Client>) -> Self {
        Self { profile: Some(caller.profile()), caller: Some(caller) }
    }

    /// A run, whose client is this.
    pub(super) fn run(profile: Option<&'a ClientProfile>) -> Self {
        Self { profile, caller: None }
    }
}
