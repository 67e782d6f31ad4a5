//! Agents without a configuration: a known one by its name, or any command. This user's server runs them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use trilogue::config;
use trilogue::local::agent_catalog::AgentCatalog;
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents::{self, FETCH_LIMIT, KnownAgent};
use trilogue::local::start;
use trilogue_sdk::client::ClientError;
use trilogue_wire::native::local::{AgentTarget, Attach, WrapCommand};

use crate::command::connect::ProxyArguments;
use crate::command::globals::Globals;
use crate::command::wrap::unstartable;
use crate::conversation::remote::{RemoteServer, ServerProtocol};
use crate::conversation::short_id;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe};

/// The command of an agent, and where it works.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AdHocArguments {
    /// Run this command, which speaks the Agent Client Protocol, in place of a named agent.
    #[arg(long, value_name = "COMMAND", conflicts_with = "program")]
    command: Option<String>,
    /// The folder in which the agent works. By default the current one.
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// The same as --command, word by word.
    #[arg(last = true, value_name = "COMMAND")]
    program: Vec<String>,
}

/// An agent at the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChosenAgent {
    pub(crate) name: String,
    /// Whether it was given by a command, so that it works in the command's folder.
    is_ad_hoc: bool,
}

/// Where the agent with a name comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AgentSource {
    /// The server has it, with the settings of its user.
    Server,
    /// It is not configured, and the program knows how to start it.
    Known(&'static KnownAgent),
    Unknown,
}

// === impl AgentSource ===

impl AgentSource {
    /// The user's settings take precedence over the built-in knowledge of an agent, so a configured agent starts this user's server if it does not run.
    ///
    /// # Errors
    /// If the configuration cannot be read, or if the running server does not have an agent that is configured.
    pub(crate) async fn find(name: &str, globals: &Globals) -> Result<Self> {
        if globals.another_server().is_some() {
            return Ok(Self::Server);
        }
        let known = known_agents::find(name).map_or(Self::Unknown, Self::Known);
        // A named server refuses an unknown name itself.
        if globals.names_server() && matches!(known, Self::Unknown) {
            return Ok(Self::Unknown);
        }
        // This user's server may still listen after it was killed, so only its answer counts.
        if is_served(name, globals).await? {
            return Ok(Self::Server);
        }
        let Some(file) = configuring_file(name)? else { return Ok(known) };
        let attach = Attach { agent: name.to_owned(), cwd: None };
        let started =
            ProxyArguments::default().register(AgentTarget::Attach(attach), globals).await;
        started.map(|_| Self::Server).map_err(|error| match error.exit {
            ExitStatus::NotFound => {
                let (name, file) = (safe::visible(name), file.display().to_string());
                let message = format!(
                    "the running server does not have the agent '{name}', which {} configures",
                    safe::visible(&file)
                );
                CliError::new(ExitStatus::Conflict, message).hint(
                    "stop the server with `trilogue stop`: the next command starts it with these settings",
                )
            }
            _ => error,
        })
    }
}

/// The configuration file of this user's server, if it has an agent with this name.
fn configuring_file(name: &str) -> Result<Option<PathBuf>> {
    let Some(file) = start::config_file() else { return Ok(None) };
    let has_agent = config::load(&file)?.options.agents.contains_key(name);
    Ok(has_agent.then_some(file))
}

// === impl ChosenAgent ===

impl ChosenAgent {
    fn of_server(name: &str) -> Self {
        Self { name: name.to_owned(), is_ad_hoc: false }
    }

    /// The folder that a run names: the one that was asked for, or for a new thread on this machine the current one, if the agent takes it.
    pub(crate) async fn folder(
        &self,
        arguments: &AdHocArguments,
        server: &RemoteServer,
        (protocol, globals): (ServerProtocol, &Globals),
        thread: Option<&str>,
    ) -> Result<Option<String>> {
        let folder = self.named_folder(arguments, server, protocol, thread).await?;
        // A thread keeps its folder. If that is the current one, its session may open there again.
        let is_here = thread.is_some() && !self.is_ad_hoc && server.is_local();
        let opened = match &folder {
            None if is_here => arguments.folder().ok(),
            folder => folder.clone(),
        };
        if let Some(folder) = &opened
            && globals.has_users_server()
        {
            // The server takes it from a program of its user. One that takes no connections judges it by its own settings.
            let attach = Attach { agent: self.name.clone(), cwd: Some(folder.clone()) };
            // Errors are left to the run, which says if its folder is refused.
            drop(ProxyArguments::default().register(AgentTarget::Attach(attach), globals).await);
        }
        Ok(folder)
    }

