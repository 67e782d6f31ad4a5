//! `trilogue agents add`.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use trilogue::config;
use trilogue::known_agents::{self, FETCH_LIMIT, KnownAgent};
use trilogue::local::start;
use trilogue_domain::AgentName;

use crate::exit::{CliError, ExitStatus, Result};
use crate::globals::Globals;
use crate::terminal::{print, safe};

/// The first lines of a configuration file that this command creates.
const NEW_FILE: &str =
    "# The configuration of your server. All settings: docs/reference/configuration.md\n";

/// Add a known agent or a command to a configuration file.
///
/// It appends the agent's settings with comments, and leaves the rest of the file as it is.
#[derive(Args, Debug)]
pub(crate) struct AddCommand {
    /// A known agent, or the name of the agent whose command follows.
    agent: String,
    /// The name at the server. By default the agent's.
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// The configuration file. By default the one that this user's server reads.
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
        let file = self.file()?;
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => new_file(),
            Err(error) => return Err(unusable(&file, &error)),
        };
        let before = config::parse(&file, &text)?;
        if before.options.agents.contains_key(name.as_str()) {
            let message = format!("{} has an agent '{name}' already", file.display());
            return Err(CliError::new(ExitStatus::Conflict, message)
                .hint("give this one another name with --as"));
        }
        let entry = self.entry(&name)?;
        let gap = if text.is_empty() || text.ends_with("\n\n") {
            ""
        } else if text.ends_with('\n') {
            "\n"
        } else {
            "\n\n"
        };
        let text = format!("{text}{gap}{entry}");
        config::parse(&file, &text)?;
        write(&file, &text).map_err(|error| unusable(&file, &error))?;
        if globals.json {
            return print::json(&serde_json::json!({ "agent": name.as_str(), "file": file }));
        }
        print::out(&entry)?;
        print::note(&format!("added to {}", file.display()));
        print::hint(&format!(
            "the server has it from its next start on; then: trilogue run {name} \"TEXT\""
        ));
        Ok(())
    }

    fn file(&self) -> Result<PathBuf> {
        let file = self.config.clone().or_else(start::config_path);
        file.ok_or_else(|| {
            CliError::usage("cannot find the configuration folder")
                .hint("set XDG_CONFIG_HOME, or name the file with --config")
        })
    }

    fn entry(&self, name: &AgentName) -> Result<String> {
        let cwd = self.cwd.as_ref().map_or_else(
            || "# cwd = \"work/{thread}\"  # a folder of its own for each thread; without it, the folder that its client names\n".to_owned(),
            |cwd| format!("cwd = {}\n", quoted(cwd)),
        );
        if !self.command.is_empty() {
            let (key, command) = (key(name), list(&self.command));
            return Ok(format!(
                "[agents.{key}]\nkind = \"agent-client\"\ncommand = {command}\n# inherit = [\"OPENAI_API_KEY\"]  # variables of the server that it gets\n{cwd}"
            ));
        }
        let known = known_agents::find(&self.agent);
        let known = known.ok_or_else(|| crate::command::wrap::unknown(&self.agent))?;
        Ok(known_entry(name, known, &cwd))
    }
}

fn known_entry(name: &AgentName, known: &KnownAgent, cwd: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let start = known.resolve(&path);
    let mut text =
        format!("# {}. It asks before it changes anything: {}.\n", known.title, known.asks);
    for note in &known.notes {
        text.push_str(&format!("# Note: {note}.\n"));
    }
    text.push_str(&format!("[agents.{}]\nkind = \"agent-client\"\n", key(name)));
    text.push_str(&format!("description = {}\n", quoted(&known.title)));
    match &start {
        Some(start) if start.is_fetched => text.push_str(&format!(
            "# Faster: {}, then command = {}\ncommand = {}\nstart_timeout = \"{}s\"  # the first start fetches it\n",
            known.install,
            list(&known.command),
            list(&start.words),
            FETCH_LIMIT.as_secs(),
        )),
        Some(start) => text.push_str(&format!("command = {}\n", list(&start.words))),
        None => text.push_str(&format!(
            "# Not installed yet: {}\ncommand = {}\n",
            known.install,
            list(&known.command),
        )),
    }
    if !known.inherit.is_empty() {
        let inherit = list(&known.inherit);
        text.push_str(&format!(
            "inherit = {inherit}  # keys and settings, from the server's environment\n"
        ));
    }
    if !known.env.is_empty() {
        let pairs: Vec<_> =
            known.env.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        text.push_str(&format!("env = {{ {} }}\n", pairs.join(", ")));
    }
    if !known.mode.is_empty() {
        text.push_str(&format!("mode = {}\n", list(&known.mode)));
    }
    text.push_str("# model = \"…\"  # by its id or name; `trilogue agents NAME` shows what there is after the first run\n");
    let methods: Vec<_> =
        known.key_methods.iter().map(|(key, method)| format!("\"{method}\" uses {key}")).collect();
    let keys = std::env::vars().collect();
    if let Some(method) = known.key_method(&keys) {
        text.push_str(&format!("auth_method = \"{method}\"  # {}\n", methods.join(", ")));
    } else if let Some(method) = known.key_methods.values().next() {
        text.push_str(&format!("# auth_method = \"{method}\"  # {}\n", methods.join(", ")));
    }
    text.push_str(cwd);
    text.push_str("# mcp_servers.NAME = { command = [\"…\"] }  # tools for every session\n");
    text
}

/// A new file keeps the agents that a server without a file has.
fn new_file() -> String {
    let mut text = format!("{NEW_FILE}\n# The built-in agents.\n");
    for name in trilogue::BUILTIN_AGENTS {
        text.push_str(&format!("[agents.{name}]\nkind = \"builtin\"\n\n"));
    }
    text
}

/// The name as a key of the file.
fn key(name: &AgentName) -> String {
    let is_bare = !name.as_str().contains('.');
    if is_bare { name.as_str().to_owned() } else { quoted(name.as_str()) }
}

fn list(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Writes the whole file or nothing. A file that is there keeps its permissions; a new one is this user's only.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    // A link stays one.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let draft = file.with_extension("toml.new");
    let mut open = fs::File::options();
    let mut out = open.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    if let Ok(found) = fs::metadata(&file) {
        out.set_permissions(fs::Permissions::from_mode(found.permissions().mode()))?;
    }
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&draft, &file)
}

fn unusable(file: &Path, error: &std::io::Error) -> CliError {
    let file = safe::visible(&file.display().to_string());
    CliError::failed(format!("cannot use {file}: {error}"))
}
