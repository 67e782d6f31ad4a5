//! Child processes of other projects' programs: the official clients of the two protocols over HTTP, a fuzzer, and the program whose agents these expect.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::client::Client;
use crate::port::reserve_address;
use crate::programs::{ROOT, installed};
use crate::server::{signal, terminate};
use crate::wait::until;

pub use crate::programs::conformance_agents;

const START_LIMIT: Duration = Duration::from_secs(60);
/// The file name of the program that serves agents.
const AGENT: &str = "agent.py";
const CLIENT_LIMIT: Duration = Duration::from_secs(240);

/// A third-party program that sends requests to servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// The official Python client of the Agent Communication Protocol.
    Python,
    /// The official TypeScript client of the same protocol, in its CommonJS build.
    TypeScript,
    /// The official Python client of the Agent Connect Protocol.
    Connect,
    /// A fuzzer that generates requests from an OpenAPI document.
    Fuzz,
    /// The official end-to-end suite of the Agent Communication Protocol, with its own servers.
    OfficialSuite,
}

#[derive(Clone, Debug)]
pub struct ConformanceOptions {
    pub store: String,
    /// The protocol under test.
    pub protocol: &'static str,
    /// The protocol's mount prefix: `/` or, for example, `/communication`.
    pub prefix: String,
    pub arguments: Vec<&'static str>,
    pub allow_egress: Option<String>,
    /// The settings of further agents, in the form of the configuration file.
    pub agents: String,
}

/// A server on a third-party library, with an agent that does what its prompts say. Killed when dropped.
#[derive(Debug)]
pub struct ForeignServer {
    name: &'static str,
    program: &'static str,
    address: SocketAddr,
    child: Child,
}

/// The program `conformance_agents`, running without tokens. Killed when dropped.
#[derive(Debug)]
pub struct Conformance {
    dir: PathBuf,
    address: SocketAddr,
    options: ConformanceOptions,
    child: Child,
}

// === impl ConformanceOptions ===

impl ConformanceOptions {
    pub fn communication(store: &str, prefix: &str) -> Self {
        Self {
            store: store.to_owned(),
            protocol: "communication",
            prefix: prefix.to_owned(),
            arguments: Vec::new(),
            allow_egress: None,
            agents: String::new(),
        }
    }

    pub fn connect(store: &str, prefix: &str) -> Self {
        Self { protocol: "connect", ..Self::communication(store, prefix) }
    }
}

// === impl Conformance ===

impl Conformance {
    /// Starts the program in this folder and waits until it listens.
    pub async fn start(dir: &Path, options: ConformanceOptions) -> Result<Self> {
        let address = reserve_address()?;
        Self::start_at(dir.canonicalize()?, address, options).await
    }

    async fn start_at(
        dir: PathBuf,
        address: SocketAddr,
        options: ConformanceOptions,
    ) -> Result<Self> {
        let agents = dir.join("agents.toml");
        fs::write(&agents, &options.agents)?;
        let path = dir.join("conformance.log");
        let log = File::options().create(true).append(true).open(&path)?;
        let mut command = Command::new(conformance_agents().await?);
        command
            .args(["--no-auth", "--listen", &address.to_string(), "--store", &options.store])
            .args(["--mount", &format!("{}={}", options.protocol, options.prefix)])
            .args(&options.arguments)
            .arg("--agents")
            .arg(&agents)
            .args(options.allow_egress.iter().flat_map(|blocks| ["--allow-egress", blocks]))
            .current_dir(&dir)
            .env("XDG_STATE_HOME", dir.join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command.spawn().context("the program could not be started")?;
        let stdout = child.stdout.take().context("the program is mute")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(START_LIMIT, lines.next_line())
            .await
            .context("the program did not say that it listens")??;
        let Some(line) = line else {
            let status = child.wait().await?;
            bail!("the program ended with {status}: {}", fs::read_to_string(&path)?);
        };
        ensure!(line == format!("listening: http://{address}"), "the program said: {line}");
        Ok(Self { dir, address, options, child })
    }

    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.options.prefix.trim_end_matches('/'))
    }

    /// The program's standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("conformance.log")).unwrap_or_default()
    }

    /// Pauses the process: it keeps its connections but does nothing.
    pub fn pause(&self) -> Result<()> {
        signal(&self.child, Signal::STOP)
    }

    /// Resumes a paused process.
    pub fn resume(&self) -> Result<()> {
        signal(&self.child, Signal::CONT)
    }

    /// A client of the program; paths begin with [`Conformance::prefix`].
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    pub fn prefix(&self) -> &str {
        self.options.prefix.trim_end_matches('/')
    }

    /// Kills the program with `SIGKILL` and starts it again at the same address.
    pub async fn kill_and_start(mut self) -> Result<Self> {
        self.kill().await?;
        self.start_again().await
    }

    /// Kills the program with `SIGKILL`.
    pub async fn kill(&mut self) -> Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "the program was gone");
        Ok(self.child.kill().await?)
    }

    /// Starts a killed program again at the same address.
    pub async fn start_again(self) -> Result<Self> {
        let Self { dir, address, options, .. } = self;
        Self::start_at(dir, address, options).await
    }

    pub async fn stop(mut self) -> Result<ExitStatus> {
        terminate(&mut self.child).await
    }
}

