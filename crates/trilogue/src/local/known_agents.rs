//! Coding agents that the program knows by name: how to start each, and in which way each asks before it acts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::local::agent_catalog::{AgentCatalog, RegistryPackage, StartWords};
use crate::local::checkout::Checkout;
use crate::local::start_folder;

/// How long an agent may take to start if a package runner has to fetch it first.
pub const FETCH_LIMIT: Duration = Duration::from_secs(300);

/// A coding agent that speaks the Agent Client Protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownAgent {
    /// The name that its makers give it.
    pub title: String,
    /// The installed program and its arguments.
    pub command: Vec<String>,
    /// Its id in the Agent Client Protocol's registry, which names its newest version.
    pub registry: String,
    /// Where a package runner gets it if it is not installed. Another package of the registry does not count: this description may not fit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<AgentPackage>,
    /// The oldest version that this description fits.
    pub at_least: String,
    /// Versions that do not work, and why. None of them is fetched.
    #[serde(default)]
    pub broken: IndexMap<String, String>,
    /// A command or an address that installs it.
    pub install: String,
    /// The variables by which it gets keys and settings.
    #[serde(default)]
    pub inherit: Vec<String>,
    /// Variables that it is started with, unless its user has set them.
    #[serde(default)]
    pub env: IndexMap<String, String>,
    /// The mode in which it asks before it changes anything: the first of these that it offers.
    #[serde(default)]
    pub mode: Vec<String>,
    /// Whether its process starts in the working folder. Any other starts in [`crate::local::start_folder`] and gets its working folder through the protocol.
    #[serde(default)]
    pub in_folder: bool,
    /// Whether its running child processes keep it from being idle: it works in the background through them.
    #[serde(default)]
    pub idle_children: bool,
    /// The files and folders in which it keeps its state, which it may change in a sandbox.
    #[serde(default)]
    pub state: Vec<String>,
    /// The sign-in methods that use a key, by the key's variable.
    #[serde(default)]
    pub key_methods: IndexMap<String, String>,
    /// How a person signs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<LoginMethod>,
    /// Why it asks before it changes anything.
    pub asks: String,
    /// What else to know.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A package that a runner fetches and starts. The catalog has its version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPackage {
    /// The program that fetches it.
    pub runner: PackageRunner,
    /// Its name in the runner's registry.
    pub name: String,
}

/// A program that fetches packages and starts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageRunner {
    /// Of npm.
    Npx,
    /// Of uv.
    Uvx,
}

/// How a person signs in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginMethod {
    /// A command for a terminal.
    pub command: Vec<String>,
    /// The agent's own method for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
}

/// A command that starts an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartCommand {
    /// The file of the program.
    pub program: PathBuf,
    /// The program by its name, and its arguments.
    pub words: Vec<String>,
    /// Whether a package runner may have to fetch the agent first.
    pub is_fetched: bool,
}

static KNOWN: LazyLock<IndexMap<String, KnownAgent>> = LazyLock::new(|| {
    // A test reads the file, so that it always parses.
    parse().unwrap_or_default()
});

/// The variables by which programs find proxies and trust certificates. Every known agent gets them.
const NETWORK_VARIABLES: [&str; 14] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];
/// The ends of the names of variables that hold credentials, or say where they are.
const CREDENTIAL_ENDS: [&str; 6] =
    ["_KEY", "_KEY_ID", "_TOKEN", "_TOKEN_BEDROCK", "_CREDENTIALS", "_CREDENTIALS_FILE"];

fn parse() -> Result<IndexMap<String, KnownAgent>, toml::de::Error> {
    let mut agents: IndexMap<String, KnownAgent> =
        toml::from_str(include_str!("known_agents.toml"))?;
    for agent in agents.values_mut() {
        agent.inherit.extend(NETWORK_VARIABLES.map(str::to_owned));
    }
    Ok(agents)
}

/// All known agents, by name.
#[must_use]
pub fn all() -> &'static IndexMap<String, KnownAgent> {
    &KNOWN
}

