//! Agents of kind `agent-client`, by their settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use trilogue_backends::AgentClient;
use trilogue_backends::agent_client::{self, Launch, Processes, RemoteAgent, SessionDefaults};
use trilogue_backends::child::{Children, InvalidSetting, Sandbox, SandboxMode, find_program};
use trilogue_backends::permission::{Rule, RuleText, Rules};
use trilogue_backends::workspace::{CwdTemplate, Folders, Grants, PrivatePaths};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Json};
use trilogue_mapping::connect;
use trilogue_sdk::agent_client::network::AgentUrl;
use trilogue_wire::agent_client::ToolKind;

use super::network::{SharedNetwork, of_sandbox};
use super::{of_setting, remote};
use crate::config::{self, AgentKind, McpServer, StartIn};
use crate::local::checkout::Checkout;
use crate::local::known_agents::{self, KnownAgent};
use crate::local::start_folder;

/// Where agents in a sandbox have their caches of packages, below the home folder.
const AGENT_CACHES: &str = ".cache/trilogue/agents";
/// The variables that name caches, and the folder of each in that of the agent.
const CACHE_VARIABLES: [(&str, &str); 6] = [
    ("XDG_CACHE_HOME", ""),
    ("npm_config_cache", "npm"),
    ("CARGO_HOME", "cargo"),
    ("GOMODCACHE", "go"),
    ("GRADLE_USER_HOME", "gradle"),
    ("UV_TOOL_DIR", "uv"),
];

/// An agent that speaks the Agent Client Protocol.
pub(super) fn build(
    name: &AgentName,
    agent: &config::Agent,
    descriptor: Option<&Json>,
    (children, private, network): (&Arc<Children>, &PrivatePaths, &SharedNetwork),
) -> Result<AgentClient> {
    let mut card = agent_client::card(name.clone(), agent.description.clone().unwrap_or_default());
    if let Some(written) = descriptor {
        card = connect::card(written, card).map_err(|error| of_setting(name, &error))?;
    }
    let rules = rules(name, agent)?;
    let search_path = std::env::var("PATH").unwrap_or_default();
    let launch = launch((name, agent), &search_path, (private, network))?;
    AgentClient::new(card, launch, Arc::clone(children), rules)
}

pub(super) fn rules(name: &AgentName, agent: &config::Agent) -> Result<Arc<Rules>> {
    let wrong = |why: String| {
        let message = format!("`agents.{name}.permissions`: {why}");
        Error::new(Code::InvalidRequest, message)
    };
    let mut rules = Vec::new();
    for (number, permission) in (1..).zip(&agent.permissions) {
        let called = permission.name.clone().unwrap_or_else(|| format!("rule {number}"));
        let kinds = permission.kind.as_ref().map(|kinds| kinds.0.clone());
        if agent.kind == AgentKind::AgentClient {
            for kind in kinds.iter().flatten() {
                check_kind(kind)
                    .map_err(|why| wrong(format!("the rule '{}' {why}", called.escape_debug())))?;
            }
        }
        let text = RuleText {
            name: called,
            kinds,
            tool: permission.tool.clone(),
            path: permission.path.clone(),
            verdict: permission.decision,
        };
        rules.push(Rule::new(text).map_err(|error| wrong(error.to_string()))?);
    }
    Ok(Arc::new(Rules::new(rules).map_err(|error| wrong(error.to_string()))?))
}

/// A kind that the protocol does not have would never match.
fn check_kind(kind: &str) -> Result<(), String> {
    let known: Vec<_> = ToolKind::ALL.iter().map(|kind| kind.as_str()).collect();
    if known.contains(&kind) {
        return Ok(());
    }
    let shown = kind.escape_debug();
    Err(match config::nearest(kind, &known) {
        Some(near) => format!("names the kind `{shown}`, did you mean `{near}`?"),
        None => format!("names the kind `{shown}`; there are: {}", known.join(", ")),
    })
}

