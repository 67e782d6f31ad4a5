//! `trilogue wrap`.

use clap::Args;
use trilogue::local::agent_catalog::{AgentCatalog, RegistryAgent};
use trilogue::local::known_agents;
use trilogue_wire::native::local::{AgentTarget, Attach};

use crate::command::ad_hoc::{AdHocArguments, AgentSource, known_command, wrap_command};
use crate::command::connect::ProxyArguments;
use crate::command::globals::Globals;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::safe;

/// Connect an editor to a known agent or to any agent command; the editor launches this instead of the command.
///
/// `trilogue agents known` lists the known agents. Any other command must speak the Agent Client Protocol on its standard input and output. This user's server starts it in the current folder with the current environment, which the server keeps in memory only.
/// Its sessions become threads: they outlive the editor, and `trilogue threads`, `tail`, `inbox` and `approve` work with them.
#[derive(Args, Debug)]
pub(crate) struct Wrap {
    /// A known agent, such as claude or gemini.
    #[arg(value_name = "AGENT", required_unless_present = "command", conflicts_with = "command")]
    agent: Option<String>,
    /// The agent's name. By default it is derived from the command and the folder. Two commands cannot have one name while the server runs.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    proxy: ProxyArguments,
    /// The command and its arguments.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

// === impl Wrap ===

impl Wrap {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let cwd = AdHocArguments::default().folder()?;
        let mut command = match &self.agent {
            Some(name) => match AgentSource::find(name, globals).await? {
                AgentSource::Known(known) => known_command(name, known, cwd)?,
                AgentSource::Server if self.name.is_some() => {
                    let name = safe::visible(name);
                    let message = format!("--name: the server has an agent '{name}' already");
                    return Err(CliError::usage(message).hint("leave --name out"));
                }
                AgentSource::Server => {
                    let attach = Attach { agent: name.clone(), cwd: Some(cwd) };
                    return self.proxy.relay(AgentTarget::Attach(attach), globals).await;
                }
                AgentSource::Unknown => return Err(unstartable(name, &AgentCatalog::of_user())),
            },
            None => wrap_command(self.command.clone(), cwd),
        };
        command.name.clone_from(&self.name);
        self.proxy.relay(AgentTarget::Wrap(command), globals).await
    }
}

/// The error for a name with which no agent can be started.
pub(crate) fn unstartable(name: &str, catalog: &AgentCatalog) -> CliError {
    let Some(entry) = catalog.find(name) else { return unknown(name, catalog) };
    let message = format!(
        "'{}' is not a known agent: the registry has it, but nothing says whether it asks",
        entry.id
    );
    let hint = match entry.packages.is_empty() {
        true => after_installing(entry),
        false => format!("add it to your configuration: `trilogue agents add {}`", entry.id),
    };
    CliError::new(ExitStatus::NotFound, message).hint(hint)
}

/// How to add an agent that no package runner fetches.
pub(crate) fn after_installing(entry: &RegistryAgent) -> String {
    format!(
        "install its archive, which `trilogue agents known {0}` shows; then: trilogue agents add {0} -- PROGRAM",
        entry.id
    )
}

/// The error for a name that neither a known agent nor an agent of the registry has.
pub(crate) fn unknown(name: &str, catalog: &AgentCatalog) -> CliError {
    let names: Vec<_> = known_agents::all().keys().map(String::as_str).collect();
    let hint = match known_agents::nearest(name, catalog) {
        Some(near) if names.contains(&near) => {
            format!("did you mean {near}? Give any other command after --")
        }
        Some(near) => format!(
            "did you mean {near}? The registry has it: `trilogue agents known {near}` shows it"
        ),
        None => format!("there are: {}. Give any other command after --", names.join(", ")),
    };
    let message = format!("'{}' is not a known agent", safe::visible(name));
    CliError::new(ExitStatus::NotFound, message).hint(hint)
}
