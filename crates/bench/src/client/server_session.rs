//! Our server with the agent of this figure, and a client that reaches it as an editor does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use trilogue_testkit::{Home, Server, ServerOptions};

use super::editor::Editor;
use super::link::AgentAddress;
use super::peers::{self, Peer};
use super::rates::{self, Rates};
use crate::cost::{ProcessorTime, sibling_path};
use crate::report;

/// A server, and a session in it. The server is killed when this is dropped.
pub(crate) struct ServerSession {
    pub(crate) server: Server,
    pub(crate) editor: Editor,
    dir: PathBuf,
    /// Removes the folder at the end, if it was made for this session.
    _temporary: Option<TempDir>,
}

/// The sandbox has a figure of its own. It also starts the server's program again by a name that valgrind, which counts, does not know.
const WITHOUT_SANDBOX: &str = "sandbox = \"off\"";

// === impl ServerSession ===

impl ServerSession {
    /// Starts `program`, which is in this program's folder, with a store.
    pub(super) async fn start(program: &str, store: &str) -> Result<Self> {
        let dir = tempfile::tempdir_in(report::folder())?;
        let binary = Some(sibling_path(program)?);
        let options = ServerOptions { binary, ..report::server_options(store)? };
        let session = Self::start_with(dir.path(), &options).await?;
        Ok(Self { _temporary: Some(dir), ..session })
    }

    /// Starts a server with a store and only our agent, which has this setting.
    pub(super) async fn start_flood(store: &str, setting: &str) -> Result<Self> {
        let dir = tempfile::tempdir_in(report::folder())?;
        let settings = agent_settings("flood", &std::env::current_exe()?, setting);
        let options = ServerOptions { settings, ..report::server_options(store)? };
        let session = Self::start_agents(dir.path(), &options).await?;
        Ok(Self { _temporary: Some(dir), ..session })
    }

    /// Starts a server with these options and the agents of this figure.
    pub(crate) async fn start_with(dir: &Path, options: &ServerOptions) -> Result<Self> {
        // Clients over the network work in this folder.
        let roots = format!("roots = [{:?}]\n{WITHOUT_SANDBOX}", dir.canonicalize()?);
        let settings = agent_settings("flood", &std::env::current_exe()?, &roots)
            + &agent_settings("official", &peers::rust_program()?, WITHOUT_SANDBOX);
        Self::start_agents(dir, &ServerOptions { settings, ..options.clone() }).await
    }

    async fn start_agents(dir: &Path, options: &ServerOptions) -> Result<Self> {
        // As many threads as a user's own server has, which is what editors reach.
        let cores = std::thread::available_parallelism()?.get();
        let threads = (cores - 1).max(1).to_string();
        let environment = vec![("TOKIO_WORKER_THREADS".to_owned(), threads.into())];
        let options = ServerOptions { environment, ..options.clone() };
        let dir = &dir.canonicalize()?;
        let server = Home::new(dir, &options)?.start().await?;
        let mut connect = Command::new(sibling_path("trilogue")?);
        let editor = Editor::launch(at(dir, &mut connect).args(["connect", "flood"]))?;
        Ok(Self { server, editor, dir: dir.to_owned(), _temporary: None })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns where clients over the network find an agent.
    pub(super) fn address(&self, agent: &str) -> AgentAddress {
        AgentAddress {
            server: self.server.home().address(),
            path: format!("/client/{agent}"),
            token: self.server.token().to_owned(),
        }
    }

    pub(super) fn rates(&mut self, updates: u64, turns: u64) -> Result<Rates> {
        let (updates, update_micros) = self.updates(updates)?;
        let (turns, turn_micros) = self.turns(turns)?;
        Ok(Rates { updates, turns, update_micros, turn_micros })
    }

    /// Updates of one turn a second, and the server's processor time for one in microseconds.
    pub(super) fn updates(&mut self, count: u64) -> Result<(f64, f64)> {
        let cost = ProcessorTime::of(&self.server)?;
        let turn = self.editor.prompt(&format!("flood {count}"), false)?;
        ensure!(turn.updates == count, "{} of {count} updates came", turn.updates);
        Ok((count as f64 / turn.time.as_secs_f64(), cost.per(count)?))
    }

    /// Turns of one update each a second, one after the other, and the server's processor time for one in microseconds.
    pub(super) fn turns(&mut self, count: u64) -> Result<(f64, f64)> {
        let cost = ProcessorTime::of(&self.server)?;
        let rate = rates::of(count, || {
            let turn = self.editor.prompt("flood 1", false)?;
            ensure!(turn.updates == 1, "{} updates came", turn.updates);
            Ok(())
        })?;
        Ok((rate, cost.per(count)?))
    }

    /// Returns the rates of the official library's client and agent with the server between them.
    pub(super) fn official_rates(&self, official: &Peer) -> Result<Rates> {
        let connect = [sibling_path("trilogue")?.into(), "connect".into(), "official".into()];
        official.rates_with(&connect, |client| {
            at(&self.dir, client);
        })
    }

    /// How old each update is when it comes.
    pub(super) fn ages(&mut self) -> Result<Vec<Duration>> {
        self.editor.ages()
    }

    /// Appends that were made since the start: with a disk each is a commit.
    pub(super) async fn commits(&self) -> Result<u64> {
        let status = self.server.client().get("/api/v1/status").await?.ok()?;
        status["store"]["commits"].as_u64().context("no commits are counted")
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.editor.close()?;
        self.server.stop().await?;
        Ok(())
    }
}

/// The settings of an agent that this program starts, with one more line.
fn agent_settings(name: &str, program: &Path, setting: &str) -> String {
    let program = program.display().to_string();
    format!(
        "[agents.{name}]\nkind = \"agent-client\"\ncommand = [{program:?}, \"agent\"]\n{setting}\n\n"
    )
}

/// Lets a program find the server in this folder.
fn at<'a>(dir: &Path, command: &'a mut Command) -> &'a mut Command {
    command.current_dir(dir).env("XDG_STATE_HOME", dir.join("state"))
}
