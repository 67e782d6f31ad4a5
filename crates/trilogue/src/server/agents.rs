//! The agents that a server runs: the configured ones, and those of the program that embeds the server.

mod agent_servers;
mod announcement;
mod hosted;
mod network;
mod refresh;
mod remote;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use trilogue_backends::child::{ChildUsage, Children, Sandbox, SandboxMode};
use trilogue_backends::workspace::PrivatePaths;
use trilogue_backends::{NativeAgent, builtin};
use trilogue_domain::error::Result;
use trilogue_domain::port::PeerFinding;
use trilogue_domain::{AgentCard, AgentName, Code, Error, Json};
use trilogue_gateway::{AgentProcesses, Scheme};
use trilogue_mapping::{communication, connect};
use trilogue_runtime::Backend;
use trilogue_sdk::Agent;
use trilogue_wire::native::{AgentProcess, ProcessStderr};

use crate::config::{self, AgentKind, AllAgents, Mount, Protocol};
use crate::local::private_paths::private_paths;
use crate::server::descriptor::Descriptors;
use network::SharedNetwork;

pub(crate) use announcement::{Announcement, announce};
pub(crate) use refresh::{RefreshSchedule, RefreshTasks};
pub(crate) use remote::RemoteAgents;

/// Agents to serve. Collects agents of different types.
#[derive(Clone, Default)]
pub struct Agents(Vec<Arc<dyn Agent>>);

/// The processes of the agents that a server hosts.
#[derive(Debug)]
pub(crate) struct HostedProcesses(pub(crate) Arc<Children>);

impl AgentProcesses for HostedProcesses {
    fn has_process(&self, pid: u32) -> bool {
        self.0.has_process(pid)
    }

    fn find_peer(&self, peer: SocketAddr, server: SocketAddr) -> PeerFinding {
        self.0.find_peer(peer, server)
    }

    fn machine(&self) -> String {
        trilogue_backends::child::machine_name()
    }

    fn counts(&self) -> (usize, usize) {
        (self.0.count(), self.0.idle_count())
    }

    fn list(&self) -> Vec<AgentProcess> {
        let process = |ChildUsage { name, pid, memory_bytes, is_idle, layers }| AgentProcess {
            sandbox: layers.names().map(str::to_owned).collect(),
            agent: name,
            pid,
            memory_bytes,
            idle: is_idle,
        };
        self.0.usage().into_iter().map(process).collect()
    }

    fn stderr(&self, pid: u32) -> Option<ProcessStderr> {
        let (agent, text) = self.0.stderr(pid)?;
        Some(ProcessStderr { agent, pid, text })
    }
}

/// The agents of the configuration.
pub(crate) struct ConfiguredAgents {
    pub(crate) agents: Vec<Arc<dyn Backend>>,
    /// Those elsewhere that are asked for now and then.
    pub(crate) schedules: Vec<RefreshSchedule>,
}

/// Builds the agents of the configuration, without a request to any of them.
pub(crate) fn build_agents(
    options: &config::Options,
    descriptors: &Descriptors,
) -> Result<Vec<Arc<dyn Backend>>> {
    let children = Arc::default();
    let elsewhere = RemoteAgents::build(options, &children)?;
    build_agents_with(options, descriptors, &elsewhere, &children).map(|it| it.agents)
}

