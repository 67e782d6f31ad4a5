//! The catalog of agents: the newest copy of the Agent Client Protocol's official registry, otherwise our own table of it.
//!
//! Nothing is downloaded unless a user asks for it with [`AgentCatalog::refresh`]. A document that is refused changes nothing.

mod format;

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_egress::Policy;

use crate::config;
use crate::local::download::{DownloadLimits, copy_of, download, keep};
use crate::local::known_agents::{AgentPackage, PackageRunner};
use crate::local::{start, token_file};

pub use format::{RegistryAgent, RegistryBinary, RegistryPackage, StartWords};

/// The largest registry, and the longest time in which it is downloaded.
const LIMITS: DownloadLimits =
    DownloadLimits { max_bytes: 4 * 1024 * 1024, time: Duration::from_secs(20) };
/// The largest copy of a registry, in bytes. JSON that is written again can become longer.
const MAX_COPY_BYTES: u64 = 2 * LIMITS.max_bytes;
/// The folder of the copies in the state folder.
const COPIES: &str = "agent-registry";
/// The form of a copy. A program reads no other.
const COPY_FORMAT: u32 = 1;
/// After this many days a user should refresh the catalog.
const OLD_DAYS: i64 = 30;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The agents of a registry, and where they come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCatalog {
    /// Where they come from.
    pub source: CatalogSource,
    agents: Vec<RegistryAgent>,
    /// Why the copy of the registry is not used, if there is one.
    pub problem: Option<String>,
}

/// Where a catalog comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CatalogSource {
    /// The table in this program.
    BuiltIn {
        /// The day of its facts, such as `2026-11-29`.
        date: String,
    },
    /// A registry.
    Registry {
        /// Its address.
        url: String,
        /// When it was downloaded, such as `2026-11-29T09:00:00Z`.
        fetched_at: String,
    },
}

/// A copy of a registry in the state folder.
#[derive(Serialize, Deserialize)]
struct RegistryCopy {
    format: u32,
    url: String,
    fetched_at: String,
    registry: Value,
}

static BUILT_IN: LazyLock<AgentCatalog> = LazyLock::new(|| {
    // A test reads the file, so that it always parses.
    built_in().unwrap_or_else(|_| AgentCatalog {
        source: CatalogSource::BuiltIn { date: String::new() },
        agents: Vec::new(),
        problem: None,
    })
});

fn built_in() -> Result<AgentCatalog> {
    let document: format::Document = serde_json::from_str(include_str!("built_in.json"))
        .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
    let source = CatalogSource::BuiltIn { date: document.date.clone() };
    Ok(AgentCatalog { source, agents: document.into_agents()?, problem: None })
}

// === impl AgentCatalog ===

impl AgentCatalog {
    /// The table in this program.
    #[must_use]
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// Returns the catalog of the user who runs this process, by the settings of the user's configuration file.
    #[must_use]
    pub fn of_user() -> Self {
        let options = start::config_file().and_then(|file| config::load(&file).ok());
        let settings = options.map(|loaded| loaded.options.agent_registry).unwrap_or_default();
        match token_file::state_dir() {
            Ok(state) => Self::load(&settings, &state),
            Err(_) => Self::built_in().clone(),
        }
    }

    /// Returns the copy of the registry that the settings name; the table in this program if the copy is missing or cannot be read.
    #[must_use]
    pub fn load(settings: &config::AgentRegistry, state: &Path) -> Self {
        let copy = settings.to_url().map(|url| copy_of(state, COPIES, &url));
        match copy.and_then(|copy| read_copy(&copy)) {
            Ok(Some(catalog)) => catalog,
            Ok(None) => Self::built_in().clone(),
            Err(error) => {
                let problem = Some(error.message().to_owned());
                Self { problem, ..Self::built_in().clone() }
            }
        }
    }

    /// Downloads the registry that the settings name, and keeps a copy of it in the state folder.
    ///
    /// # Errors
    /// If it cannot be downloaded, read or kept, or holds something that is not accepted. The last copy then stays.
    pub async fn refresh(
        settings: &config::AgentRegistry,
        state: &Path,
        now: Timestamp,
    ) -> Result<Self> {
        let url = settings.to_url()?;
        let unread = |error: Error| {
            let message = format!("the registry at {url} cannot be used: {}", error.message());
            let used = Self::load(settings, state).source;
            let usual =
                || format!("{used} is still in use; set agent_registry.url for another registry");
            let hint = error.hint_text().map_or_else(usual, str::to_owned);
            Error::new(error.code(), message).hint(hint)
        };
        // The operator chose the address, which may be in a private network.
        let bytes = download(&url, &Policy::anywhere(), LIMITS).await.map_err(unread)?;
        let registry: Value = serde_json::from_slice(&bytes).map_err(|error| {
            unread(Error::new(Code::PeerUnavailable, format!("it is not JSON: {error}")))
        })?;
        let copy = RegistryCopy {
            format: COPY_FORMAT,
            url: url.to_string(),
            fetched_at: now.strftime("%FT%TZ").to_string(),
            registry,
        };
        let text = serde_json::to_vec(&copy)
            .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
        let catalog = Self::of_copy(copy).map_err(unread)?;
        keep(&copy_of(state, COPIES, &url), &text).map_err(|error| {
            let message = format!("no copy of the registry can be kept: {error}");
            Error::new(Code::Internal, message)
                .hint("set XDG_STATE_HOME to a folder that this user can write")
        })?;
        Ok(catalog)
    }

