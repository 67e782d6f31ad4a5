//! The servers of agents elsewhere, by the settings of the agents.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use trilogue_backends::child::{Children, InvalidSetting};
use trilogue_backends::remote::server::{AgentServer, DEFAULT_URL, Probe, ServerLaunch};
use trilogue_backends::workspace::PrivatePaths;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};

use super::hosted::{add_caches, sandbox};
use crate::config::{self, AgentKind};
use crate::local::private_paths::private_paths;

/// How long the start of this server waits for servers that it starts. A slower one is used as soon as it answers.
const START_WAIT: Duration = Duration::from_secs(10);

/// One server for each address and each command, by the names of its agents.
#[derive(Debug, Default)]
pub(crate) struct AgentServers(HashMap<String, Arc<AgentServer>>);

/// Two agents with equal keys share one server.
#[derive(Clone, PartialEq, Eq, Hash)]
enum ServerKey {
    Url(String),
    Command(Box<ServerLaunch>),
}

// === impl AgentServers ===

impl AgentServers {
    /// The servers of all agents. Nothing is started yet.
    pub(crate) fn of(options: &config::Options, children: &Arc<Children>) -> Result<Self> {
        let mut servers: HashMap<(ServerKey, Probe), Arc<AgentServer>> = HashMap::new();
        let mut by_agent = HashMap::new();
        let private = private_paths(options);
        for (name, agent) in &options.agents {
            let Some(probe) = probe(agent.kind) else { continue };
            let named = (&AgentName::parse(name)?, agent);
            let key = ServerKey::of(named, &private)?;
            let server = match servers.get(&(key.clone(), probe)) {
                Some(server) => Arc::clone(server),
                None => {
                    let server = key.server(named, children, probe)?;
                    servers.insert((key, probe), Arc::clone(&server));
                    server
                }
            };
            by_agent.insert(name.clone(), server);
        }
        Ok(Self(by_agent))
    }

    /// Starts all that are started here, at once, and waits for them, for at most [`START_WAIT`].
    pub(crate) async fn start(&self) {
        self.0.values().for_each(|server| server.start());
        let settled = join_all(self.0.values().map(|server| server.wait_for_start()));
        if timeout(START_WAIT, settled).await.is_err() {
            tracing::warn!("some servers of agents need long to start; their agents wait for them");
        }
    }

    /// Whether two agents share one server.
    pub(crate) fn is_same(&self, one: &str, other: &str) -> bool {
        let (one, other) = (self.0.get(one), self.0.get(other));
        one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// The server of an agent.
    pub(crate) fn get(&self, agent: &AgentName) -> Result<Arc<AgentServer>> {
        let server = self.0.get(agent.as_str()).map(Arc::clone);
        server.ok_or_else(|| Error::new(Code::Internal, format!("'{agent}' has no server")))
    }
}

/// How a server of agents of this kind shows that it is there; `None` for a kind without servers.
fn probe(kind: AgentKind) -> Option<Probe> {
    match kind {
        AgentKind::AgentCommunication => Some(Probe::Ping),
        AgentKind::AgentConnect => Some(Probe::AgentSearch),
        AgentKind::Builtin | AgentKind::AgentClient => None,
    }
}

// === impl ServerKey ===

impl ServerKey {
    fn of((name, agent): (&AgentName, &config::Agent), private: &PrivatePaths) -> Result<Self> {
        if !agent.command.0.is_empty() {
            return launch(name, agent, private).map(|launch| Self::Command(Box::new(launch)));
        }
        let Some(url) = agent.url.clone() else {
            let message = format!("`agents.{name}` has no `url`");
            return Err(Error::new(Code::InvalidRequest, message).hint(format!(
                "name the address of the agent's server, such as url = \"http://127.0.0.1:8000\", or the `command` that starts it, in [agents.{name}]"
            )));
        };
        // Checked here, so that the error names the setting.
        AgentServer::at(&url, Probe::Ping).map_err(|error| wrong(name, "url", error.message()))?;
        Ok(Self::Url(url.trim_end_matches('/').to_owned()))
    }

    fn server(
        &self,
        (name, agent): (&AgentName, &config::Agent),
        children: &Arc<Children>,
        probe: Probe,
    ) -> Result<Arc<AgentServer>> {
        match self {
            Self::Url(url) => AgentServer::at(url, probe),
            Self::Command(launch) => {
                let mut launch = (**launch).clone();
                // Named for the first agent, these are not part of the key.
                add_caches((name, agent), &mut launch.sandbox, &mut launch.env);
                Ok(AgentServer::of_command(name.as_str(), launch, Arc::clone(children), probe))
            }
        }
    }
}

fn launch(name: &AgentName, agent: &config::Agent, private: &PrivatePaths) -> Result<ServerLaunch> {
    let cwd = agent.cwd.as_deref().unwrap_or(".");
    if cwd.contains("{thread}") {
        let why = "the agent's server is one process for all threads";
        return Err(wrong(name, "cwd", why).hint("name a folder without {thread}"));
    }
    let env = agent.env.iter().map(|(key, value)| (key.clone(), value.0.clone()));
    let launch = ServerLaunch {
        command: agent.command.0.clone(),
        cwd: PathBuf::from(cwd),
        env: env.collect(),
        inherit: agent.inherit.0.clone(),
        url: agent.url.clone().unwrap_or_else(|| DEFAULT_URL.to_owned()),
        start_timeout: agent.start_timeout.0,
        private: private.clone(),
        sandbox: sandbox(agent, None),
    };
    let checked = launch.check();
    checked.map_err(|InvalidSetting { key, why, hint }| wrong(name, key, &why).hint(hint))?;
    Ok(launch)
}

fn wrong(name: &AgentName, key: &str, why: &str) -> Error {
    Error::new(Code::InvalidRequest, format!("`agents.{name}.{key}`: {why}"))
}
