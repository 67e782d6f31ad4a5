//! `trilogue agents known`.

use std::path::PathBuf;

use clap::Args;
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use trilogue::config::{self, AgentRegistry};
use trilogue::local::agent_catalog::{AgentCatalog, CatalogSource, RegistryAgent, RegistryPackage};
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents::{self, KnownAgent};
use trilogue::local::start;
use trilogue_domain::safe;

use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::command::server_config;
use crate::terminal::exit::Result;
use crate::terminal::{print, table};

/// List the coding agents of the official registry, and those that `run`, `chat`, `wrap` and `agents add` know by name. Needs no server.
///
/// The list is the last copy of the registry, otherwise a table in this program. Only --refresh uses the network.
#[derive(Args, Debug)]
pub(crate) struct KnownCommand {
    /// Show one agent with everything that is known of it.
    agent: Option<String>,
    /// Download the registry of the setting `agent_registry.url` first.
    #[arg(long)]
    refresh: bool,
    /// The configuration file. By default the one that the running server names, otherwise the one that this user's server reads.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// An agent in a list for programs.
#[derive(Serialize)]
struct ListedAgent<'a> {
    source: &'a CatalogSource,
    /// The newest version.
    version: Option<String>,
    /// The package in the version that is fetched.
    fetched: Option<RegistryPackage>,
    /// What the registry says of it.
    registry_entry: Option<&'a RegistryAgent>,
    /// What this program knows of it.
    #[serde(flatten)]
    known: Option<&'a KnownAgent>,
}

// === impl KnownCommand ===

impl KnownCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let catalog = self.catalog().await?;
        if let Some(problem) = &catalog.problem {
            print::note(&format!("{}; {} is used", safe::line(problem), catalog.source));
        }
        if let Some(name) = &self.agent {
            return show(name, &catalog, globals);
        }
        if globals.json {
            return print::json(&list(&catalog));
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let checkout = Checkout::around_here();
        let known = known_agents::all().iter().map(|(name, known)| {
            let start = known.resolve(&catalog, &checkout, &path);
            let starts = match &start {
                Some(start) if start.is_fetched => format!("with {}", start.words[0]),
                Some(_) => "installed".to_owned(),
                None => "not installed".to_owned(),
            };
            let version = known.newest(&catalog).unwrap_or_default();
            [name, &known.title, &version, &starts, &known.command.join(" ")]
                .map(|cell| safe::line(cell))
                .to_vec()
        });
        let others = catalog.agents().iter().filter(|agent| !is_known(agent)).map(|agent| {
            let command = agent.packages.first().map(RegistryPackage::command);
            let starts = if command.is_some() { "after `agents add`" } else { "after installing" };
            let command = command.unwrap_or_default().join(" ");
            [&agent.id, &agent.name, &agent.version, starts, &command].map(safe::line).to_vec()
        });
        let rows = known.chain(others);
        print::out(&table::render(&["NAME", "AGENT", "NEWEST", "STARTS", "COMMAND"], rows))?;
        print::note(&format!("versions: {}", safe::line(&catalog.source.to_string())));
        if catalog.is_old(Timestamp::now()) {
            print::hint("get newer versions with `trilogue agents known --refresh`");
        }
        print::hint(
            "run one with `trilogue run NAME \"TEXT\"`, or add it with `trilogue agents add NAME`",
        );
        Ok(())
    }

    async fn catalog(&self) -> Result<AgentCatalog> {
        let dir = user_server_dir()?;
        let record = start::running(&dir);
        // A running server that names no file says nothing about the registry, so the user's file does.
        let settings = match server_config::file(self.config.as_deref(), record.as_ref()) {
            Some(file) => config::load(&file)?.options.agent_registry,
            None => AgentRegistry::default(),
        };
        if self.refresh {
            Ok(AgentCatalog::refresh(&settings, dir.folder(), Timestamp::now()).await?)
        } else {
            Ok(AgentCatalog::load(&settings, dir.folder()))
        }
    }
}

fn is_known(agent: &RegistryAgent) -> bool {
    known_agents::all().values().any(|known| known.registry == agent.id)
}

fn show(name: &str, catalog: &AgentCatalog, globals: &Globals) -> Result {
    let known = known_agents::find(name);
    let entry = match known {
        Some(known) => catalog.find(&known.registry),
        None => catalog.find(name),
    };
    match (known, entry) {
        (None, None) => Err(crate::command::wrap::unknown(name, catalog)),
        _ if globals.json => print::json(&listed(catalog, known, entry)),
        (Some(known), _) => print::report(&describe(name, known, catalog)),
        (None, Some(entry)) => print::report(&describe_entry(entry)),
    }
}