/// The agent that a command starts, installed or through a package runner.
#[must_use]
pub fn of_command(command: &[String]) -> Option<&'static KnownAgent> {
    let program = command.first().and_then(|program| Path::new(program).file_name()?.to_str())?;
    KNOWN.values().find(|agent| {
        let is_package =
            |package: &AgentPackage| program == package.runner.program() && package.is_in(command);
        agent.command.first().is_some_and(|own| own == program)
            || agent.package.as_ref().is_some_and(is_package)
    })
}

/// The agent with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static KnownAgent> {
    KNOWN.get(name)
}

/// The name of a known agent or the id of an agent of the catalog that was most likely meant, if any is near enough.
#[must_use]
pub fn nearest<'a>(written: &str, catalog: &'a AgentCatalog) -> Option<&'a str> {
    let ids = catalog.agents().iter().map(|agent| agent.id.as_str());
    let names: Vec<_> = KNOWN.keys().map(String::as_str).chain(ids).collect();
    config::nearest(written, &names)
}

// === impl KnownAgent ===

impl KnownAgent {
    /// Returns the command that starts it: the program in the search path `path`, otherwise its package runner with the catalog's version, both outside of the
    /// checkout. `None` if neither is installed.
    #[must_use]
    pub fn resolve(
        &self,
        catalog: &AgentCatalog,
        checkout: &Checkout,
        path: &str,
    ) -> Option<StartCommand> {
        let program = self.command.first()?;
        if let Some(found) = checkout.find_outside(program, path) {
            let words = self.command.clone();
            return Some(StartCommand { program: found, words, is_fetched: false });
        }
        let package = self.pinned(catalog)?;
        let runner = checkout.find_outside(package.runner.program(), path)?;
        Some(StartCommand { program: runner, words: package.command(), is_fetched: true })
    }

    /// Returns the package in the version that is fetched: exactly the catalog's.
    #[must_use]
    pub fn pinned(&self, catalog: &AgentCatalog) -> Option<RegistryPackage> {
        let (program, arguments) = self.command.split_first()?;
        let package = self.package.as_ref()?;
        let works = |version: &&str| !self.broken.contains_key(*version);
        let version = catalog.version_of(&self.registry, package).filter(works).or_else(|| {
            AgentCatalog::built_in().version_of(&self.registry, package).filter(works)
        })?;
        Some(RegistryPackage {
            runner: package.runner,
            name: package.name.clone(),
            version: version.to_owned(),
            // npx finds the program of a package by itself.
            program: (package.runner == PackageRunner::Uvx).then(|| program.clone()),
            start: StartWords { arguments: arguments.to_vec(), ..StartWords::default() },
        })
    }

    /// Returns the newest version that the catalog knows and that this description may fit.
    #[must_use]
    pub fn newest(&self, catalog: &AgentCatalog) -> Option<String> {
        match &self.package {
            Some(_) => self.pinned(catalog).map(|package| package.version),
            None => catalog.find(&self.registry).map(|agent| agent.version.clone()),
        }
    }

    /// Returns the exact version in which a command of this agent fetches it.
    #[must_use]
    pub fn fetched_version<'a>(&self, command: &'a [String]) -> Option<&'a str> {
        self.package.as_ref()?.version_in(command)
    }

    /// The method that signs in with a key that is set in this environment.
    #[must_use]
    pub fn key_method(&self, env: &BTreeMap<String, String>) -> Option<&str> {
        let is_set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
        self.key_methods.iter().find(|(name, _)| is_set(name)).map(|(_, method)| method.as_str())
    }

    /// The variables from which it may take credentials.
    #[must_use]
    pub fn credentials(&self) -> Vec<String> {
        let holds = |name: &&String| CREDENTIAL_ENDS.iter().any(|end| name.ends_with(end));
        self.inherit.iter().filter(holds).cloned().collect()
    }

    /// The folder in which its process starts, if that is not where it works.
    ///
    /// # Errors
    /// When that folder cannot be prepared.
    pub fn start_dir(&self) -> io::Result<Option<PathBuf>> {
        if self.in_folder { Ok(None) } else { start_folder::prepare().map(Some) }
    }

    /// Adds the variables that it is started with. Those that are set stay.
    pub fn add_env(&self, env: &mut BTreeMap<String, String>) {
        for (name, value) in &self.env {
            env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }

    /// Returns what to do if it is not installed.
    #[must_use]
    pub fn install_hint(&self) -> String {
        match self.install.starts_with("https://") {
            true => format!("install it: {}", self.install),
            false => format!("install it with `{}`", self.install),
        }
    }
}

