//! `trilogue agents login`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use trilogue::config;
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents::{self, KnownAgent, LoginMethod};
use trilogue::local::start;
use trilogue::local::start_folder;
use trilogue_wire::native::local::{AgentTarget, Attach, WrapCommand};

use crate::command::ad_hoc::{AdHocArguments, AgentSource, is_served, known_command};
use crate::command::connect::ProxyArguments;
use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::command::server_config;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe};

/// The longest line of an agent that is read, in bytes.
const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Sign in to an agent, with the agent's own method.
///
/// A method that wants a terminal gets this one. Any other is carried out by this user's server, which signs in the same way from then on.
#[derive(Args, Debug)]
pub(crate) struct LoginCommand {
    /// The agent: one of the server, or a known one.
    agent: String,
    /// The method, by its id. Without it, the agent's only one.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
}

/// How an agent is started here.
#[derive(Clone)]
struct LocalAgent {
    command: Vec<String>,
    env: BTreeMap<String, String>,
    /// Whether it starts where no file of the current folder changes what it does.
    is_apart: bool,
}

/// A way to sign in.
struct SignInMethod {
    id: String,
    name: String,
    /// The command for the terminal, if it is one.
    terminal: Option<LocalAgent>,
}

/// Requests of the Agent Client Protocol, one after the other.
struct LineClient<R, W> {
    reader: BufReader<R>,
    writer: W,
    id: u64,
}

// === impl LoginCommand ===

impl LoginCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let known = known_agent(&self.agent);
        let source = AgentSource::find(&self.agent, globals).await?;
        let is_at_server = match source {
            AgentSource::Server => true,
            // The server may have made the name for a known agent in a folder.
            AgentSource::Unknown => is_served(&self.agent, globals).await?,
            AgentSource::Known(_) => false,
        };
        let is_made = is_at_server && known_agents::find(&self.agent).is_none();
        let wrapped = match known {
            Some(known) if !is_at_server || is_made => {
                let folder = AdHocArguments::default().folder()?;
                Some(known_command(&self.agent, known, folder)?)
            }
            _ => None,
        };
        let local = self.local_agent(is_at_server, wrapped.as_ref())?;
        let mut methods = match &local {
            Some(local) => match local.methods().await {
                Ok(methods) => methods,
                // The agent's own program can sign in even if the agent does not start.
                Err(_) if self.method.is_none() && known_login(known).is_some() => Vec::new(),
                Err(error) => return Err(error),
            },
            None => Vec::new(),
        };
        let wish = match wrapped {
            Some(wrapped) if !is_at_server => AgentTarget::Wrap(wrapped),
            _ => AgentTarget::Attach(Attach { agent: self.agent.clone(), cwd: None }),
        };
        if methods.is_empty() && local.is_none() {
            let (_, greeting) = connect(wish.clone(), globals).await?;
            methods = methods_of(&greeting, None);
        }
        let method = match self.choose(methods, known)? {
            Some(method) => method,
            None => return self.with_own_program(known).await,
        };
        if let Some(terminal) = &method.terminal {
            return terminal.run().await;
        }
        print::note(&format!(
            "signing in with '{}': press Ctrl-C to stop",
            safe::visible(&method.name)
        ));
        let (mut client, _) = connect(wish, globals).await?;
        client.call("authenticate", &json!({ "methodId": method.id })).await?;
        print::note("signed in");
        Ok(())
    }

    /// How the agent is started, as far as that is known here.
    fn local_agent(
        &self,
        is_at_server: bool,
        wrapped: Option<&WrapCommand>,
    ) -> Result<Option<LocalAgent>> {
        if let Some(wrapped) = wrapped {
            let (command, env) = (wrapped.command.clone(), wrapped.env.clone());
            return Ok(Some(LocalAgent { command, env, is_apart: true }));
        }
        if is_at_server {
            let record = user_server_dir().ok().and_then(|dir| start::running(&dir));
            let file = server_config::file(None, record.as_ref());
            let loaded = file.and_then(|file| config::load(&file).ok());
            let agent = loaded.and_then(|loaded| loaded.options.agents.get(&self.agent).cloned());
            return Ok(agent.filter(|agent| !agent.command.0.is_empty()).map(|agent| LocalAgent {
                is_apart: known_agents::of_command(&agent.command.0).is_some(),
                command: agent.command.0,
                env: agent.env.into_iter().map(|(name, value)| (name, value.0)).collect(),
            }));
        }
        let name = safe::visible(&self.agent);
        Err(CliError::new(ExitStatus::NotFound, format!("agent '{name}' not found"))
            .hint("list the agents with: trilogue agents"))
    }

    fn choose(
        &self,
        mut methods: Vec<SignInMethod>,
        known: Option<&KnownAgent>,
    ) -> Result<Option<SignInMethod>> {
        let usual = known_login(known).and_then(|login| login.method.as_deref());
        let is_one = methods.len() == 1;
        let wanted = self.method.as_deref().or(usual);
        let found = methods.iter().position(|method| wanted == Some(method.id.as_str()));
        if let Some(at) = found
            .or_else(|| is_one.then_some(0))
            .filter(|_| found.is_some() || self.method.is_none())
        {
            return Ok(Some(methods.swap_remove(at)));
        }
        if methods.is_empty() && self.method.is_none() {
            return Ok(None);
        }
        let listed: Vec<_> = methods
            .iter()
            .map(|method| {
                format!("{} ({})", safe::visible(&method.id), safe::visible(&method.name))
            })
            .collect();
        let message = match &self.method {
            Some(method) => format!("unknown sign-in method '{}'", safe::visible(method)),
            None => "the agent has several methods".to_owned(),
        };
        Err(CliError::usage(message)
            .hint(format!("choose one with --method: {}", listed.join(", "))))
    }

    /// An agent that offers no method has a program of its own for that.
    async fn with_own_program(&self, known: Option<&KnownAgent>) -> Result {
        let Some(login) = known_login(known) else {
            let name = safe::visible(&self.agent);
            return Err(CliError::failure(format!("the agent '{name}' offers no way to sign in"))
                .hint(
                    "set its key in a variable, and name the variable in `inherit` of the agent",
                ));
        };
        let command = login.command.clone();
        LocalAgent { command, env: BTreeMap::new(), is_apart: true }.run().await
    }
}