// === impl ForeignServer ===

impl ForeignServer {
    /// The reference server of the Agent Communication Protocol, with the agent `words`.
    pub async fn communication() -> Result<Self> {
        Self::start("communication/reference", AGENT).await
    }

    /// The reference server of the Agent Communication Protocol, with the agents of its own suite and its own example.
    pub async fn official_agents() -> Result<Self> {
        Self::start("communication/reference", "suite_agents.py").await
    }

    /// A server written from the document of the Agent Connect Protocol, with the agent `org.example.words`.
    pub async fn connect() -> Result<Self> {
        Self::start("connect/peer", AGENT).await
    }

    /// A collector of traces on the official definitions of the OpenTelemetry Protocol.
    pub async fn collector() -> Result<Self> {
        Self::start("otlp", "collector.py").await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client without a token.
    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Kills the server with `SIGKILL`; its address stays reserved.
    pub async fn kill(mut self) -> Result<Self> {
        ensure!(self.child.try_wait()?.is_none(), "foreign/{} was gone", self.name);
        self.child.kill().await?;
        Ok(self)
    }

    /// Starts a killed server again, with an empty memory.
    pub async fn start_again(self) -> Result<Self> {
        Self::start_at(self.name, self.program, self.address).await
    }

    async fn start(name: &'static str, program: &'static str) -> Result<Self> {
        Self::start_at(name, program, reserve_address()?).await
    }

    async fn start_at(
        name: &'static str,
        program: &'static str,
        address: SocketAddr,
    ) -> Result<Self> {
        let mut child = python(name, program)?
            .arg(address.port().to_string())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("foreign/{name} could not be started"))?;
        let listens = until("the server to listen", START_LIMIT, || {
            let ended = child.try_wait();
            async move {
                match (ended, TcpStream::connect(address).await) {
                    (Ok(Some(status)), _) => Some(Err(status)),
                    (_, Ok(_)) => Some(Ok(())),
                    _ => None,
                }
            }
        });
        match listens.await? {
            Ok(()) => Ok(Self { name, program, address, child }),
            Err(status) => bail!("foreign/{name} ended with {status}"),
        }
    }
}

// === impl Foreign ===

impl Foreign {
    /// Runs our script that uses this program against a server; returns its output.
    pub async fn run(self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command()?;
        command
            .args(arguments)
            .env("NO_PROXY", "*")
            .env("OTEL_SDK_DISABLED", "true")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(CLIENT_LIMIT, command.output())
            .await
            .with_context(|| format!("{self:?} did not end: {arguments:?}"))??;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{self:?} ended with {}: {arguments:?}\n{said}{complained}",
            output.status
        );
        Ok(said)
    }

    fn command(self) -> Result<Command> {
        let name = match self {
            Self::Python => "communication/python",
            Self::TypeScript => "communication/javascript",
            Self::Connect => "connect/python",
            Self::Fuzz => "connect/fuzz",
            Self::OfficialSuite => return python("communication/reference", "suite.py"),
        };
        if self == Self::TypeScript {
            let installed = installed(name)?;
            let program = Path::new(ROOT).join("foreign").join(name).join("main.cjs");
            let mut command = Command::new("node");
            command.env("NODE_PATH", installed.join("node_modules")).arg(program);
            return Ok(command);
        }
        python(name, "main.py")
    }
}

/// The command of a program in `foreign/NAME`, with its installed libraries.
fn python(name: &str, program: &str) -> Result<Command> {
    let mut command = Command::new(installed(name)?.join("bin/python"));
    command.arg("-B").arg(Path::new(ROOT).join("foreign").join(name).join(program));
    Ok(command)
}
