//! `trilogue demo`.

use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use indexmap::IndexMap;
use trilogue::config::{Agent, AgentKind, DEFAULT_PORT, Log, LogFormat, Mount, Options, Protocol};
use trilogue::local::LocalListener;
use trilogue::{App, token_file};

use crate::exit::{CliError, Result};
use crate::globals::Globals;
use crate::server_command::Overrides;
use crate::terminal::{print, style};

/// Start a server with the built-in agents and print what to try.
///
/// Threads are kept in the per-user state folder and survive a restart.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    #[command(flatten)]
    overrides: Overrides,
}

// === impl Demo ===

impl Demo {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let state = token_file::state_dir().map_err(|error| {
            CliError::usage(format!("cannot find the state folder: {error}"))
                .hint("set XDG_STATE_HOME")
        })?;
        token_file::make_private_dir(&state).map_err(|error| {
            CliError::failed(format!("cannot create the folder {}: {error}", state.display()))
        })?;
        let mut options = Options {
            agents: built_in(),
            log: Log { format: LogFormat::Text, level: "warn".to_owned() },
            ..Options::default()
        };
        options.store.url = format!("sqlite:{}", state.join("demo.db").display());
        self.overrides.apply(&mut options);
        let store = options.store.url.clone();
        let mounts = options.mounts_in_force()?;
        let say = |app: &App| print::out(&welcome(app, &store, &mounts));
        self.overrides.serve(&options, globals.json, say).await
    }
}

pub(crate) fn built_in() -> IndexMap<String, Agent> {
    let agent = Agent::of(AgentKind::Builtin);
    trilogue::BUILTIN_AGENTS.iter().map(|name| ((*name).to_owned(), agent.clone())).collect()
}

/// The address, and what to try, as commands that work when pasted.
fn welcome(app: &App, store: &str, mounts: &[Mount]) -> String {
    let Some(address) = app.addresses().first() else { return String::new() };
    let url = format!("http://{address}");
    let is_found = matches!(app.local_listener(), LocalListener::Open(_));
    let (to, program) = (named(*address, is_found), program());
    let mut text = format!("{} {url}\n\nTry in another terminal:\n\n", style::bold("listening:"));
    for command in [
        "agents",
        "run echo 'Hello'",
        "run researcher 'honey bees' --save research",
        "run mailcomposer 'Write to ada@example.com saying that the meeting moves to Friday'",
        "inbox",
        "chat mailcomposer",
    ] {
        text.push_str(&format!("  {program} {command}{to}\n"));
    }
    if let Some(file) = app.token_files().first() {
        text.push_str(&format!(
            "\n  curl -sS -H \"Authorization: Bearer $(cat {})\" -H 'Content-Type: application/json' -d '{{\"agent\":\"echo\",\"input\":\"Hello\"}}' {url}/api/v1/runs\n",
            quoted(file)
        ));
    }
    text.push('\n');
    for mount in mounts {
        let name = match mount.protocol {
            Protocol::Communication => "Agent Communication Protocol",
            Protocol::Connect => "Agent Connect Protocol",
        };
        text.push_str(&format!("{name}: {url}{}\n", mount.path()));
    }
    if is_found {
        text.push_str(&format!(
            "Agent Client Protocol: an editor starts {program} connect researcher, or {program} wrap -- COMMAND for any other agent\n"
        ));
    }
    text.push_str(&format!("\nStop with Ctrl-C. Threads are kept in {store}\n"));
    text
}

/// The option with which commands reach a server at this address, with a space before it. `is_found` says that commands find this server by themselves.
fn named(address: SocketAddr, is_found: bool) -> String {
    let is_usual = address.ip().is_loopback() && address.port() == DEFAULT_PORT;
    if is_usual && is_found { String::new() } else { format!(" --url http://{address}") }
}

/// This program as a command: its name where the search path finds it, else its path.
fn program() -> String {
    let Ok(here) = std::env::current_exe() else { return "trilogue".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join("trilogue")).find(|it| it.is_file());
    match found.and_then(|file| file.canonicalize().ok()) {
        Some(file) if here.canonicalize().is_ok_and(|here| here == file) => "trilogue".to_owned(),
        _ => quoted(&here),
    }
}

fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+');
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_server_unless_they_find_it() {
        let usual: SocketAddr = "127.0.0.1:7878".parse().unwrap();
        assert_eq!(named(usual, true), "");
        assert_eq!(named(usual, false), " --url http://127.0.0.1:7878");
        for is_found in [true, false] {
            let other = named("127.0.0.1:7879".parse().unwrap(), is_found);
            assert_eq!(other, " --url http://127.0.0.1:7879");
        }
    }
}