/// The known agent with this name, or with the name that the server made for it.
fn known_agent(name: &str) -> Option<&'static KnownAgent> {
    let made = || name.rsplit_once('-').and_then(|(known, _)| known_agents::find(known));
    known_agents::find(name).or_else(made)
}

/// How a known agent signs in, if its list names a way.
fn known_login(known: Option<&KnownAgent>) -> Option<&LoginMethod> {
    known.and_then(|known| known.login.as_ref())
}

/// A connection to the agent through the server, and the agent's answer to the first request.
async fn connect(
    wish: AgentTarget,
    globals: &Globals,
) -> Result<(LineClient<tokio::net::unix::OwnedReadHalf, tokio::net::unix::OwnedWriteHalf>, Value)>
{
    let stream = ProxyArguments::default().link(wish, globals)?.open().await?;
    let (reader, writer) = stream.into_split();
    let mut client = LineClient { reader: BufReader::new(reader), writer, id: 0 };
    let greeting = client.initialize().await?;
    Ok((client, greeting))
}

// === impl LocalAgent ===

impl LocalAgent {
    /// Its program, which a name finds outside of the checkout around the current folder.
    fn program(&self) -> Result<Command> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(CliError::failure("the agent names no command to sign in"));
        };
        let checkout = Checkout::around_here();
        let own = self.env.get("PATH").cloned();
        let path = own.or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
        let file = match program.contains('/') {
            true => Some(PathBuf::from(program)),
            false => checkout.find_outside(program, &path),
        };
        let Some(file) = file else {
            let message = format!("program '{}' not found", safe::visible(program));
            return Err(CliError::new(ExitStatus::NotFound, message).hint(
                "install it; programs in the working folder and its repository do not count",
            ));
        };
        let mut command = Command::new(file);
        command.args(arguments).envs(&self.env).env_remove("PATH").kill_on_drop(true);
        if let Some(path) = checkout.outer_path(&path).path {
            command.env("PATH", path);
        }
        for name in checkout.loaded_of_process() {
            command.env_remove(name);
        }
        if self.is_apart {
            let failed = |error| {
                CliError::failure(format!(
                    "the folder in which agents start cannot be prepared: {error}"
                ))
            };
            let folder = start_folder::prepare().map_err(failed)?;
            command.env("PWD", &folder).current_dir(folder);
        }
        Ok(command)
    }

    /// Its methods, by its own answer to a client with a terminal.
    async fn methods(&self) -> Result<Vec<SignInMethod>> {
        let mut command = self.program()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |error| CliError::failure(format!("the agent cannot be started: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
            return Ok(Vec::new());
        };
        let mut client = LineClient { reader: BufReader::new(reader), writer, id: 0 };
        let greeting = client.initialize().await?;
        Ok(methods_of(&greeting, Some(self)))
    }

    /// Runs it at this terminal until it ends.
    async fn run(&self) -> Result {
        let shown = shlex::try_join(self.command.iter().map(String::as_str)).unwrap_or_default();
        print::note(&format!("running: {}", safe::visible(&shown)));
        let mut command = self.program()?;
        let failed = |error| {
            CliError::failure(format!("{} cannot be started: {error}", safe::visible(&shown)))
        };
        let status = command.status().await.map_err(failed)?;
        if !status.success() {
            return Err(CliError::failure(format!("the sign-in ended with {status}")));
        }
        print::note("done; the agent is asked again at its next run");
        Ok(())
    }
}