/// All agents by name, for programs.
fn list(catalog: &AgentCatalog) -> IndexMap<String, Value> {
    let known = known_agents::all().iter().map(|(name, known)| {
        (name.clone(), listed(catalog, Some(known), catalog.find(&known.registry)))
    });
    let others = catalog.agents().iter().filter(|agent| !is_known(agent));
    let others = others.map(|agent| (agent.id.clone(), listed(catalog, None, Some(agent))));
    known.chain(others).map(|(name, agent)| (name, serde_json::json!(agent))).collect()
}

fn listed<'a>(
    catalog: &'a AgentCatalog,
    known: Option<&'a KnownAgent>,
    entry: Option<&'a RegistryAgent>,
) -> ListedAgent<'a> {
    let own = || entry.map(|entry| entry.version.clone());
    ListedAgent {
        source: &catalog.source,
        version: known.map_or_else(own, |known| known.newest(catalog)),
        fetched: match known {
            Some(known) => known.pinned(catalog),
            None => entry.and_then(|entry| entry.packages.first().cloned()),
        },
        registry_entry: entry,
        known,
    }
}

fn describe(name: &str, known: &KnownAgent, catalog: &AgentCatalog) -> String {
    let mut lines = vec![
        format!("{name}: {}", known.title),
        format!("command: {}", known.command.join(" ")),
        format!("version: {} or newer", known.at_least),
        format!("install: {}", known.install),
        format!("asks because of: {}", known.asks),
        format!(
            "starts in: {}",
            if known.in_folder { "the working folder" } else { "an empty folder of Trilogue's" }
        ),
        format!("variables: {}", known.inherit.join(" ")),
        format!("changes in a sandbox: its folder, and {}", known.state.join(" ")),
    ];
    if let Some(newest) = known.newest(catalog) {
        lines.push(format!("newest version: {newest} ({})", catalog.source));
    }
    if let Some(package) = known.pinned(catalog) {
        let runner = package.runner.program();
        lines.push(format!("package: {} {} with {runner}", package.name, package.version));
    }
    if let Some(login) = &known.login {
        lines.push(format!("sign in: {}", login.command.join(" ")));
    }
    lines.extend(known.broken.iter().map(|(version, why)| format!("broken: {version}: {why}")));
    lines.extend(known.notes.iter().map(|note| format!("note: {note}")));
    if let Some(entry) = catalog.find(&known.registry) {
        let is_own = |package: &&RegistryPackage| {
            known.package.as_ref().is_some_and(|own| own.name == package.name)
        };
        for other in entry.packages.iter().filter(|package| !is_own(package)) {
            lines.push(format!(
                "note: the registry also names {} {}, about which this program knows nothing",
                other.name, other.version
            ));
        }
        lines.extend(binary_lines(entry));
    }
    lines.iter().map(|line| safe::line(line) + "\n").collect()
}

fn describe_entry(entry: &RegistryAgent) -> String {
    let mut lines = vec![
        format!("{}: {} {}", entry.id, entry.name, entry.version),
        entry.description.clone(),
        "asks: this program does not know whether it asks before it changes anything".to_owned(),
    ];
    lines.extend(entry.packages.iter().map(|it| format!("command: {}", it.command().join(" "))));
    lines.extend(binary_lines(entry));
    lines.iter().map(|line| safe::line(line) + "\n").collect()
}

/// The archive for this machine, which a user installs.
fn binary_lines(entry: &RegistryAgent) -> Vec<String> {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", architecture) => format!("darwin-{architecture}"),
        (system, architecture) => format!("{system}-{architecture}"),
    };
    let Some(binary) = entry.binaries.get(&platform) else {
        let has_other = entry.packages.is_empty() && !entry.binaries.is_empty();
        let platforms: Vec<_> = entry.binaries.keys().map(String::as_str).collect();
        let line = || format!("archive: none for this machine, only for {}", platforms.join(", "));
        return has_other.then(line).into_iter().collect();
    };
    let digest = binary.sha256.as_deref().unwrap_or("the registry has none");
    vec![
        format!("archive: {}", binary.archive),
        format!("SHA-256 of the archive: {digest}"),
        format!("program in the archive: {}", binary.program),
    ]
}
