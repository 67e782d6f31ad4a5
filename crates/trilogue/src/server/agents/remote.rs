//! Agents of the kinds `agent-communication` and `agent-connect`, by their settings.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::{join_all, join3};
use trilogue_backends::agent_communication::CommunicationListing;
use trilogue_backends::agent_connect::{AgentDescription, ConnectListing};
use trilogue_backends::child::Children;
use trilogue_backends::remote::{Directory, Refresh, RemoteTransport};
use trilogue_backends::{AgentCommunication, AgentConnect, Remote};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, AgentName, Json};
use trilogue_mapping::connect as mapping;
use trilogue_runtime::Backend;
use trilogue_sdk::client::Credential;
use trilogue_wire::agent_communication::AgentManifest;

use super::agent_servers::AgentServers;
use super::of_setting;
use super::refresh::RefreshSchedule;
use crate::config::{self, AgentKind, TokenAs};

/// The remote agents: their servers, and the descriptions that the servers sent.
#[derive(Debug, Default)]
pub(crate) struct RemoteAgents {
    servers: AgentServers,
    /// By the names under which the agents are served here.
    manifests: HashMap<String, AgentManifest>,
    descriptions: HashMap<String, AgentDescription>,
    /// The entries that name all agents of a server.
    directories: Vec<DirectoryEntry>,
}

#[derive(Debug)]
struct DirectoryEntry {
    name: String,
    schedule: RefreshSchedule,
    found: Vec<Arc<dyn Backend>>,
}

// === impl RemoteAgents ===

impl RemoteAgents {
    /// Builds the servers without a request to any of them.
    pub(crate) fn build(options: &config::Options, children: &Arc<Children>) -> Result<Self> {
        let servers = AgentServers::of(options, children)?;
        Ok(Self { servers, ..Self::default() })
    }

    /// Starts the servers that this process runs, then requests the descriptions of their agents from all servers at once. For a server without a description,
    /// the log gets a warning and its agent is served anyway.
    pub(crate) async fn find(options: &config::Options, children: &Arc<Children>) -> Result<Self> {
        let mut found = Self::build(options, children)?;
        found.servers.start().await;
        let (mut manifests, mut descriptions, mut listed) = (Vec::new(), Vec::new(), Vec::new());
        for (key, agent) in &options.agents {
            let name = AgentName::parse(key)?;
            match agent.kind {
                _ if agent.agents.is_some() => {
                    listed.push(found.directory(key, agent, options)?.ask());
                }
                AgentKind::AgentCommunication => {
                    let remote = communication(&name, agent, None, &found)?;
                    manifests.push(async move { (key, remote.manifest().await) });
                }
                AgentKind::AgentConnect => {
                    let remote = connect(&name, agent, None, &found)?;
                    descriptions.push(async move { (key, remote.description().await) });
                }
                AgentKind::Builtin | AgentKind::AgentClient => {}
            }
        }
        let (manifests, descriptions, directories) =
            join3(join_all(manifests), join_all(descriptions), join_all(listed)).await;
        found.directories = directories;
        found.manifests = answered_servers(manifests);
        found.descriptions = answered_servers(descriptions);
        Ok(found)
    }

    /// The agents that the server of an entry listed, which names all of them.
    pub(crate) fn agents_of_entry(&self, entry: &str) -> Vec<Arc<dyn Backend>> {
        let entry = self.directories.iter().find(|it| it.name == entry);
        entry.map(|it| it.found.clone()).unwrap_or_default()
    }

    /// Whether the server of an agent has sent its description.
    pub(crate) fn has_description(&self, agent: &AgentName) -> bool {
        let name = agent.as_str();
        let is_complete = |it: &AgentDescription| it.is_complete;
        self.manifests.contains_key(name) || self.descriptions.get(name).is_some_and(is_complete)
    }

    /// The entries that name all agents of a server, to be asked for now and then.
    pub(crate) fn into_schedules(self) -> impl Iterator<Item = RefreshSchedule> {
        self.directories.into_iter().map(|entry| entry.schedule)
    }

