//! Our server with the agent of this figure, and a client that reaches it as an editor does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use trilogue_testkit::{Home, Server, ServerOptions};

use super::editor::Editor;
use super::rates::{self, Rates};
use crate::cost::{ProcessorTime, beside};
use crate::report;

/// A server, and a session in it. The server is killed when this is dropped.
pub(super) struct Ours {
    pub(super) server: Server,
    pub(super) editor: Editor,
    _dir: TempDir,
}

// === impl Ours ===

impl Ours {
    /// Starts `program`, which lies beside this one, with a store.
    pub(super) async fn start(program: &str, store: &str) -> Result<Self> {
        let dir = tempfile::tempdir_in(report::folder())?;
        let me = std::env::current_exe()?;
        let settings = format!(
            "[agents.flood]\nkind = \"agent-client\"\ncommand = [{:?}, \"agent\"]\n\n",
            me.display().to_string()
        );
        let binary = Some(beside(program)?);
        let options = ServerOptions { settings, binary, ..report::server_options(store)? };
        let server = Home::new(dir.path(), &options)?.start().await?;
        let editor = Editor::launch(&mut connect(dir.path())?)?;
        Ok(Self { server, editor, _dir: dir })
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

    /// How old each update is when it comes.
    pub(super) fn ages(&mut self) -> Result<Vec<Duration>> {
        self.editor.ages()
    }

    /// Appends that were made since the start: with a disk each is a commit.
    pub(super) async fn commits(&self) -> Result<u64> {
        let status = self.server.client().get("/api/v1/status").await?.ok()?;
        status["store"]["commits"].as_u64().context("no commits are counted")
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.editor.close()?;
        self.server.stop().await?;
        Ok(())
    }
}

/// What an editor launches, for the server in this folder.
fn connect(dir: &Path) -> Result<Command> {
    let mut command = Command::new(beside("trilogue")?);
    command.args(["connect", "flood"]).current_dir(dir).env("XDG_STATE_HOME", dir.join("state"));
    Ok(command)
}