/// The methods in an agent's answer to `initialize`. Those for a terminal need to know how the agent is started.
fn methods_of(greeting: &Value, local: Option<&LocalAgent>) -> Vec<SignInMethod> {
    let texts = |value: &Value| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten();
        texts.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let variables = |value: &Value| -> BTreeMap<String, String> {
        let members = value.as_object().into_iter().flatten();
        members
            .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
            .collect()
    };
    let methods = greeting["authMethods"].as_array().into_iter().flatten();
    let method = |method: &Value| {
        let id = method["id"].as_str()?.to_owned();
        let name = method["name"].as_str().unwrap_or(&id).to_owned();
        let own = &method["_meta"]["terminal-auth"];
        let terminal = match (method["type"].as_str(), own["command"].as_str()) {
            (_, Some(program)) => {
                let mut command = vec![program.to_owned()];
                command.extend(texts(&own["args"]));
                let is_apart = local.is_some_and(|local| local.is_apart);
                Some(LocalAgent { command, env: variables(&own["env"]), is_apart })
            }
            (Some("terminal"), None) => {
                let local = local?;
                let mut command = local.command.clone();
                command.extend(texts(&method["args"]));
                let mut env = local.env.clone();
                env.extend(variables(&method["env"]));
                Some(LocalAgent { command, env, is_apart: local.is_apart })
            }
            _ => None,
        };
        Some(SignInMethod { id, name, terminal })
    };
    methods.filter_map(method).collect()
}

// === impl LineClient ===

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> LineClient<R, W> {
    async fn initialize(&mut self) -> Result<Value> {
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": { "auth": { "terminal": true }, "_meta": { "terminal-auth": true } },
            "clientInfo": { "name": "trilogue", "version": env!("CARGO_PKG_VERSION") },
        });
        self.call("initialize", &params).await
    }

    /// Calls a method, and refuses the agent's requests meanwhile.
    async fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.id += 1;
        let id = self.id;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await?;
        loop {
            let message = self.read().await?;
            if message.get("method").is_some() {
                if let Some(asked) = message.get("id") {
                    self.refuse(asked, &message).await?;
                }
                continue;
            }
            if message["id"] != id {
                continue;
            }
            let Some(error) = message.get("error") else { return Ok(message["result"].clone()) };
            let text = error["message"].as_str().unwrap_or_default();
            let failed =
                CliError::failure(format!("the agent refused {method}: {}", safe::line(text)));
            return Err(match error["data"]["hint"].as_str() {
                Some(hint) => failed.hint(safe::line(hint)),
                None => failed,
            });
        }
    }

    /// Shows an address that the agent wants visited; refuses every other request.
    async fn refuse(&mut self, id: &Value, message: &Value) -> Result {
        let params = &message["params"];
        let answer = match (message["method"].as_str(), params["url"].as_str()) {
            (Some("elicitation/create"), Some(url)) => {
                print::note(&format!("visit {}", safe::line(url)));
                json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "accept" } })
            }
            _ => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        };
        self.write(&answer).await
    }

    async fn write(&mut self, message: &Value) -> Result {
        let line = format!("{message}\n");
        self.writer.write_all(line.as_bytes()).await.map_err(|error| connection_lost_error(&error))
    }

    async fn read(&mut self) -> Result<Value> {
        loop {
            let mut line = Vec::new();
            loop {
                let bytes =
                    self.reader.fill_buf().await.map_err(|error| connection_lost_error(&error))?;
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let used = end.map_or(bytes.len(), |end| end + 1);
                if used == 0 {
                    return Err(CliError::failure("the agent ended before it answered"));
                }
                if line.len() + used > MAX_LINE_BYTES {
                    return Err(CliError::failure("the agent sent a line that is too long"));
                }
                line.extend_from_slice(&bytes[..used]);
                self.reader.consume(used);
                if end.is_some() {
                    break;
                }
            }
            // Some agents write other lines too.
            if let Ok(message) = serde_json::from_slice(&line) {
                return Ok(message);
            }
        }
    }
}

fn connection_lost_error(error: &std::io::Error) -> CliError {
    CliError::failure(format!("the connection to the agent is lost: {error}"))
}
