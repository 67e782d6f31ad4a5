//! `trilogue init`.

mod editor;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use trilogue::config;
use trilogue::local::agent_catalog::AgentCatalog;
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents;
use trilogue::local::start;
use trilogue_domain::AgentName;

use self::editor::EditorChoice;
use super::agents::entry;
use super::config_file;
use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe, style};

pub(crate) use self::editor::EditorAgent;

/// Write a configuration file with comments, and show how to connect your editor.
///
/// The file changes nothing at first: it has the settings that people change most, each in a comment with its default. The coding agents that are installed are in it, ready to use.
#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The file to write. By default the one that your own server reads.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Print the file in place of writing it.
    #[arg(long, conflicts_with_all = ["force", "file"])]
    print: bool,
    /// Only print what connects this editor to an agent, and write nothing.
    #[arg(long, value_enum, value_name = "EDITOR", conflicts_with_all = ["force", "file", "print"])]
    editor: Option<EditorChoice>,
    /// The agent that the editor gets. By default the first coding agent that is installed, else echo.
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
}

// === impl Init ===

impl Init {
    pub(crate) fn execute(&self, globals: &Globals) -> Result {
        let catalog = AgentCatalog::of_user();
        let installed = installed_agents(&catalog);
        let agent = match (&self.agent, installed.first()) {
            (Some(named), _) => AgentName::parse(named)?.to_string(),
            (None, Some(found)) => found.to_string(),
            (None, None) => "echo".to_owned(),
        };
        let agent = EditorAgent::of_this_program(&agent)?;
        if let Some(editor) = self.editor {
            return editor.print(&agent);
        }
        let text = config::starter(&entries(&installed, &catalog));
        if self.print {
            return print::out(&text);
        }
        let file = config_file::place(self.file.as_ref(), "--file")?;
        self.write(&file, &text)?;
        if globals.json {
            let names: Vec<_> = installed.iter().map(AgentName::as_str).collect();
            return print::json(&json!({ "file": file, "agents": names }));
        }
        let shown = safe::visible(&file.display().to_string());
        print::out(&format!("{} {shown}\n", style::bold("written:")))?;
        let built_in = trilogue::BUILTIN_AGENTS.join(", ");
        print::report(&match installed.is_empty() {
            true => format!("agents: {built_in}\n"),
            false => {
                let names: Vec<_> = installed.iter().map(AgentName::as_str).collect();
                format!("agents: {built_in}; found on this machine: {}\n", names.join(", "))
            }
        })?;
        editor::print_found(&agent)?;
        print::hint(&next(self.file.as_deref()));
        print::hint(
            "add other coding agents with `trilogue agents add NAME`, see `trilogue agents known`",
        );
        Ok(())
    }

    fn write(&self, file: &Path, text: &str) -> Result {
        // Never leaves a file behind that no server reads.
        config::parse(file, text)?;
        if !self.force && file.symlink_metadata().is_ok() {
            let shown = safe::visible(&file.display().to_string());
            return Err(CliError::new(ExitStatus::Conflict, format!("{shown} exists already"))
                .hint("replace it with --force, or write another one with --file FILE"));
        }
        config_file::write(file, text).map_err(|error| config_file::unusable(file, &error))
    }
}

/// The known agents whose program is in the search path.
fn installed_agents(catalog: &AgentCatalog) -> Vec<AgentName> {
    let path = std::env::var("PATH").unwrap_or_default();
    let checkout = Checkout::around_here();
    let found = known_agents::all().iter().filter(|(_, agent)| {
        agent.resolve(catalog, &checkout, &path).is_some_and(|start| !start.is_fetched)
    });
    found.filter_map(|(name, _)| AgentName::parse(name).ok()).collect()
}

fn entries(installed: &[AgentName], catalog: &AgentCatalog) -> String {
    let known =
        installed.iter().filter_map(|name| Some((name, known_agents::find(name.as_str())?)));
    let entries = known.map(|(name, agent)| entry::of_known_agent(name, agent, catalog, None));
    entries.collect::<Vec<_>>().join("\n")
}

/// Returns the next step for the user, in one sentence.
fn next(named: Option<&Path>) -> String {
    if let Some(file) = named {
        let file = safe::visible(&file.display().to_string());
        return format!("start a server with it: `trilogue serve --config {file}`");
    }
    let is_running = user_server_dir().is_ok_and(|dir| start::running(&dir).is_some());
    match is_running {
        true => "your server reads it at its next start: `trilogue stop`, then `trilogue demo`"
            .to_owned(),
        false => "start your server: `trilogue demo`".to_owned(),
    }
}
