//! Agents of commands that are registered while the server runs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use trilogue_backends::AgentClient;
use trilogue_backends::agent_client::{self, ClientTools, Launch};
use trilogue_backends::child::{Children, SERVER_PREFIX, find_program};
use trilogue_domain::error::Result;
use trilogue_domain::lock;
use trilogue_domain::{AgentName, Code, Error, limits};
use trilogue_gateway::{AuditEvent, Wrap, WrapCommand, audit};
use trilogue_runtime::{Backend, Runtime};

use crate::local::known_agents::{self, FETCH_LIMIT};
use crate::local::private_paths::of_state;
use crate::local::start_folder;

const DIGEST_BYTES: usize = 8;
/// The longest detail of an audit line, in bytes.
const MAX_AUDIT_BYTES: usize = 4 * 1024;
/// Programs that run the program in their arguments.
const RUNNERS: [&str; 14] = [
    "bash", "bun", "bunx", "deno", "env", "node", "npx", "pipx", "pnpm", "python", "python3", "sh",
    "uv", "uvx",
];

/// The commands that were registered since the server started. They are kept in memory only.
pub(crate) struct WrappedCommands {
    runtime: Runtime,
    children: Arc<Children>,
    agents: Mutex<HashMap<AgentName, WrappedCommand>>,
}

struct WrappedCommand {
    agent: Arc<AgentClient>,
    /// Of the command line.
    digest: [u8; 32],
}

// === impl WrappedCommands ===

impl WrappedCommands {
    pub(crate) fn new(runtime: Runtime, children: Arc<Children>) -> Self {
        Self { runtime, children, agents: Mutex::default() }
    }

    fn register(&self, name: AgentName, command: &WrapCommand) -> Result<AgentName> {
        let launch = launch(command)?;
        let digest = identity(command);
        let mut agents = lock(&self.agents);
        if let Some(known) = agents.get_mut(&name) {
            // It would get the sessions of the other command, if that has any.
            if known.digest != digest && known.agent.has_started() {
                let message = format!("the agent '{name}' is another command");
                return Err(Error::new(Code::AlreadyExists, message).hint(
                    "give the command another name, or restart the server, so that it can have this one",
                ));
            }
            known.agent.relaunch(launch)?;
            known.digest = digest;
            return Ok(name);
        }
        let card = agent_client::card(name.clone(), "A command that was wrapped.".to_owned());
        let agent = AgentClient::of_command(card, launch, Arc::clone(&self.children))?;
        let agent = Arc::new(agent);
        self.runtime.register(Arc::clone(&agent) as Arc<dyn Backend>).map_err(
            |error| match error.code() {
                Code::AlreadyExists => error.hint("give the command another name with --name"),
                // Agents stay until the server stops.
                Code::Overloaded => error.hint("restart the server: each command stays an agent until it ends, once in every folder"),
                _ => error,
            },
        )?;
        agents.insert(name.clone(), WrappedCommand { agent, digest });
        Ok(name)
    }
}

#[async_trait]
impl Wrap for WrappedCommands {
    async fn wrap(&self, command: WrapCommand) -> Result<AgentName> {
        let name = match &command.name {
            Some(name) => AgentName::parse(name)?,
            None => name_of(&command)?,
        };
        let name = self.register(name, &command)?;
        audit(AuditEvent::CommandWrapped, None, name.as_str(), &audit_detail(&command));
        Ok(name)
    }
}

impl std::fmt::Debug for WrappedCommands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrappedCommands").finish_non_exhaustive()
    }
}

/// Returns the audit line's text for a command. It leaves out arguments and the values of variables,
/// which may hold secrets.
fn audit_detail(command: &WrapCommand) -> String {
    let program = command.command.first().map_or("", String::as_str);
    let names: Vec<_> = command.env.keys().map(String::as_str).collect();
    let detail = format!(
        "program {program}; folder {}; {} variables: {}",
        command.cwd,
        names.len(),
        names.join(" ")
    );
    detail.get(..detail.floor_char_boundary(MAX_AUDIT_BYTES)).unwrap_or_default().to_owned()
}

/// How to launch a command: with the folder and environment in which it was wrapped.
fn launch(command: &WrapCommand) -> Result<Launch> {
    let cwd = Path::new(&command.cwd);
    if !cwd.is_absolute() {
        let message = format!("the folder '{}' is not absolute", command.cwd.escape_debug());
        return Err(Error::new(Code::InvalidRequest, message));
    }
    let mut launch = Launch::of(command.command.iter().cloned());
    launch.session.mode.clone_from(&command.mode);
    launch.auth_method.clone_from(&command.auth_method);
    if let Some(limit) = command.start_timeout_ms {
        launch.start_timeout = Duration::from_millis(limit).min(FETCH_LIMIT);
    }
    if let Some(program) = launch.command.first_mut() {
        // Its folder and search path differ from the server's.
        let found = find_program(program, cwd, command.env.get("PATH").map(String::as_str));
        if let Some(found) = found.and_then(|path| path.into_os_string().into_string().ok()) {
            *program = found;
        }
    }
    launch.cwd = Some(cwd.to_owned());
    launch.roots = vec![cwd.to_owned()];
    launch.private = of_state();
    if let Some(known) = command.known.as_deref().and_then(known_agents::find) {
        launch.start_dir = known.start_dir().map_err(|error| start_folder::unusable(&error))?;
    }
    // As without a server, the command uses the editor's files and terminals.
    launch.client_tools = ClientTools::Forward;
    // The command gets no token of the server.
    let env = command.env.iter().filter(|(name, _)| !name.starts_with(SERVER_PREFIX));
    launch.env = env.map(|(name, value)| (name.clone(), value.clone())).collect();
    Ok(launch)
}