/// The same, with the processes of agents among these children.
pub(crate) fn build_agents_with(
    options: &config::Options,
    descriptors: &Descriptors,
    elsewhere: &RemoteAgents,
    children: &Arc<Children>,
) -> Result<ConfiguredAgents> {
    options.notify.check()?;
    let private = private_paths(options);
    let network = SharedNetwork::of(options)?;
    let mut all = ConfiguredAgents { agents: Vec::new(), schedules: Vec::new() };
    // The places of remote agents whose name for the Agent Connect Protocol comes from their server.
    let mut told = Vec::new();
    let mut origins = HashMap::new();
    for (name, agent) in &options.agents {
        agent.check_settings(&AgentName::parse(name)?)?;
        let (entry, schedule) = match agent.agents {
            Some(AllAgents::All) => (elsewhere.agents_of_entry(name), None),
            None => {
                let described = (descriptors.get(name), elsewhere);
                let (agent, schedule) =
                    build_agent(name, agent, described, (children, &private, &network))?;
                (vec![agent], schedule)
            }
        };
        note_origin(&mut origins, name, agent, &entry)?;
        let is_one = agent.kind.is_elsewhere() && agent.agents.is_none();
        if is_one && descriptors.get(name).is_none() {
            told.push((name, all.agents.len(), all.schedules.len()));
        }
        all.agents.extend(entry);
        all.schedules.extend(schedule);
    }
    // A conflicting name from another server does not prevent the start.
    told.retain(|(_, place, _)| is_reference_taken(&all.agents, *place));
    for (name, place, schedule) in told {
        tracing::warn!(
            agent = name,
            "another agent has the same name and version where the Agent Connect Protocol is served: it has its name here there too"
        );
        let (key, agent) = (AgentName::parse(name)?, &options.agents[name]);
        all.agents[place] = match agent.kind {
            AgentKind::AgentConnect => {
                let agent = remote::connect(&key, agent, None, elsewhere)?.with_own_name();
                let agent = Arc::new(agent);
                all.schedules[schedule].refresh = Box::new(Arc::clone(&agent));
                agent
            }
            _ => {
                let agent = remote::communication(&key, agent, None, elsewhere)?.with_own_name();
                let agent = Arc::new(agent);
                all.schedules[schedule].refresh = Box::new(Arc::clone(&agent));
                agent
            }
        };
    }
    Ok(all)
}

/// Records each agent's origin by its name; refuses a name that another agent has.
fn note_origin(
    origins: &mut HashMap<AgentName, String>,
    name: &str,
    settings: &config::Agent,
    agents: &[Arc<dyn Backend>],
) -> Result<()> {
    let origin = match settings.agents {
        Some(AllAgents::All) => format!("an agent of the server of `agents.{name}`"),
        None => format!("`agents.{name}`"),
    };
    for agent in agents {
        let name = agent.card().name.clone();
        if let Some(other) = origins.insert(name.clone(), origin.clone()) {
            let message = format!("two agents are called '{name}': {other} and {origin}");
            return Err(Error::new(Code::AlreadyExists, message)
                .hint("rename one, or set a `prefix` for all agents of a server"));
        }
    }
    Ok(())
}

/// Logs in which layers of a sandbox each hosted agent runs.
pub(crate) fn log_sandboxes(options: &config::Options) {
    for (agent, settings) in options.agents.iter().filter(|(_, it)| !it.command.0.is_empty()) {
        let (mode, network) = (settings.sandbox, settings.network.to_string());
        let sandbox = Sandbox { mode, limits: settings.limits.to_group(), ..Sandbox::default() };
        let layers = sandbox.layers();
        match (layers.is_any(), mode) {
            (true, _) => tracing::info!(agent, %layers, network, "the agent runs in a sandbox"),
            (false, SandboxMode::Off) => tracing::info!(agent, "the agent runs without a sandbox"),
            (false, _) => tracing::warn!(
                agent,
                "the agent runs without a sandbox: this machine has no layer of it"
            ),
        }
        if let Some(missing) = sandbox.missing_limit() {
            let hint = missing.hint;
            tracing::warn!(agent, %missing, hint, "not all `limits` of the agent are in force");
        }
    }
}

/// Whether another agent has the name and the version of the one at this place.
fn is_reference_taken(agents: &[Arc<dyn Backend>], place: usize) -> bool {
    let wanted = agents.get(place).map(|agent| reference(agent.as_ref()));
    let mut others = agents.iter().enumerate().filter(|(other, _)| *other != place);
    others.any(|(_, agent)| Some(reference(agent.as_ref())) == wanted)
}

/// The name and the version by which the Agent Connect Protocol finds an agent.
fn reference(agent: &dyn Backend) -> (String, String) {
    let card = agent.card();
    (connect::name(card).to_owned(), card.version.clone())
}

