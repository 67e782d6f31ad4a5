//! The real binary as a process: a test starts it, kills it, and starts it again on the same store and address.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::client::Client;
use crate::port::reserve_address;
use crate::programs;
use crate::wait::until;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A server's folder, address and configuration, which survive a restart.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
    address: SocketAddr,
    environment: Vec<(String, PathBuf)>,
    binary: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub store: String,
    /// Further lines for the store's table.
    pub store_settings: String,
    /// Further lines for the server's table.
    pub server_settings: String,
    pub settings: String,
    /// Its agents: the name of each, and the built-in agent that it runs.
    pub agents: Vec<(String, String)>,
    pub environment: Vec<(String, PathBuf)>,
    /// The binary; `None` for the one that belongs to the calling test.
    pub binary: Option<PathBuf>,
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    home: Home,
    child: Child,
    token: String,
}

// === impl ServerOptions ===

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            store: "sqlite:store/trilogue.db".to_owned(),
            store_settings: String::new(),
            server_settings: String::new(),
            settings: String::new(),
            agents: builtin(&["echo", "mailcomposer", "researcher"]),
            environment: Vec::new(),
            binary: None,
        }
    }
}

/// Built-in agents under their own names, in the form of [`ServerOptions::agents`].
pub fn builtin(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|&name| (name.to_owned(), name.to_owned())).collect()
}

// === impl Home ===

impl Home {
    pub fn new(dir: &Path, options: &ServerOptions) -> Result<Self> {
        let dir = dir.canonicalize()?;
        let address = reserve_address()?;
        fs::create_dir_all(dir.join("store"))?;
        let mut config = format!(
            "[server]\nlisten = \"{address}\"\n{}\n\n[store]\nurl = \"{}\"\n{}\n\n[log]\nlevel = \"info\"\n\n",
            options.server_settings, options.store, options.store_settings
        );
        for (agent, builtin) in &options.agents {
            config.push_str(&format!(
                "[agents.{agent}]\nkind = \"builtin\"\nbuiltin = \"{builtin}\"\n\n"
            ));
        }
        config.push_str(&options.settings);
        fs::write(dir.join("trilogue.toml"), config)?;
        Ok(Self {
            dir,
            address,
            environment: options.environment.clone(),
            binary: options.binary.clone(),
        })
    }

    pub fn store_dir(&self) -> PathBuf {
        self.dir.join("store")
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn with_environment(mut self, environment: Vec<(String, PathBuf)>) -> Self {
        self.environment.extend(environment);
        self
    }

    /// Runs a command of the binary to its end, with this home's folder and state.
    pub async fn command(&self, arguments: &[&str]) -> Result<std::process::Output> {
        let run = self.prepared().await?.args(arguments).stdin(Stdio::null()).output();
        timeout(START_LIMIT, run).await.context("the command did not end")?.map_err(Into::into)
    }

    /// The command line that runs a command of the binary with this home's state from any folder.
    pub async fn command_line(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let program = match &self.binary {
            Some(program) => program.clone(),
            None => programs::trilogue().await?,
        };
        let state = format!("XDG_STATE_HOME={}", self.dir.join("state").display());
        let mut words = vec!["env".to_owned(), state, program.display().to_string()];
        words.extend(arguments.iter().map(|&word| word.to_owned()));
        Ok(words)
    }

    pub async fn start(&self) -> Result<Server> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let mut command = self.prepared().await?;
        command
            .args(["serve", "--config", "trilogue.toml"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command.spawn().context("the server could not be started")?;
        let client = Client::new(self.address);
        let ready = until("the server to be ready", START_LIMIT, || {
            let ended = child.try_wait();
            let ask = client.get("/readyz");
            async move {
                if let Ok(Some(status)) = ended {
                    return Some(Err(status));
                }
                matches!(ask.await, Ok(reply) if reply.status == 200).then_some(Ok(()))
            }
        })
        .await;
        match ready {
            Ok(Ok(())) => {}
            Ok(Err(status)) => bail!("the server ended with {status}:\n{}", self.log_end()),
            Err(error) => bail!("{error}:\n{}", self.log_end()),
        }
        let token = self.token()?;
        Ok(Server { home: self.clone(), child, token })
    }

    pub fn log_end(&self) -> String {
        let text = fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    async fn prepared(&self) -> Result<Command> {
        let program = match &self.binary {
            Some(program) => program.clone(),
            None => programs::trilogue().await?,
        };
        let mut command = Command::new(program);
        command
            .current_dir(&self.dir)
            .env("XDG_STATE_HOME", self.dir.join("state"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn token(&self) -> Result<String> {
        let folder = self.dir.join("state/trilogue/tokens");
        if !folder.exists() {
            // A server without authentication creates no token.
            return Ok(String::new());
        }
        let entry = fs::read_dir(&folder)?.next().context("the server wrote no token file")??;
        Ok(fs::read_to_string(entry.path())?.trim().to_owned())
    }
}

// === impl Server ===

impl Server {
    pub async fn start(dir: &Path, options: &ServerOptions) -> Result<Self> {
        Home::new(dir, options)?.start().await
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn client(&self) -> Client {
        Client::new(self.home.address).with_token(self.token.clone())
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Pauses the process: it keeps its connections but does nothing.
    pub fn pause(&self) -> Result<()> {
        signal(&self.child, Signal::STOP)
    }

    /// Resumes a paused process.
    pub fn resume(&self) -> Result<()> {
        signal(&self.child, Signal::CONT)
    }

    pub async fn kill(mut self) -> Result<Home> {
        ensure!(self.child.try_wait()?.is_none(), "the server was gone:\n{}", self.home.log_end());
        self.child.kill().await?;
        Ok(self.home)
    }

    /// Waits until the server exits, and kills it after `limit`.
    pub async fn end_within(mut self, limit: Duration) -> Result<Home> {
        if timeout(limit, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(self.home)
    }

    pub async fn stop(mut self) -> Result<(Home, ExitStatus)> {
        let stopped = terminate(&mut self.child).await;
        let status = stopped.with_context(|| self.home.log_end())?;
        Ok((self.home, status))
    }
}

pub(crate) async fn terminate(child: &mut Child) -> Result<ExitStatus> {
    signal(child, Signal::TERM)?;
    Ok(timeout(STOP_LIMIT, child.wait()).await.context("the process did not stop")??)
}

pub(crate) fn signal(child: &Child, signal: Signal) -> Result<()> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    Ok(kill_process(pid.context("the process was gone")?, signal)?)
}
