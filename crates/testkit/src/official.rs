//! Programs that speak the Agent Client Protocol: ours on its official SDKs in both roles, and other projects' command-line client and coding agent.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::folder::Folder;
use crate::programs::{ROOT, installed, official_rust};

pub use crate::programs::{example, scripted_agent};

const CLIENT_LIMIT: Duration = Duration::from_secs(240);
const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Official {
    Rust,
    TypeScript,
    /// The last release of the TypeScript SDK that had ids on prompts.
    Seed,
    Python,
}

/// An agent behind the server of its SDK, which keeps its sessions in files. Killed when dropped.
#[derive(Debug)]
pub struct OfficialServer {
    /// Its host, port and path.
    address: String,
    _child: Child,
    _state: Folder,
}

// === impl Official ===

impl Official {
    pub const ALL: [Self; 4] = [Self::Rust, Self::TypeScript, Self::Seed, Self::Python];

    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "official-rust",
            Self::TypeScript => "official-typescript",
            Self::Seed => "official-seed",
            Self::Python => "official-python",
        }
    }

    pub async fn agent(self, arguments: &[&str]) -> Result<Vec<String>> {
        self.program("agent", arguments).await
    }

    pub async fn drive(self, cwd: &Path, options: &[&str], agent: &[String]) -> Result<String> {
        let folder = cwd.display().to_string();
        let mut words = self.program("main", &["--cwd", &folder]).await?;
        words.extend(options.iter().map(|&option| option.to_owned()));
        words.push("--".to_owned());
        words.extend_from_slice(agent);
        let said = run(&words, cwd).await.with_context(|| format!("{self:?}: {options:?}"))?;
        ensure!(said.contains(" 0 failed"), "{self:?} did not say how it went: {said}");
        Ok(said)
    }

    /// As [`Self::drive`], with an agent at this address, on the SDK's own transport for its scheme: `ws` or `http`.
    pub async fn drive_address(
        self,
        cwd: &Path,
        options: &[&str],
        url: &str,
        token: &str,
    ) -> Result<String> {
        let folder = cwd.display().to_string();
        let mut words = self.program("main", &["--cwd", &folder]).await?;
        words.extend(options.iter().chain(&["--", url]).map(|&word| word.to_owned()));
        let said = run_with(&words, cwd, &[("TRILOGUE_TOKEN", token)]).await;
        let said = said.with_context(|| format!("{self:?} at {url}: {options:?}"))?;
        ensure!(said.contains(" 0 failed"), "{self:?} did not say how it went: {said}");
        Ok(said)
    }

    async fn program(self, name: &str, arguments: &[&str]) -> Result<Vec<String>> {
        let sources = Path::new(ROOT).join("foreign/agent_client").canonicalize()?;
        let path = |path: &Path| path.display().to_string();
        let mut words = match self {
            Self::Rust => {
                let name = if name == "agent" { "official-agent" } else { "official-client" };
                vec![path(&official_rust().await?.join(name))]
            }
            Self::TypeScript | Self::Seed => {
                let modules = path(&installed("agent_client/typescript")?);
                let program = path(&sources.join(format!("typescript/{name}.mjs")));
                vec!["node".to_owned(), program, "--modules".to_owned(), modules]
            }
            Self::Python => {
                let python = path(&installed("agent_client/python")?.join("bin/python"));
                let program = path(&sources.join(format!("python/{name}.py")));
                vec![python, "-B".to_owned(), program]
            }
        };
        if self == Self::Seed {
            words.push("--seed".to_owned());
        }
        words.extend(arguments.iter().map(|&argument| argument.to_owned()));
        Ok(words)
    }
}

// === impl OfficialServer ===

impl OfficialServer {
    pub async fn start(official: Official) -> Result<Self> {
        let state = Folder::new()?;
        let folder = state.path().display().to_string();
        let words = official.agent(&["--listen", "--state", &folder]).await?;
        let (program, arguments) = words.split_first().context("no command")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let port =
            timeout(START_LIMIT, lines.next_line()).await.context("it does not listen")??;
        let address = format!("127.0.0.1:{}/acp", port.context("it ended at once")?);
        Ok(Self { address, _child: child, _state: state })
    }

    /// Returns the agent's address over the transport of this scheme: `ws` or `http`.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }
}

pub async fn run(words: &[String], cwd: &Path) -> Result<String> {
    run_with(words, cwd, &[]).await
}

async fn run_with(words: &[String], cwd: &Path, env: &[(&str, &str)]) -> Result<String> {
    let (program, arguments) = words.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(cwd).stdin(Stdio::null()).kill_on_drop(true);
    command.envs(env.iter().copied());
    let output = timeout(CLIENT_LIMIT, command.output()).await.context("it did not end")??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ended with {}\n{said}{complained}", output.status);
    Ok(said)
}

pub fn acpx() -> Result<Vec<String>> {
    let program = installed("agent_client/acpx")?.join("node_modules/acpx/dist/cli.js");
    Ok(vec!["node".to_owned(), program.display().to_string()])
}

/// The newest adapter of a coding agent: the program of an npm package that `foreign/agent_client` pins.
pub fn adapter(folder: &str, program: &str) -> Result<PathBuf> {
    let installed = installed(&format!("agent_client/{folder}"))?;
    let program = installed.join("node_modules/.bin").join(program);
    ensure!(program.is_file(), "{} is missing", program.display());
    Ok(program)
}

pub fn opencode() -> Result<PathBuf> {
    let kind = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let package = format!("node_modules/opencode-linux-{kind}/bin/opencode");
    let program = installed("agent_client/opencode")?.join(package);
    ensure!(program.is_file(), "{} is missing", program.display());
    Ok(program)
}