fn build_agent(
    name: &str,
    agent: &config::Agent,
    (descriptor, elsewhere): (Option<&Json>, &RemoteAgents),
    here: (&Arc<Children>, &PrivatePaths, &SharedNetwork),
) -> Result<(Arc<dyn Backend>, Option<RefreshSchedule>)> {
    let name = AgentName::parse(name)?;
    match agent.kind {
        AgentKind::Builtin => Ok((built_in(&name, agent, descriptor)?, None)),
        AgentKind::AgentClient => {
            Ok((Arc::new(hosted::build(&name, agent, descriptor, here)?), None))
        }
        AgentKind::AgentCommunication => {
            let built = Arc::new(remote::communication(&name, agent, descriptor, elsewhere)?);
            let schedule = RefreshSchedule {
                refresh: Box::new(Arc::clone(&built)),
                interval: agent.refresh.0,
                is_known: elsewhere.has_description(&name),
            };
            Ok((built, Some(schedule)))
        }
        AgentKind::AgentConnect => {
            let built = Arc::new(remote::connect(&name, agent, descriptor, elsewhere)?);
            let schedule = RefreshSchedule {
                refresh: Box::new(Arc::clone(&built)),
                interval: agent.refresh.0,
                is_known: elsewhere.has_description(&name),
            };
            Ok((built, Some(schedule)))
        }
    }
}

fn built_in(
    name: &AgentName,
    agent: &config::Agent,
    descriptor: Option<&Json>,
) -> Result<Arc<dyn Backend>> {
    let rules = hosted::rules(name, agent)?;
    let wanted = agent.builtin.as_deref().unwrap_or(name.as_str());
    let Some(found) = builtin::by_name(wanted, builtin::Options::default()) else {
        let error = Error::new(
            Code::InvalidRequest,
            format!("unknown built-in agent '{}' for `agents.{name}`", wanted.escape_debug()),
        );
        let all = builtin::NAMES.join(", ");
        return Err(match config::nearest(wanted, &builtin::NAMES) {
            Some(near) => {
                error.hint(format!("did you mean builtin = \"{near}\"? There are: {all}"))
            }
            None => error.hint(format!("set builtin to one of: {all}")),
        });
    };
    let agent = found?.with_rules(rules);
    if agent.card().name == *name && descriptor.is_none() {
        return Ok(Arc::new(agent));
    }
    let card = AgentCard { name: name.clone(), ..agent.card().clone() };
    let Some(written) = descriptor else { return Ok(Arc::new(agent.with_card(card)?)) };
    let described = connect::card(written, card).and_then(|card| agent.with_card(card));
    Ok(Arc::new(described.map_err(|error| of_setting(name, &error))?))
}

/// Returns the error of a descriptor, with the setting that names it.
fn of_setting(name: &AgentName, error: &Error) -> Error {
    let message = format!("`agents.{name}.descriptor`: {}", error.message());
    let named = Error::new(Code::InvalidRequest, message).violations(error.violated().to_vec());
    match error.hint_text() {
        Some(hint) => named.hint(hint.to_owned()),
        None => named,
    }
}

/// Returns the authentication schemes of each agent for which the configuration sets them.
pub(crate) fn schemes(options: &config::Options) -> Result<HashMap<AgentName, Vec<Scheme>>> {
    let mut schemes = HashMap::new();
    for (name, agent) in &options.agents {
        let Some(named) = &agent.authentication else { continue };
        let of_agent = |error: Error| {
            let message = format!("`agents.{name}.authentication`: {}", error.message());
            let hint = error.hint_text().unwrap_or_default().to_owned();
            Error::new(Code::InvalidRequest, message).hint(hint)
        };
        let known: Result<Vec<Scheme>> = named.0.iter().map(|it| it.to_gateway()).collect();
        let known = known.map_err(of_agent)?;
        if known.is_empty() {
            return Err(of_agent(
                Error::new(Code::InvalidRequest, "no caller could reach the agent")
                    .hint("name api-key, bearer, basic or none; or remove the setting"),
            ));
        }
        if options.server.no_auth && !known.contains(&Scheme::None) {
            return Err(of_agent(
                Error::new(Code::InvalidRequest, "callers send no token under `server.no_auth`")
                    .hint("remove `no_auth`, or this setting"),
            ));
        }
        schemes.insert(AgentName::parse(name)?, known);
    }
    Ok(schemes)
}