// === impl AgentPackage ===

impl AgentPackage {
    fn is_in(&self, command: &[String]) -> bool {
        command.iter().any(|word| self.range_in(word).is_some())
    }

    /// The exact version in which a command fetches it. `None` if the command does not name one.
    fn version_in<'a>(&self, command: &'a [String]) -> Option<&'a str> {
        let range = command.iter().find_map(|word| self.range_in(word))?;
        let version = range.strip_prefix('@').or_else(|| range.strip_prefix("=="))?;
        version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
    }

    /// What follows the package's name in a word of a command.
    fn range_in<'a>(&self, word: &'a str) -> Option<&'a str> {
        let rest = word.strip_prefix(self.name.as_str())?;
        (rest.is_empty() || rest.starts_with(['@', '=', '>'])).then_some(rest)
    }
}

// === impl PackageRunner ===

impl PackageRunner {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Npx => "npx",
            Self::Uvx => "uvx",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trilogue_domain::AgentName;

    #[test]
    fn every_known_agent_can_be_read_and_started() {
        assert_eq!(parse().unwrap(), *all());
        let wanted = [
            "claude",
            "codex",
            "gemini",
            "opencode",
            "qwen",
            "goose",
            "fast-agent",
            "cursor",
            "copilot",
        ];
        for name in wanted {
            assert!(find(name).is_some(), "{name}");
        }
        for (name, agent) in all() {
            assert!(AgentName::parse(name).is_ok(), "{name}");
            assert!(!agent.command.is_empty() && !agent.asks.is_empty(), "{name}");
            let newest = agent.newest(AgentCatalog::built_in());
            assert!(
                newest.is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit())),
                "{name}"
            );
            assert_eq!(agent.pinned(AgentCatalog::built_in()).is_some(), agent.package.is_some());
            for key in agent.key_methods.keys() {
                assert!(agent.inherit.contains(key), "{name} does not inherit {key}");
            }
        }
    }

    #[test]
    fn an_installed_program_comes_before_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let checkout = Checkout::around(Path::new("/"));
        let catalog = AgentCatalog::built_in();
        let (gemini, goose) = (find("gemini").unwrap(), find("goose").unwrap());
        assert_eq!(gemini.resolve(catalog, &checkout, &path), None);
        std::fs::write(folder.path().join("npx"), "").unwrap();
        let fetched = gemini.resolve(catalog, &checkout, &path).unwrap();
        assert!(fetched.is_fetched && fetched.words[..2] == ["npx", "-y"], "{fetched:?}");
        assert_eq!(fetched.words[3..], gemini.command[1..]);
        assert_eq!(fetched.program, folder.path().join("npx"));
        assert_eq!(goose.resolve(catalog, &checkout, &path), None);
        std::fs::write(folder.path().join("gemini"), "").unwrap();
        let installed = gemini.resolve(catalog, &checkout, &path).unwrap();
        assert_eq!((installed.words, installed.is_fetched), (gemini.command.clone(), false));
    }

    #[test]
    fn a_broken_version_is_left_out() {
        let catalog = AgentCatalog::built_in();
        let mut claude = find("claude").unwrap().clone();
        let version = claude.newest(catalog).unwrap();
        claude.broken.insert(version, "it loses answers".to_owned());
        assert_eq!((claude.pinned(catalog), claude.newest(catalog)), (None, None));
    }

    #[test]
    fn a_command_is_recognised_by_its_program_or_its_package() {
        let of = |command: &str| {
            let words: Vec<_> = command.split(' ').map(str::to_owned).collect();
            of_command(&words).map(|agent| agent.title.as_str())
        };
        assert_eq!(of("/opt/bin/codex-acp"), Some("Codex"));
        assert_eq!(of("npx -y @google/gemini-cli@>=0.50.0 --acp"), Some("Gemini CLI"));
        assert_eq!(of("uvx --from fast-agent-mcp>=0.10.48 fast-agent acp"), Some("fast-agent"));
        let fetched = |command: &str| {
            let words: Vec<_> = command.split(' ').map(str::to_owned).collect();
            of_command(&words)?.fetched_version(&words).map(str::to_owned)
        };
        assert_eq!(fetched("npx -y @google/gemini-cli@0.51.0 --acp").as_deref(), Some("0.51.0"));
        assert_eq!(fetched("uvx --from fast-agent-mcp==0.1.0 x").as_deref(), Some("0.1.0"));
        assert_eq!(fetched("npx -y @google/gemini-cli@>=0.50.0 --acp"), None);
        assert_eq!(fetched("gemini --acp"), None);
        assert_eq!(of("python3 codex-acp"), None);
        assert_eq!(of("npx -y @google/gemini-cli-core"), None);
    }

    #[test]
    fn proxies_base_urls_and_clouds_reach_the_agents_that_use_them() {
        for (name, agent) in all() {
            for variable in NETWORK_VARIABLES {
                assert!(agent.inherit.iter().any(|it| it == variable), "{name} {variable}");
            }
            let mut names = agent.inherit.clone();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), agent.inherit.len(), "{name} has a variable twice");
        }
        for (name, variables) in [
            ("claude", &["AWS_BEARER_TOKEN_BEDROCK", "CLOUD_ML_REGION", "ANTHROPIC_BASE_URL"][..]),
            ("codex", &["OPENAI_BASE_URL", "AWS_PROFILE"]),
            ("gemini", &["GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_GCA"]),
            ("goose", &["OPENAI_HOST", "AWS_REGION", "AZURE_OPENAI_ENDPOINT"]),
            ("fast-agent", &["BEDROCK_REGION", "XAI_BASE_URL"]),
        ] {
            let inherit = &find(name).unwrap().inherit;
            for variable in variables {
                assert!(inherit.iter().any(|it| it == variable), "{name} {variable}");
            }
        }
        // A hint names variables of the agent itself alone.
        let codex = find("codex").unwrap().credentials();
        assert!(codex.iter().any(|name| name == "OPENAI_API_KEY"), "{codex:?}");
        assert!(!codex.iter().any(|name| name == "GEMINI_API_KEY"), "{codex:?}");
        // Neither a limit nor a choice of how to sign in is a credential.
        for (name, setting) in
            [("claude", "MAX_THINKING_TOKENS"), ("gemini", "GEMINI_API_KEY_AUTH_MECHANISM")]
        {
            let agent = find(name).unwrap();
            assert!(agent.inherit.iter().any(|it| it == setting), "{name} {setting}");
            assert!(!agent.credentials().iter().any(|it| it == setting), "{name} {setting}");
        }
    }

    #[test]
    fn variables_that_are_set_stay() {
        let goose = find("goose").unwrap();
        let mut env = BTreeMap::from([("GOOSE_MODE".to_owned(), "chat".to_owned())]);
        goose.add_env(&mut env);
        assert_eq!(env["GOOSE_MODE"], "chat");
        let codex = find("codex").unwrap();
        assert_eq!(codex.key_method(&env), None);
        env.insert("OPENAI_API_KEY".to_owned(), "k".to_owned());
        assert_eq!(codex.key_method(&env), Some("api-key"));
    }
}
