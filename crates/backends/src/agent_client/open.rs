//! Opening the session of a thread: in its process, with authentication where the agent asks for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::{Json, ThreadId};
use trilogue_runtime::{ClientProfile, ThreadContext};
use trilogue_sdk::agent_client::peer::Text;
use trilogue_wire::agent_client::splice;

use super::process::Process;
use super::profile::Profile;
use super::session::{Opener, Session, Site};
use super::threads::{Agreed, State};
use super::trouble::Trouble;
use super::{Inner, Launch, lock};

/// How long a call that a client puts through may take: a person may have to sign in somewhere.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Whether the agent is authenticated with without anybody being asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Authenticates {
    /// By the agent's first own way, or the configured one.
    Always,
    /// Only by the configured way, or one that a client chose before: the client chooses for itself.
    AsChosen,
}

/// A session that had to be opened anew, and why.
#[derive(Debug)]
pub(super) struct Reopened {
    pub(super) session: Arc<Session>,
    /// Why the agent does not remember what was said; `None` where it does.
    pub(super) forgot: Option<String>,
}

// === impl Inner ===

impl Inner {
    pub(super) fn launch(&self) -> Arc<Launch> {
        Arc::clone(&lock(&self.launch))
    }

    /// A process of this profile, which belongs to no thread yet.
    pub(super) async fn process_for(
        &self,
        client: Option<&ClientProfile>,
    ) -> Result<Arc<Process>, Trouble> {
        let launch = self.launch();
        let profile = Profile::of(&launch, client);
        let cwd = default_cwd(&launch);
        self.pool.any(&launch, profile, &cwd).await
    }

    /// Begins a new session for a thread.
    pub(super) async fn begin(
        &self,
        thread: &ThreadContext,
        client: Option<&ClientProfile>,
        state: &mut State,
        agreed: Agreed,
        how: Authenticates,
    ) -> Result<Arc<Session>, Trouble> {
        let opener = self.opener(thread, client, state, agreed).await?;
        let session = match opener.clone().begin().await {
            Err(trouble) if trouble.wants_authentication() => {
                self.authenticate(&opener.process, trouble, how).await?;
                opener.begin().await?
            }
            begun => begun?,
        };
        Ok(self.keep(state, session))
    }

    /// Opens the session that a thread is bound to again; where the agent cannot, or does not know it any more, begins another.
    pub(super) async fn reopen(
        &self,
        thread: &ThreadContext,
        client: Option<&ClientProfile>,
        state: &mut State,
        (remote, agreed): (&str, Agreed),
        how: Authenticates,
    ) -> Result<Reopened, Trouble> {
        let opener = self.opener(thread, client, state, agreed.clone()).await?;
        if !opener.process.opens_again() {
            let session = self.begin(thread, client, state, agreed, how).await?;
            let forgot = Some("the agent cannot open its sessions again".to_owned());
            return Ok(Reopened { session, forgot });
        }
        let reopened = match opener.clone().reopen(remote).await {
            Err(trouble) if trouble.wants_authentication() => {
                self.authenticate(&opener.process, trouble, how).await?;
                opener.reopen(remote).await
            }
            reopened => reopened,
        };
        match reopened {
            Ok(session) => Ok(Reopened { session: self.keep(state, session), forgot: None }),
            Err(trouble @ Trouble::Refused(_)) if !trouble.wants_authentication() => {
                let forgot =
                    Some(format!("the agent did not open its session again: {}", trouble.text()));
                let session = self.begin(thread, client, state, agreed, how).await?;
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
        let launch = self.launch();
        let chosen = lock(&self.authenticated).clone();
        let chosen = launch.auth_method.clone().or(chosen);
        let method = match how {
            Authenticates::Always => process.auth_method(chosen.as_deref()).map(str::to_owned),
            Authenticates::AsChosen => chosen,
        };
        let Some(method) = method else { return Err(trouble) };
        process.call("authenticate", &json!({ "methodId": method }), CALL_TIMEOUT).await?;
        *lock(&self.authenticated) = Some(method);
        Ok(())
    }

    fn keep(&self, state: &mut State, session: Session) -> Arc<Session> {
        let session = Arc::new(session);
        state.session = Some(Arc::clone(&session));
        session
    }

    async fn opener(
        &self,
        thread: &ThreadContext,
        client: Option<&ClientProfile>,
        state: &State,
        agreed: Agreed,
    ) -> Result<Opener, Trouble> {
        let launch = self.launch();
        let site = self.site(&launch, thread.thread(), state.opening.as_ref(), agreed).await?;
        let profile = Profile::of(&launch, client);
        let process = self.pool.of_thread(&launch, profile, thread.thread(), &site.cwd).await?;
        let rules = Arc::clone(&self.rules);
        Ok(Opener { process, launch, thread: thread.clone(), rules, site })
    }

    /// Where a session works: in a folder of ours, or where its client says, or where it worked before, or where the agent is started.
    async fn site(
        &self,
        launch: &Launch,
        thread: &ThreadId,
        opening: Option<&Json>,
        agreed: Agreed,
    ) -> Result<Site, Trouble> {
        let given = opening.and_then(Site::given);
        let cwd = match &launch.folders {
            Some(folders) => folders.prepare(thread).await?,
            None => given.or(agreed.cwd).unwrap_or_else(|| default_cwd(launch)),
        };
        let member = |name: &str| {
            let raw = splice::get(opening?.as_str(), &[name])?;
            serde_json::from_str::<Value>(raw).ok().filter(|value| !value.is_null())
        };
        let directories = member("additionalDirectories").unwrap_or(agreed.directories);
        let servers = member("mcpServers").unwrap_or_default();
        Ok(Site { cwd, directories, servers })
    }

    /// What a binding keeps of a session that was opened so.
    pub(super) async fn agreed(&self, thread: &ThreadId, state: &State) -> Agreed {
        let launch = self.launch();
        match self.site(&launch, thread, state.opening.as_ref(), Agreed::default()).await {
            Ok(site) => Agreed { cwd: Some(site.cwd), directories: site.directories },
            Err(_) => Agreed::default(),
        }
    }
}

fn default_cwd(launch: &Launch) -> PathBuf {
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    launch.cwd.clone().unwrap_or_else(here)
}

/// A result as the runtime carries it: what is no object that we keep is an empty one.
pub(super) fn json(text: Text) -> Json {
    if text.as_str() == "null" {
        return Json::empty_object();
    }
    Json::parse(text.into_bytes()).unwrap_or_else(|_| Json::empty_object())
}