/// Every agent has a name of its own, on every face that is mounted.
pub(crate) fn check_names(agents: &[Arc<dyn Backend>], mounts: &[Mount]) -> Result<()> {
    check_cards(agents.iter().map(|agent| agent.card()).collect(), mounts)
}

fn check_cards(mut cards: Vec<&AgentCard>, mounts: &[Mount]) -> Result<()> {
    cards.sort_by_key(|card| &card.name);
    if let Some(pair) = cards.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let message = format!("two agents are called '{}'", pair[0].name);
        return Err(
            Error::new(Code::AlreadyExists, message).hint("serve one of them under another name")
        );
    }
    let is_mounted = |protocol| mounts.iter().any(|mount| mount.protocol == protocol);
    if is_mounted(Protocol::Communication) {
        check_face_names(&cards)?;
    }
    if is_mounted(Protocol::Connect) {
        check_references(&cards)?;
    }
    Ok(())
}

/// The Agent Communication Protocol shows names without dots.
fn check_face_names(cards: &[&AgentCard]) -> Result<()> {
    let mut shown = HashMap::new();
    for AgentCard { name, .. } in cards {
        let face_name = communication::face_name(name);
        if let Some(other) = shown.insert(face_name.clone(), name) {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("the agents '{other}' and '{name}' are both '{face_name}' where the Agent Communication Protocol is served"),
            )
            .hint("serve one of them under another name"));
        }
    }
    Ok(())
}

/// The Agent Connect Protocol tells agents apart by the name and the version of their descriptors.
fn check_references(cards: &[&AgentCard]) -> Result<()> {
    let mut shown = HashMap::new();
    for card in cards {
        let (reference, version) = (connect::name(card), card.version.as_str());
        if let Some(other) = shown.insert((reference, version), &card.name) {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("the agents '{other}' and '{}' are both '{reference}' in version '{version}' where the Agent Connect Protocol is served", card.name),
            )
            .hint("serve one of them, or give one a `descriptor` with another name or version"));
        }
    }
    Ok(())
}

// === impl Agents ===

impl Agents {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this agent.
    #[must_use]
    pub fn with(mut self, agent: impl Agent) -> Self {
        self.0.push(Arc::new(agent));
        self
    }

    /// Returns the agents as backends of the runtime.
    ///
    /// # Errors
    /// If an agent's name or a schema is not valid.
    pub fn into_backends(self) -> Result<Vec<Arc<dyn Backend>>> {
        let backend =
            |agent| -> Result<Arc<dyn Backend>> { Ok(Arc::new(NativeAgent::from_arc(agent)?)) };
        self.0.into_iter().map(backend).collect()
    }
}