/// Returns how the agent starts, on a server with this search path.
fn launch(
    (name, agent): (&AgentName, &config::Agent),
    search_path: &str,
    (private, network): (&PrivatePaths, &SharedNetwork),
) -> Result<Launch> {
    let env = agent.env.iter().map(|(key, value)| (key.clone(), value.0.clone()));
    let mut env: Vec<_> = env.collect();
    let mut command = agent.command.0.clone();
    if let Some(program) = command.first_mut().filter(|program| !program.contains('/')) {
        let path = agent.env.get("PATH").map_or(search_path, |path| path.0.as_str());
        let folder = working_folder(agent);
        match resolve_program(name, program, &folder, path)? {
            Some(file) => *program = file,
            // It may be installed later, but does not come from the working folder then either.
            None => {
                let outer = Checkout::around(&folder).outer_path(path);
                if !outer.left_out.is_empty() {
                    env.retain(|(key, _)| key != "PATH");
                    env.push(("PATH".to_owned(), outer.path.unwrap_or_default()));
                }
            }
        }
    }
    let known = known_agents::of_command(&agent.command.0);
    let start_in = agent.start_in.unwrap_or(match known {
        Some(known) if !known.in_folder => StartIn::Empty,
        _ => StartIn::Session,
    });
    let remote = remote_agent(name, agent)?;
    let mut sandbox = sandbox(agent, known);
    add_caches((name, agent), &mut sandbox, &mut env);
    let start_dir = match start_in {
        _ if remote.is_some() => None,
        StartIn::Empty => {
            Some(start_folder::prepare().map_err(|error| start_folder::unusable(&error))?)
        }
        StartIn::Session => None,
    };
    let launch = Launch {
        remote,
        start_dir,
        folders: folders(name, agent)?,
        env,
        inherit: agent.inherit.0.clone(),
        credentials: known.map(KnownAgent::credentials).unwrap_or_default(),
        processes: agent.processes,
        max_processes: agent.max_processes,
        max_sessions: agent.max_sessions,
        idle_stop: agent.idle(),
        children_count: agent
            .idle_children
            .unwrap_or(known.is_some_and(|known| known.idle_children)),
        background_quiet: agent.background_quiet.0,
        answer_settle: agent.answer_settle.0,
        client_wait: agent.client_wait.0,
        start_timeout: agent.start_timeout.0,
        open_timeout: agent.open_timeout.0,
        max_line_bytes: agent.max_line.to_usize(),
        grants: Grants {
            files: agent.files,
            terminals: agent.terminals,
            private: private.clone(),
            ..Grants::default()
        },
        client_tools: agent.client_tools,
        auth_method: agent.auth_method.clone(),
        hold: agent.hold,
        on_rewind: agent.on_rewind,
        assign_message_ids: agent.assign_message_ids,
        send_message_id: agent.send_message_id,
        client_meta: agent.client_meta,
        citations: agent.citations,
        session: session_defaults(agent),
        mcp_servers: agent
            .mcp_servers
            .iter()
            .map(|(server, settings)| settings.to_json(name, server))
            .collect::<Result<_>>()?,
        roots: roots(agent),
        private: private.clone(),
        sandbox,
        network: network.plan(name, agent)?,
        outlive: agent.outlive && agent.processes == Processes::Thread,
        unattended: agent.unattended.0.clone(),
        ..Launch::of(command)
    };
    launch.check().map_err(|InvalidSetting { key, why, hint }| {
        let message = format!("`agents.{name}.{key}`: {why}");
        Error::new(Code::InvalidRequest, message).hint(hint)
    })?;
    Ok(launch)
}

/// Returns the file of a program that is named without a folder. The search happens once, outside of the agent's working folder, so that no file that an
/// agent writes there is started.
/// Errors: `invalid_request` if only the working folder has it.
fn resolve_program(
    name: &AgentName,
    program: &str,
    folder: &Path,
    path: &str,
) -> Result<Option<String>> {
    let found = Checkout::around(folder).find_outside(program, path);
    if let Some(file) = found.and_then(|file| file.into_os_string().into_string().ok()) {
        tracing::info!(agent = %name, program = file, "found the agent's program");
        return Ok(Some(file));
    }
    match find_program(program, folder, Some(path)) {
        Some(inside) => {
            let message = format!(
                "`agents.{name}.command`: only the agent's working folder has the program '{}'",
                program.escape_debug()
            );
            let hint = format!("write its whole path, if you trust it: {}", inside.display());
            Err(Error::new(Code::InvalidRequest, message).hint(hint))
        }
        None => Ok(None),
    }
}

/// The folder that the agent works in, or the one that has the folders of its threads.
fn working_folder(agent: &config::Agent) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let Some(cwd) = &agent.cwd else { return here };
    match cwd.split_once('{') {
        // What is before the template can end in the middle of a name.
        Some((before, _)) => here.join(before.rsplit_once('/').map_or("", |(folder, _)| folder)),
        None => here.join(cwd),
    }
}

/// The folders below which requests over the network may choose.
fn roots(agent: &config::Agent) -> Vec<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    match &agent.roots {
        // Folders of another machine.
        None if agent.url.is_some() => Vec::new(),
        Some(roots) => roots.0.iter().map(|root| here.join(root)).collect(),
        None => vec![here],
    }
}

