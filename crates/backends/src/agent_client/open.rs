//! Opening the session of a thread: in its process, with authentication where the agent asks for it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::{Code, Error, Json};
use trilogue_runtime::{Client, ClientProfile, RunContext, ThreadContext};
use trilogue_sdk::agent_client::peer::RawJson;
use trilogue_wire::agent_client::{Meta, splice};

use super::pool::Wanted;
use super::process::{Process, Use};
use super::profile::Profile;
use super::session::{Opener, Session, Site};
use super::threads::{Agreed, State};
use super::trouble::Trouble;
use super::working::Working;
use super::{Authenticated, Inner, Launch, Processes, lock};

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

    /// A process for clients like this one, which belongs to no thread. Where it has to be started, that is where the client's first session will work, as far as anybody can tell: that session takes it over then.
    pub(super) async fn process_for(&self, client: &dyn Client) -> Result<Use, Trouble> {
        let launch = self.launch();
        let profile = Profile::of(&launch, Some(client.profile()));
        let cwd = match client.folder().filter(|_| follows_client(&launch)) {
            Some(folder) if is_folder(folder).await => folder.to_owned(),
            _ => default_cwd(&launch),
        };
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

    /// Begins a new session for a thread. `agreed` is what its binding keeps, where there was a session before.
    pub(super) async fn begin(
        &self,
        thread: &ThreadContext,
        whom: Whom<'_>,
        state: &mut State,
        agreed: Option<Agreed>,
        how: Authenticates,
    ) -> Result<Working, Trouble> {
        let is_another = agreed.is_some();
        let agreed = agreed.unwrap_or_default();
        let remembered = agreed.auth_method.clone();
        let (opener, used) = self.opener(thread, whom, state, agreed).await?;
        let session = match opener.clone().begin().await {
            Err(trouble) if trouble.wants_authentication() => {
                let how = (how, remembered.as_deref());
                self.authenticate_for(whom.caller, &opener.process, trouble, how).await?;
                opener.begin().await?
            }
            begun => begun?,
        };
        if is_another {
            self.settle(thread, &session).await?;
        }
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
        let remembered = agreed.auth_method.clone();
        let (opener, used) = self.opener(thread, whom, state, agreed.clone()).await?;
        if !opener.process.opens_again() {
            // Its place is free for the other one.
            drop((opener, used));
            let session = self.begin(thread, whom, state, Some(agreed), how).await?;
            let forgot = Some("the agent cannot open its sessions again".to_owned());
            return Ok(Reopened { session, forgot });
        }
        let reopened = match opener.clone().reopen(remote).await {
            Err(trouble) if trouble.wants_authentication() => {
                let how = (how, remembered.as_deref());
                self.authenticate_for(whom.caller, &opener.process, trouble, how).await?;
                opener.clone().reopen(remote).await
            }
            reopened => reopened,
        };
        drop(opener);
        match reopened {
            Ok(session) => {
                self.settle(thread, &session).await?;
                Ok(Reopened { session: keep(thread, state, session, used), forgot: None })
            }
            Err(trouble) if trouble.is_refusal() && !trouble.wants_authentication() => {
                let forgot =
                    Some(format!("the agent did not open its session again: {}", trouble.text()));
                let session = self.begin(thread, whom, state, Some(agreed), how).await?;
                Ok(Reopened { session, forgot })
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Authenticates with the agent of a run, which asked for it with `trouble`.
    pub(super) async fn authenticate(
        &self,
        context: &RunContext,
        process: &Process,
        trouble: Trouble,
    ) -> Result<(), Trouble> {
        let binding = context.thread_context().binding().await?;
        let agreed = binding.map(|binding| Agreed::read(&binding.capabilities));
        let remembered = agreed.and_then(|agreed| agreed.auth_method);
        let how = (Authenticates::Always, remembered.as_deref());
        self.authenticate_for(None, process, trouble, how).await
    }

    /// The same. `remembered` is the way that was chosen when the session was opened first; one that the agent has no more, or refuses by now, is for the client to choose anew.
    async fn authenticate_for(
        &self,
        caller: Option<&Arc<dyn Client>>,
        process: &Process,
        trouble: Trouble,
        (how, remembered): (Authenticates, Option<&str>),
    ) -> Result<(), Trouble> {
        const METHOD: &str = "authenticate";
        if *lock(&self.authenticated) == Authenticated::LoggedOut {
            // Only somebody who signs in ends that.
            return Err(trouble);
        }
        let launch = self.launch();
        let remembered = remembered.filter(|method| process.has_auth_method(method));
        let known = self.chosen(None);
        let is_remembered = launch.auth_method.is_none() && known.is_none();
        let chosen = launch.auth_method.clone().or_else(|| self.chosen(remembered));
        let method = match how {
            Authenticates::Always => process.auth_method(chosen.as_deref()).map(str::to_owned),
            Authenticates::AsChosen => chosen,
        };
        let Some(method) = method else { return Err(trouble) };
        let params = json!({ "methodId": method });
        match process.call_for(caller, METHOD, &params, CALL_TIMEOUT).await {
            Ok(_) => {}
            Err(refused)
                if refused.is_refusal() && is_remembered && how == Authenticates::AsChosen =>
            {
                return Err(trouble);
            }
            Err(refused) => return Err(refused.of(process.agent(), METHOD)),
        }
        *lock(&self.authenticated) = Authenticated::By(method);
        Ok(())
    }

    /// The way to authenticate that was chosen last; the one that a thread remembers where none was in this life of the server.
    fn chosen(&self, remembered: Option<&str>) -> Option<String> {
        match &*lock(&self.authenticated) {
            Authenticated::By(method) => Some(method.clone()),
            Authenticated::NotYet => remembered.map(str::to_owned),
            Authenticated::LoggedOut => None,
        }
    }

    /// What a binding keeps of a session.
    pub(super) fn agreed(&self, session: &Session, remembered: Option<&str>) -> Agreed {
        Agreed { auth_method: self.chosen(remembered), ..session.agreed() }
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
        let own = state.session.as_ref().and_then(|session| session.seat());
        let (used, seat) = self.pool.of_thread(wanted, thread.key(), own).await?;
        let process = Arc::clone(used.process());
        process.child().hide(secrets(&site.servers).iter().map(String::as_str));
        let (thread, rules) = (thread.clone(), Arc::clone(&self.rules));
        let caller = whom.caller.cloned();
        let more = state.opening.as_ref().and_then(beyond_site);
        let attached = more.as_ref().map(attached).unwrap_or_default();
        process.child().hide(attached.iter().map(String::as_str));
        let opening = Arc::new(self.pool.opening());
        let opener =
            Opener { process, launch, thread, rules, site, more, seat, caller, _opening: opening };
        Ok((opener, used))
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

/// What an opening says beyond the session, where it works and with which servers. The other spellings are those that some agents read as the same.
fn beyond_site(opening: &Json) -> Option<Json> {
    const KNOWN: [&str; 7] = [
        "sessionId",
        "session_id",
        "cwd",
        "mcpServers",
        "mcp_servers",
        "additionalDirectories",
        "additional_directories",
    ];
    let more = KNOWN.iter().fold(Cow::Borrowed(opening.as_str()), |more, name| {
        Cow::Owned(splice::remove(&more, &[name]).into_owned())
    });
    Json::parse(more.into_owned()).ok()
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

/// Whether a process is started where its client says.
fn follows_client(launch: &Launch) -> bool {
    launch.processes == Processes::Thread && launch.cwd.is_none() && launch.folders.is_none()
}

async fn is_folder(path: &Path) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|found| found.is_dir())
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

/// The texts that a client attached: there may be tokens among them.
fn attached(more: &Json) -> Vec<String> {
    let meta = splice::get(more.as_str(), &[Meta::KEY]);
    let mut values: Vec<Value> =
        meta.and_then(|it| serde_json::from_str(it).ok()).into_iter().collect();
    let mut texts = Vec::new();
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) => texts.push(text),
            Value::Array(items) => values.extend(items),
            Value::Object(members) => values.extend(members.into_iter().map(|(_, value)| value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
}

/// A result as the runtime carries it: what is no JSON that we keep, or nothing, is an empty object.
pub(super) fn json_of(text: RawJson) -> Json {
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