    async fn named_folder(
        &self,
        arguments: &AdHocArguments,
        server: &RemoteServer,
        protocol: ServerProtocol,
        thread: Option<&str>,
    ) -> Result<Option<String>> {
        let is_wanted = arguments.cwd.is_some();
        if self.is_ad_hoc || !(is_wanted || server.is_local()) {
            return Ok(None);
        }
        let is_native = matches!(protocol, ServerProtocol::Auto | ServerProtocol::Native);
        if !is_native {
            return if is_wanted { arguments.folder().map(Some) } else { Ok(None) };
        }
        if !is_wanted && thread_exists(server, thread).await? {
            return Ok(None);
        }
        let agent = server.native().agent(&self.name).await?;
        match (agent.takes_folder, is_wanted) {
            (true, _) => arguments.folder().map(Some),
            (false, false) => Ok(None),
            (false, true) => {
                let name = safe::visible(&self.name);
                Err(CliError::usage(format!(
                    "--cwd: the agent '{name}' does not work in a folder of its caller"
                ))
                .hint("leave --cwd out, or remove `cwd` from the agent's settings"))
            }
        }
    }
}

// === impl AdHocArguments ===

impl AdHocArguments {
    pub(crate) fn has_command(&self) -> bool {
        self.command.is_some() || !self.program.is_empty()
    }

    /// The agent's name at the server. A command becomes an agent of this user's server, and so does a known agent that neither the server nor the user's configuration has.
    pub(crate) async fn agent(
        &self,
        named: Option<&str>,
        globals: &Globals,
    ) -> Result<ChosenAgent> {
        let command = match (self.words()?, named) {
            (Some(words), _) => wrap_command(words, self.folder()?),
            (None, None) => return Err(missing_agent()),
            (None, Some(name)) => match AgentSource::find(name, globals).await? {
                AgentSource::Server => return Ok(ChosenAgent::of_server(name)),
                AgentSource::Known(known) => known_command(name, known, self.folder()?)?,
                AgentSource::Unknown => {
                    refuse_slip(name, globals).await?;
                    return Ok(ChosenAgent::of_server(name));
                }
            },
        };
        let name = ProxyArguments::default().register(AgentTarget::Wrap(command), globals).await?;
        Ok(ChosenAgent { name, is_ad_hoc: true })
    }

    /// The arguments that name the same agent again.
    pub(crate) fn agent_arguments(&self, named: Option<&str>) -> String {
        let command = match (&self.command, named) {
            (None, Some(name)) => return safe::visible(name),
            (Some(command), _) => command.clone(),
            (None, None) => {
                shlex::try_join(self.program.iter().map(String::as_str)).unwrap_or_default()
            }
        };
        let quoted = shlex::try_quote(&command).unwrap_or_default();
        format!("--command {}", safe::visible(&quoted))
    }

    /// The command that the arguments give.
    fn words(&self) -> Result<Option<Vec<String>>> {
        let Some(command) = &self.command else {
            return Ok(Some(self.program.clone()).filter(|words| !words.is_empty()));
        };
        let words = shlex::split(command).filter(|words| !words.is_empty());
        let unreadable = || {
            CliError::usage("--command: the command is empty, or a quote is not closed")
                .hint("write it as in a shell: --command 'python3 agent.py'")
        };
        words.map(Some).ok_or_else(unreadable)
    }

    /// The folder in which the agent works: an absolute path.
    pub(crate) fn folder(&self) -> Result<String> {
        let here = std::env::current_dir().map_err(|error| {
            CliError::failure(format!("cannot find the working folder: {error}"))
        })?;
        let folder = match &self.cwd {
            Some(cwd) => here.join(cwd).canonicalize().map_err(|error| {
                let cwd = cwd.display().to_string();
                CliError::usage(format!("--cwd {}: {error}", safe::visible(&cwd)))
            })?,
            None => here,
        };
        folder.into_os_string().into_string().map_err(|folder| {
            let folder = folder.to_string_lossy().into_owned();
            CliError::usage(format!("the folder '{}' is not UTF-8", safe::visible(&folder)))
        })
    }
}

/// Whether the server has the thread that a run names. A run without a thread makes a new one.
async fn thread_exists(server: &RemoteServer, thread: Option<&str>) -> Result<bool> {
    let Some(named) = thread else { return Ok(false) };
    let client = server.native();
    let listed = short_id::listed_thread(&client, named).await?;
    match client.thread(listed.as_deref().unwrap_or(named)).await {
        Ok(_) => Ok(true),
        Err(error) => {
            let error = CliError::from(error);
            if error.exit == ExitStatus::NotFound { Ok(false) } else { Err(error) }
        }
    }
}

fn missing_agent() -> CliError {
    CliError::usage("the agent is missing")
        .hint("name an agent, or give its command with --command")
}