impl<A: Agent> From<A> for Agents {
    fn from(agent: A) -> Self {
        Self::new().with(agent)
    }
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|agent| agent.card())).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn options(agent: &str) -> config::Options {
        let text =
            format!("[agents.mail]\nkind = \"builtin\"\nbuiltin = \"mailcomposer\"\n{agent}\n");
        config::parse(Path::new("t.toml"), &text).unwrap().options
    }

    #[test]
    fn an_agent_names_the_schemes_that_the_server_can_check() {
        let named = |list: &str| schemes(&options(&format!("authentication = {list}")));
        let mail = AgentName::parse("mail").unwrap();
        let all = "[\"bearer\", \"api-key\", \"basic\", \"none\"]";
        let expected = [Scheme::Bearer, Scheme::ApiKey, Scheme::Basic, Scheme::None];
        assert_eq!(named(all).unwrap()[&mail], expected);
        assert_eq!(named("\"none\"").unwrap()[&mail], [Scheme::None]);
        assert_eq!(schemes(&options("")).unwrap(), HashMap::new());
        for (list, why) in [
            ("[\"oauth2\"]", "knows no issuer"),
            ("[\"bearer\", \"openid-connect\"]", "knows no issuer"),
            ("\"mutual-tls\"", "sees no certificate"),
            ("[]", "no caller could reach"),
        ] {
            let error = named(list).unwrap_err();
            let told = error.to_string();
            assert!(told.contains("`agents.mail.authentication`") && told.contains(why), "{told}");
            assert!(!error.hint_text().unwrap().is_empty());
        }
        let mut open = options("authentication = \"bearer\"");
        open.server.no_auth = true;
        assert!(schemes(&open).unwrap_err().hint_text().unwrap().contains("`no_auth`"));
        let unknown = "[agents.a]\nkind = \"builtin\"\nauthentication = \"digest\"\n";
        let error = config::parse(Path::new("t.toml"), unknown).unwrap_err().to_string();
        assert!(error.contains("`digest` does not fit, expected \"api-key\""), "{error}");
    }

    #[test]
    fn a_written_descriptor_is_what_the_agent_says_of_itself_and_what_is_checked() {
        let written = r#"{
            "metadata": {"ref": {"name": "org.example.mail", "version": "7.0.0"}, "description": "writes"},
            "specs": {
                "capabilities": {"threads": true, "callbacks": false},
                "input": {"type": "object", "required": ["subject"]},
                "output": {"type": "object"}, "config": {}
            }
        }"#;
        let parsed = Json::parse(written).unwrap();
        let described = |json: Json| {
            build_agents(&options(""), &Descriptors::from([("mail".to_owned(), json)]))
        };
        let agents = described(parsed.clone()).unwrap();
        let card = agents[0].card();
        assert_eq!((card.name.as_str(), card.title.as_deref()), ("mail", Some("org.example.mail")));
        assert_eq!((card.version.as_str(), card.abilities.callbacks), ("7.0.0", false));
        assert_eq!(card.descriptor, Some(parsed));
        let given = trilogue_domain::Input::Value(Json::empty_object());
        let refused = agents[0].admit(given, None).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidInput);
        let broken = written.replace("\"callbacks\": false", "\"interrupts\": true");
        let error = described(Json::parse(broken).unwrap()).unwrap_err().to_string();
        assert!(error.contains("`agents.mail.descriptor`"), "{error}");
        assert!(error.contains("Missing interrupt definitions"), "{error}");
    }

    #[test]
    fn agents_keep_the_order_of_the_file() {
        let entry = |name: &str, of: &str| {
            format!("[agents.{name}]\nkind = \"builtin\"\nbuiltin = \"{of}\"\n")
        };
        let text =
            entry("zebra", "researcher") + &entry("mole", "mailcomposer") + &entry("ant", "echo");
        let options = config::parse(Path::new("t.toml"), &text).unwrap().options;
        let agents = build_agents(&options, &Descriptors::new()).unwrap();
        let names: Vec<_> = agents.iter().map(|agent| agent.card().name.as_str()).collect();
        assert_eq!(names, ["zebra", "mole", "ant"]);
    }

    #[test]
    fn agents_are_told_apart_by_name_and_version_where_that_is_how_they_are_found() {
        let more = "[agents.post]\nkind = \"builtin\"\nbuiltin = \"mailcomposer\"";
        let agents = build_agents(&options(more), &Descriptors::new()).unwrap();
        let mounted = |protocol| {
            let mounts: Vec<_> = config::Options::default().mounts_in_force().unwrap();
            let mounts: Vec<_> = mounts.into_iter().filter(|it| it.protocol == protocol).collect();
            assert_eq!(mounts.len(), 1);
            check_names(&agents, &mounts)
        };
        assert_eq!(mounted(Protocol::Communication), Ok(()));
        let error = mounted(Protocol::Connect).unwrap_err();
        assert_eq!(error.code(), Code::AlreadyExists);
        let told = error.to_string();
        assert!(told.contains("'mail' and 'post' are both 'org.agntcy.mailcomposer'"), "{told}");
        assert_eq!(check_names(&agents[..1], &[]), Ok(()));
    }
}
