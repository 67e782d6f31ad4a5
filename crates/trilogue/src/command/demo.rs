//! `trilogue demo`.

use std::path::{Path, PathBuf};

use clap::Args;
use trilogue::App;
use trilogue::config::{List, Log, LogFormat, Options, Socket};
use trilogue::local::{
    LocalListener, LogFile, ServerRecord, StartedBy, UserServerDir, built_in_agents, start,
    user_options,
};

use super::init::EditorAgent;
use crate::command::globals::Globals;
use crate::command::server_command::{Overrides, ServerPlace, claim, user_server_dir};
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, style};

/// Start this user's server with the built-in agents, and print what to try.
///
/// It is the server that `connect` and `wrap` start too, with the same store and settings: those of `trilogue/trilogue.toml` in the user's configuration folder, if that file exists. Threads are kept in the per-user state folder.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Start a temporary server beside this user's server: on any free port, with the built-in agents only, and with threads in memory.
    #[arg(long)]
    throwaway: bool,
    #[command(flatten)]
    overrides: Overrides,
}

// === impl Demo ===

impl Demo {
    pub(crate) fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        if self.throwaway {
            return self.serve_throwaway(globals).await;
        }
        let dir = user_server_dir()?;
        let mut local_listener = match claim(&dir, StartedBy::Demo).await? {
            Ok(local_listener) => local_listener,
            Err(by) => return Err(runs_already(by.as_ref())),
        };
        let mut options = user_options(&dir)?;
        if let Some(file) = start::config_file() {
            local_listener.set_config(&file);
        }
        for (name, agent) in built_in_agents() {
            options.agents.entry(name).or_insert(agent);
        }
        let file_log = std::mem::replace(&mut options.log, terminal_log());
        let overrides = self.in_folder(&dir)?;
        overrides.apply(&mut options);
        let place = ServerPlace {
            local_listener,
            log_file: Some((LogFile::at(dir.log()), file_log)),
            any_port: !overrides.says_where(),
        };
        let keeps = match options.store.url.strip_prefix("sqlite:") {
            Some(path) => format!("Threads stay in {}", from_home(Path::new(path))),
            None if options.store.url == "memory:" => "Threads are kept in memory".to_owned(),
            None => format!("Threads stay in {}", trilogue_store::redacted_url(&options.store.url)),
        };
        let say = |app: &App| print::out(&welcome(app, &keeps));
        overrides.serve(&options, place, globals.json, say).await
    }

    async fn serve_throwaway(&self, globals: &Globals) -> Result {
        let mut options =
            Options { agents: built_in_agents(), log: terminal_log(), ..Options::in_memory() };
        options.server.listen = List(vec![([127, 0, 0, 1], 0).into()]);
        options.server.socket = Socket::Off;
        self.overrides.apply(&mut options);
        let place =
            ServerPlace { local_listener: LocalListener::Off, log_file: None, any_port: false };
        let mut token_files = Vec::new();
        let say = |app: &App| {
            token_files = app.token_files().to_vec();
            print::out(&welcome(app, "Nothing is kept"))
        };
        let served = self.overrides.serve(&options, place, globals.json, say).await;
        for file in token_files {
            // The token died with its store.
            let _ = std::fs::remove_file(file);
        }
        served
    }

    /// Enters the folder of the user's server, in which the relative paths of its settings begin. Relative paths of the command line begin in the caller's
    /// folder.
    fn in_folder(&self, dir: &UserServerDir) -> Result<Overrides> {
        let entered = self.overrides.with_absolute_paths().and_then(|overrides| {
            std::env::set_current_dir(dir.folder())?;
            Ok(overrides)
        });
        entered.map_err(|error| {
            CliError::failure(format!("cannot enter {}: {error}", dir.folder().display()))
        })
    }
}

/// The log settings for a person at the terminal.
fn terminal_log() -> Log {
    Log { format: LogFormat::Text, level: "warn".to_owned() }
}

fn runs_already(by: Option<&ServerRecord>) -> CliError {
    let who = by.map_or_else(String::new, |by| format!(": {by}"));
    CliError::new(ExitStatus::Conflict, format!("your server runs already{who}")).hint(
        "use it, as in `trilogue run echo Hello`; stop it with `trilogue stop`; or start a temporary one beside it with `trilogue demo --throwaway`",
    )
}

/// Returns the address and examples, as commands that work when pasted.
fn welcome(app: &App, keeps: &str) -> String {
    let Some(address) = app.addresses().first() else { return String::new() };
    let url = format!("http://{address}");
    let is_found = matches!(app.local_listener(), LocalListener::Open(_));
    // Commands find this user's server without an option.
    let to = if is_found { String::new() } else { format!(" --url {url}") };
    let program = this_program();
    let command = shell_word(&program);
    let mut text = format!("{} {url}\n", style::bold("listening:"));
    text.push_str(&format!(
        "In another terminal:\n  {command} run echo Hello{to}\n  {command} ui{to}\n"
    ));
    text.push_str("From a program:\n  curl ");
    if let Some(file) = app.token_files().first() {
        text.push_str(&format!("-H \"x-api-key: $(cat {})\" \\\n    ", from_home(file)));
    }
    text.push_str(&format!("-d '{{\"agent\":\"echo\",\"input\":\"Hello\"}}' {url}/api/v1/runs\n"));
    if is_found {
        let entry = EditorAgent::new(&program, "echo").zed_entry();
        text.push_str(&format!(
            "In an editor, for example under \"agent_servers\" in Zed's settings:\n  {entry}\n"
        ));
    }
    text.push_str(&format!("Press Ctrl-C to stop. {keeps}.\n"));
    text
}

/// Returns the command of this program: its name if the search path finds it, otherwise its path.
fn this_program() -> PathBuf {
    let Ok(here) = std::env::current_exe() else { return PathBuf::from("trilogue") };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join("trilogue")).find(|it| it.is_file());
    match found.and_then(|file| file.canonicalize().ok()) {
        Some(file) if here.canonicalize().is_ok_and(|here| here == file) => {
            PathBuf::from("trilogue")
        }
        _ => here,
    }
}

/// Formats a path for a shell, shortened if it is below the home folder.
fn from_home(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) if is_plain(below) => format!("~/{}", below.display()),
        _ => shell_word(path),
    }
}

/// A path as a shell reads it.
pub(crate) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    if is_plain(path) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Whether a shell reads a path as it is.
fn is_plain(path: &Path) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+');
    path.to_str().is_some_and(|text| text.chars().all(plain))
}