    fn of_copy(copy: RegistryCopy) -> Result<Self> {
        let unreadable = |error: jiff::Error| Error::new(Code::Internal, error.to_string());
        let _: Timestamp = copy.fetched_at.parse().map_err(unreadable)?;
        if !copy.registry.is_object() {
            return Err(Error::new(Code::PeerUnavailable, "it is not a JSON object"));
        }
        let document: format::Document = serde_json::from_value(copy.registry)
            .map_err(|error| Error::new(Code::PeerUnavailable, error.to_string()))?;
        let source = CatalogSource::Registry { url: copy.url, fetched_at: copy.fetched_at };
        Ok(Self { source, agents: document.into_agents()?, problem: None })
    }

    /// All agents, in the order of the registry.
    #[must_use]
    pub fn agents(&self) -> &[RegistryAgent] {
        &self.agents
    }

    /// The agent with this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&RegistryAgent> {
        self.agents.iter().find(|agent| agent.id == id)
    }

    /// Whether a user should refresh it.
    #[must_use]
    pub fn is_old(&self, now: Timestamp) -> bool {
        let made = match &self.source {
            CatalogSource::BuiltIn { date } => format!("{date}T00:00:00Z").parse(),
            CatalogSource::Registry { fetched_at, .. } => fetched_at.parse(),
        };
        let seconds = |made: Timestamp| now.as_second() - made.as_second();
        made.map_or(true, |made| seconds(made) > OLD_DAYS * DAY_SECONDS)
    }

    /// The newest version of a package of this agent: in this catalog, otherwise in the table in this program.
    pub(super) fn version_of(&self, id: &str, package: &AgentPackage) -> Option<&str> {
        self.package(id, package).or_else(|| Self::built_in().package(id, package))
    }

    fn package(&self, id: &str, wanted: &AgentPackage) -> Option<&str> {
        let is_wanted = |package: &&RegistryPackage| {
            package.runner == wanted.runner && package.name == wanted.name
        };
        let package = self.find(id)?.packages.iter().find(is_wanted)?;
        Some(&package.version)
    }
}

/// Reads a copy. `None` if the file is missing.
fn read_copy(file: &Path) -> Result<Option<AgentCatalog>> {
    let damaged = |why: String| {
        let message = format!("the copy of the registry in {} is damaged: {why}", file.display());
        Error::new(Code::Internal, message)
    };
    let opened = match fs::File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| damaged(error.to_string()))?,
    };
    let mut bytes = Vec::new();
    opened
        .take(MAX_COPY_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| damaged(error.to_string()))?;
    if bytes.len() as u64 > MAX_COPY_BYTES {
        return Err(damaged(format!("it is larger than {MAX_COPY_BYTES} bytes")));
    }
    let copy: RegistryCopy =
        serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if copy.format != COPY_FORMAT {
        let why = format!("it has the form {}, and this program reads {COPY_FORMAT}", copy.format);
        return Err(damaged(why));
    }
    AgentCatalog::of_copy(copy).map(Some).map_err(|error| damaged(error.message().to_owned()))
}

impl std::fmt::Display for CatalogSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn { date } => write!(f, "this program's own table of {date}"),
            Self::Registry { url, fetched_at } => {
                write!(f, "{url}, read at {fetched_at}")
            }
        }
    }
}

// === impl RegistryPackage ===

impl RegistryPackage {
    /// The command by which its runner fetches and starts it.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let (name, version) = (&self.name, &self.version);
        let mut words = vec![self.runner.program().to_owned()];
        match (self.runner, &self.program) {
            (PackageRunner::Npx, None) => {
                words.extend(["-y".to_owned(), format!("{name}@{version}")]);
            }
            (PackageRunner::Npx, Some(program)) => words.extend([
                "-y".to_owned(),
                "--package".to_owned(),
                format!("{name}@{version}"),
                program.clone(),
            ]),
            (PackageRunner::Uvx, program) => {
                // An extra is not part of the program's name.
                let own = name.split('[').next().unwrap_or(name);
                words.extend([
                    "--from".to_owned(),
                    format!("{name}=={version}"),
                    program.clone().unwrap_or_else(|| own.to_owned()),
                ]);
            }
        }
        words.extend(self.start.arguments.iter().cloned());
        words
    }
}