/// Returns the sandbox that the settings say, with the folders in which a known agent keeps its state.
pub(super) fn sandbox(agent: &config::Agent, known: Option<&KnownAgent>) -> Sandbox {
    let wrap_with = agent.wrap_with.0.clone();
    if agent.sandbox == SandboxMode::Off {
        let (network, limits) = (of_sandbox(&agent.network), agent.limits.to_group());
        return Sandbox { wrap_with, network, limits, ..Sandbox::default() };
    }
    let here = std::env::current_dir().unwrap_or_default();
    let whole = |path: &String| agent.whole_path(path);
    let (folders, files): (Vec<_>, Vec<_>) =
        known.into_iter().flat_map(|known| &known.state).partition(|path| path.ends_with('/'));
    Sandbox {
        mode: agent.sandbox,
        read: agent.read_paths.0.iter().map(whole).collect(),
        write: agent.write_paths.0.iter().chain(files).map(whole).collect(),
        state: folders.into_iter().map(whole).collect(),
        network: of_sandbox(&agent.network),
        limits: agent.limits.to_group(),
        wrap_with,
        programs: agent.mcp_servers.values().map(McpServer::words).collect(),
        repository: agent.worktree.as_ref().map(|path| here.join(path)),
        trace: agent.trace.clone(),
    }
}

/// Adds the folder and the variables of caches of the agent's own: what it could change in those of its user would run outside of the sandbox.
pub(super) fn add_caches(
    (name, agent): (&AgentName, &config::Agent),
    sandbox: &mut Sandbox,
    env: &mut Vec<(String, String)>,
) {
    let Some(home) = agent.home().filter(|_| sandbox.mode != SandboxMode::Off) else { return };
    let cache = home.join(AGENT_CACHES).join(name.as_str());
    for (variable, folder) in CACHE_VARIABLES {
        if !env.iter().any(|(set, _)| set == variable) {
            env.push((variable.to_owned(), cache.join(folder).display().to_string()));
        }
    }
    sandbox.state.push(cache);
}

/// Returns the agent behind a server that the settings name.
fn remote_agent(name: &AgentName, agent: &config::Agent) -> Result<Option<RemoteAgent>> {
    let Some(url) = &agent.url else { return Ok(None) };
    let invalid = |key: &str, why: &str, hint: &str| {
        let message = format!("`agents.{name}.{key}`: {why}");
        Error::new(Code::InvalidRequest, message).hint(hint.to_owned())
    };
    let mut address = AgentUrl::parse(url).map_err(|error| {
        let hint =
            "write it with its scheme and path, such as \"wss://agents.example.org/client/coder\"";
        invalid("url", &error.message, hint)
    })?;
    if let Some(credential) = remote::credential(name, agent)? {
        address = address.credential(credential);
    }
    if let Some(file) = &agent.ca_file {
        let hint = "name a file with certificates in PEM form";
        let pem = std::fs::read(file)
            .map_err(|error| invalid("ca_file", &format!("it cannot be read: {error}"), hint))?;
        address =
            address.authorities(&pem).map_err(|error| invalid("ca_file", &error.message, hint))?;
    }
    let cwd = agent.remote_cwd.as_ref().map(PathBuf::from);
    let written = agent.roots.iter().flat_map(|roots| &roots.0).map(PathBuf::from);
    for path in cwd.iter().cloned().chain(written) {
        if !path.is_absolute() {
            let key = if cwd.as_ref() == Some(&path) { "remote_cwd" } else { "roots" };
            let why = format!("'{}' is not an absolute path", path.display());
            return Err(invalid(key, &why, "write the whole path on the agent's machine"));
        }
    }
    Ok(Some(RemoteAgent { url: address, cwd }))
}

fn session_defaults(agent: &config::Agent) -> SessionDefaults {
    let model = agent.model.iter().map(|model| ("model".to_owned(), model.as_str().into()));
    let options = agent.options.iter().map(|(name, value)| (name.clone(), value.clone()));
    SessionDefaults { mode: agent.mode.0.clone(), options: model.chain(options).collect() }
}

fn folders(name: &AgentName, agent: &config::Agent) -> Result<Option<Folders>> {
    let named = |key: &str, error: &Error| {
        let message = format!("`agents.{name}.{key}`: {}", error.message());
        let hint = error.hint_text().unwrap_or_default().to_owned();
        Error::new(Code::InvalidRequest, message).hint(hint)
    };
    let Some(cwd) = &agent.cwd else {
        if agent.worktree.is_some() {
            let error = Error::new(Code::InvalidRequest, "a worktree needs a place")
                .hint("set cwd too, such as \"work/{thread}\"");
            return Err(named("worktree", &error));
        }
        return Ok(None);
    };
    let template = CwdTemplate::parse(cwd).map_err(|error| named("cwd", &error))?;
    let repository = agent.worktree.as_deref().map(Path::new);
    let made = Folders::new(Path::new("."), template, repository, name);
    made.map(Some).map_err(|error| named("worktree", &error))
}

#[cfg(test)]
mod tests;