    fn directory(
        &self,
        name: &str,
        agent: &config::Agent,
        options: &config::Options,
    ) -> Result<DirectoryEntry> {
        let entry = AgentName::parse(name)?;
        let server = self.servers.get(&entry)?;
        let named = options
            .agents
            .iter()
            .filter(|(other, agent)| agent.agents.is_none() && self.servers.is_same(other, name));
        let left_out = named
            .map(|(other, agent)| agent.name.as_ref().or(agent.agent.as_ref()).unwrap_or(other))
            .cloned()
            .collect();
        let credential = credential(&entry, agent)?;
        let transport = Arc::new(RemoteTransport { server, credential });
        let (over, prefix) = (Arc::clone(&transport), &agent.prefix);
        let refresh: Box<dyn Refresh> = match agent.kind {
            AgentKind::AgentConnect => {
                let listing = ConnectListing::new(&transport);
                Box::new(Directory::new(over, listing, prefix, left_out))
            }
            _ => {
                let listing = CommunicationListing::new(&transport);
                Box::new(Directory::new(over, listing, prefix, left_out))
            }
        };
        let schedule = RefreshSchedule { refresh, interval: agent.refresh.0, is_known: false };
        Ok(DirectoryEntry { name: name.to_owned(), schedule, found: Vec::new() })
    }
}

// === impl DirectoryEntry ===

impl DirectoryEntry {
    /// Asks the server for its agents.
    async fn ask(mut self) -> Self {
        match self.schedule.refresh.refresh().await {
            Ok(found) => (self.found, self.schedule.is_known) = (found, true),
            Err(error) => tracing::warn!(agents = self.name, "{error}"),
        }
        self
    }
}

/// Returns the descriptions that servers sent. Logs a warning for each server that sent none.
fn answered_servers<T>(answers: Vec<(&String, Result<T>)>) -> HashMap<String, T> {
    let said = answers.into_iter().filter_map(|(name, answer)| match answer {
        Ok(said) => Some((name.clone(), said)),
        Err(error) => {
            tracing::warn!(agent = name, "{error}");
            None
        }
    });
    said.collect()
}

pub(super) fn communication(
    name: &AgentName,
    agent: &config::Agent,
    descriptor: Option<&Json>,
    elsewhere: &RemoteAgents,
) -> Result<AgentCommunication> {
    let remote = remote(name, agent, agent.name.as_ref(), elsewhere)?;
    let manifest = elsewhere.manifests.get(name.as_str());
    let mut built = AgentCommunication::new(name.clone(), remote, manifest);
    if let Some(description) = &agent.description {
        built = built.with_description(description.clone());
    }
    Ok(match configured_card(name, descriptor, built.card())? {
        Some(card) => built.with_card(card),
        None => built,
    })
}

pub(super) fn connect(
    name: &AgentName,
    agent: &config::Agent,
    descriptor: Option<&Json>,
    elsewhere: &RemoteAgents,
) -> Result<AgentConnect> {
    let remote = remote(name, agent, agent.agent.as_ref(), elsewhere)?;
    let description = elsewhere.descriptions.get(name.as_str()).cloned();
    let mut built = AgentConnect::new(name.clone(), remote, agent.version.clone(), description);
    if let Some(description) = &agent.description {
        built = built.with_description(description.clone());
    }
    Ok(match configured_card(name, descriptor, built.card())? {
        Some(card) => built.with_card(card),
        None => built,
    })
}

/// Returns a remote agent. Its name on its server is its name here, unless the settings have another.
fn remote(
    name: &AgentName,
    agent: &config::Agent,
    named: Option<&String>,
    elsewhere: &RemoteAgents,
) -> Result<Remote> {
    Ok(Remote {
        server: elsewhere.servers.get(name)?,
        agent: named.cloned().unwrap_or_else(|| name.as_str().to_owned()),
        credential: credential(name, agent)?,
    })
}

/// The card with the descriptor of the settings.
fn configured_card(
    name: &AgentName,
    descriptor: Option<&Json>,
    card: &AgentCard,
) -> Result<Option<AgentCard>> {
    let Some(descriptor) = descriptor else { return Ok(None) };
    let card = mapping::card(descriptor, card.clone());
    card.map(Some).map_err(|error| of_setting(name, &error))
}

pub(super) fn credential(name: &AgentName, agent: &config::Agent) -> Result<Option<Credential>> {
    let setting = format!("agents.{name}.token");
    let Some(token) = config::secret_text(&setting, &agent.token_env, &agent.token_file)? else {
        return Ok(None);
    };
    Ok(Some(match &agent.token_as {
        TokenAs::Bearer => Credential::Bearer(token),
        TokenAs::ApiKey => Credential::ApiKey(token),
        TokenAs::Header(name) => Credential::Header(name.clone(), token),
    }))
}