/// Refuses a name that nothing has and that only the registry has, or that is nearly the name of an agent: the server knows only its own.
async fn refuse_slip(name: &str, globals: &Globals) -> Result {
    if globals.another_server().is_some() {
        return Ok(());
    }
    let catalog = AgentCatalog::of_user();
    let Some(near) = known_agents::nearest(name, &catalog) else { return Ok(()) };
    if is_served(name, globals).await? {
        return Ok(());
    }
    if near == name {
        return Err(unstartable(name, &catalog));
    }
    let message = format!("agent '{}' not found", safe::visible(name));
    Err(CliError::new(ExitStatus::NotFound, message).hint(format!(
        "did you mean '{near}'? List agents with `trilogue agents` and `trilogue agents known`"
    )))
}

/// Whether an agent of this name is meant to be one of the running server. A server that cannot be reached has none.
pub(crate) async fn is_served(name: &str, globals: &Globals) -> Result<bool> {
    // Another server at the default address does not count.
    if !globals.has_server() {
        return Ok(false);
    }
    match RemoteServer::find(globals)?.native().agent(name).await {
        Ok(_) => Ok(true),
        // Another protocol is served at this address: only an agent of that server can be meant, and it refuses a name that it does not have.
        Err(ClientError::Unexpected(_)) => Ok(true),
        Err(error) => {
            let error = CliError::from(error);
            match error.exit {
                ExitStatus::NotFound | ExitStatus::Unreachable => Ok(false),
                _ => Err(error),
            }
        }
    }
}

/// Makes a command of a known agent, with its variables and its way of signing in. No file of the checkout around the folder influences which program is
/// started.
pub(crate) fn known_command(name: &str, known: &KnownAgent, cwd: String) -> Result<WrapCommand> {
    let checkout = Checkout::around(Path::new(&cwd));
    let mut command = wrap_command(Vec::new(), cwd);
    let path = command.env.get("PATH").map_or("", String::as_str);
    let outer = checkout.outer_path(path);
    let Some(start) = known.resolve(&AgentCatalog::of_user(), &checkout, path) else {
        let program = known.command.first().map_or("", String::as_str);
        let message = format!("the agent '{name}' is not installed: program '{program}' not found");
        let hint = match outer.left_out.is_empty() {
            true => known.install_hint(),
            false => format!(
                "{}; programs in the working folder and its repository do not count",
                known.install_hint()
            ),
        };
        return Err(CliError::new(ExitStatus::NotFound, message).hint(hint));
    };
    let Some(program) = start.program.to_str() else {
        let program = safe::visible(&start.program.display().to_string());
        return Err(CliError::usage(format!("the path of the program '{program}' is not UTF-8")));
    };
    if !outer.left_out.is_empty() {
        let folders: Vec<_> = outer.left_out.iter().map(|folder| shown_folder(folder)).collect();
        print::note(&format!(
            "left out of the agent's PATH because they are part of the working folder: {}",
            folders.join(", ")
        ));
    }
    set_or_remove(&mut command.env, "PATH", outer.path);
    let mut removed = Vec::new();
    command.env.retain(|name, value| {
        let is_loaded = checkout.is_loaded_from(name, value);
        if is_loaded {
            removed.push(safe::visible(name));
        }
        !is_loaded
    });
    if !removed.is_empty() {
        print::note(&format!(
            "left out of the agent's environment because they load files of the working folder: {}",
            removed.join(", ")
        ));
    }
    command.command = start.words;
    if let Some(first) = command.command.first_mut() {
        program.clone_into(first);
    }
    let shown = shlex::try_join(command.command.iter().map(String::as_str)).unwrap_or_default();
    print::note(&format!("starting {}: {}", known.title, safe::visible(&shown)));
    if start.is_fetched {
        command.start_timeout_ms = u64::try_from(FETCH_LIMIT.as_millis()).ok();
    }
    command.mode.clone_from(&known.mode);
    command.known = Some(name.to_owned());
    known.add_env(&mut command.env);
    command.auth_method = known.key_method(&command.env).map(str::to_owned);
    Ok(command)
}

fn shown_folder(folder: &Path) -> String {
    let folder = safe::visible(&folder.display().to_string());
    if folder.is_empty() { "an empty entry".to_owned() } else { folder }
}

fn set_or_remove(env: &mut BTreeMap<String, String>, name: &str, value: Option<String>) {
    match value {
        Some(value) => drop(env.insert(name.to_owned(), value)),
        None => drop(env.remove(name)),
    }
}

/// A command in a folder, with this program's environment.
pub(crate) fn wrap_command(words: Vec<String>, cwd: String) -> WrapCommand {
    let mut env = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => drop(env.insert(name, value)),
            (Ok(name), Err(_)) | (Err(_), Ok(name)) => {
                let name = safe::visible(&name);
                print::note(&format!(
                    "left out of the command's environment because it is not UTF-8: {name}"
                ));
            }
            (Err(_), Err(_)) => {}
        }
    }
    WrapCommand { command: words, cwd, env, ..WrapCommand::default() }
}