/// A digest that differs for different commands. A known agent stays the same when its version or the path of its program changes, so that its threads continue.
fn identity(command: &WrapCommand) -> [u8; 32] {
    match &command.known {
        Some(known) => digest(&["known agent".to_owned(), known.clone()]),
        None => digest(&command.command),
    }
}

/// A digest that differs for different command lines.
fn digest(command: &[String]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for word in command {
        digest.update((word.len() as u64).to_be_bytes());
        digest.update(word.as_bytes());
    }
    digest.finalize().into()
}

/// Returns the name of a command: the name of the known agent or of the program, and a digest of the command's
/// identity and the folder.
///
/// The environment is left out because it changes with each start of an editor.
fn name_of(command: &WrapCommand) -> Result<AgentName> {
    let word = command.known.clone().unwrap_or_else(|| program_name(&command.command));
    let mut whole = Sha256::new();
    whole.update(identity(command));
    whole.update(command.cwd.as_bytes());
    let digest = whole.finalize();
    let digest: String =
        digest.iter().take(DIGEST_BYTES).map(|byte| format!("{byte:02x}")).collect();
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' };
    let word: String = word.chars().map(allowed).collect();
    let word = word.trim_matches(['-', '.']);
    let room = limits::MAX_AGENT_NAME_BYTES - digest.len() - 1;
    let word = word.get(..room.min(word.len())).unwrap_or_default();
    let word = if word.is_empty() { "agent" } else { word };
    AgentName::parse(&format!("{word}-{digest}"))
}

/// The name of the program that a command runs, itself or through a runner.
fn program_name(command: &[String]) -> String {
    let is_plain = |word: &&String| !word.starts_with('-') && !word.contains('=');
    let base = |word: &String| {
        let base = word.rsplit('/').next().unwrap_or_default();
        // A scope or a version of a package is not its name.
        base.trim_start_matches('@').split('@').next().unwrap_or_default().to_owned()
    };
    let words = command.iter().enumerate().filter(|(at, word)| *at == 0 || is_plain(word));
    let mut words = words.map(|(_, word)| base(word));
    let mut word = words.next().unwrap_or_default();
    while RUNNERS.contains(&word.as_str())
        && let Some(next) = words.next()
    {
        word = next;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(command: &[&str]) -> String {
        name_in_dir(command, "/w")
    }

    fn name_in_dir(command: &[&str], cwd: &str) -> String {
        name_of(&wrapped(None, command, cwd)).unwrap().as_str().to_owned()
    }

    fn wrapped(known: Option<&str>, command: &[&str], cwd: &str) -> WrapCommand {
        WrapCommand {
            command: command.iter().map(|it| (*it).to_owned()).collect(),
            cwd: cwd.to_owned(),
            known: known.map(str::to_owned),
            ..WrapCommand::default()
        }
    }

    #[test]
    fn each_command_has_one_name() {
        for (command, begin) in [
            (&["/usr/bin/claude-agent-acp", "--x"][..], "claude-agent-acp-"),
            (&["npx", "-y", "@zed/codex-acp@1.2"], "codex-acp-"),
            (&["env", "A=1", "python3", "my agent.py"], "my-agent.py-"),
            (&["npx"], "npx-"),
            (&["…"], "agent-"),
            (&["-"], "agent-"),
        ] {
            let got = name(command);
            assert!(got.starts_with(begin) && got.len() == begin.len() + 2 * DIGEST_BYTES, "{got}");
            assert_eq!(got, name(command));
        }
        let known = |version: &str| {
            name_of(&wrapped(Some("codex"), &["npx", "-y", version], "/w")).unwrap()
        };
        assert!(known("codex-acp@1.0.0").as_str().starts_with("codex-"));
        // A newer version continues the threads.
        assert_eq!(known("codex-acp@1.0.0"), known("codex-acp@2.0.0"));
        assert_ne!(name(&["x", "ab", "c"]), name(&["x", "a", "bc"]));
        assert_ne!(name_in_dir(&["x"], "/a"), name_in_dir(&["x"], "/b"));
        assert_eq!(name(&[&"x".repeat(100)]).len(), limits::MAX_AGENT_NAME_BYTES);
    }
}
