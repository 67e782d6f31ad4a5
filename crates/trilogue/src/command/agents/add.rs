//! `trilogue agents add`.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use trilogue::config;
use trilogue::local::agent_catalog::AgentCatalog;
use trilogue::local::{known_agents, start};
use trilogue_domain::AgentName;

use super::entry;
use crate::command::config_file::{self, unusable};
use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::command::server_config;
use crate::command::wrap::{after_installing, unknown};
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::print;

/// Add a known agent, an agent of the registry or a command to a configuration file.
///
/// It appends the agent's settings with comments, and leaves the rest of the file as it is.
#[derive(Args, Debug)]
pub(crate) struct AddCommand {
    /// A known agent, an agent of the registry, or the name of the agent whose command follows.
    agent: String,
    /// The name at the server. By default the agent's.
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// The configuration file. By default the one that the running server names, otherwise the one that this user's server reads.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The folder in which the agent works, such as work/{thread}. By default the one that its client names.
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<String>,
    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

// === impl AddCommand ===

impl AddCommand {
    pub(crate) fn execute(&self, globals: &Globals) -> Result {
        let name = AgentName::parse(self.name.as_deref().unwrap_or(&self.agent))?;
        let record = user_server_dir().ok().and_then(|dir| start::running(&dir));
        let known = server_config::file(self.config.as_deref(), record.as_ref());
        let file = config_file::place(known.as_ref(), "--config")?;
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => config::starter(""),
            Err(error) => return Err(unusable(&file, &error)),
        };
        let before = config::parse(&file, &text)?;
        if before.options.agents.contains_key(name.as_str()) {
            let message = format!("{} has an agent '{name}' already", file.display());
            return Err(CliError::new(ExitStatus::Conflict, message)
                .hint("give this one another name with --as"));
        }
        let entry = self.entry(&name, &before.options)?;
        let gap = if text.is_empty() || text.ends_with("\n\n") {
            ""
        } else if text.ends_with('\n') {
            "\n"
        } else {
            "\n\n"
        };
        let text = format!("{text}{gap}{entry}");
        config::parse(&file, &text)?;
        config_file::write(&file, &text).map_err(|error| unusable(&file, &error))?;
        if globals.json {
            return print::json(&serde_json::json!({ "agent": name.as_str(), "file": file }));
        }
        print::out(&entry)?;
        print::note(&format!("added to {}", file.display()));
        let first = match record {
            Some(_) => "restart your server, which does not have it yet: `trilogue stop`",
            None => "the server has it from its next start on",
        };
        print::hint(&format!("{first}; then: trilogue run {name} \"TEXT\""));
        Ok(())
    }

    fn entry(&self, name: &AgentName, options: &config::Options) -> Result<String> {
        let cwd = self.cwd.as_deref();
        if !self.command.is_empty() {
            return Ok(entry::of_command(name, &self.command, cwd));
        }
        let dir = user_server_dir()?;
        let catalog = AgentCatalog::load(&options.agent_registry, dir.folder());
        if let Some(known) = known_agents::find(&self.agent) {
            return Ok(entry::of_known_agent(name, known, &catalog, cwd));
        }
        let agent = catalog.find(&self.agent);
        let agent = agent.ok_or_else(|| unknown(&self.agent, &catalog))?;
        entry::of_registry_agent(name, agent, cwd).ok_or_else(|| {
            let message = format!("the agent '{}' has no package for npx or uvx", agent.id);
            CliError::new(ExitStatus::NotFound, message).hint(after_installing(agent))
        })
    }
}
