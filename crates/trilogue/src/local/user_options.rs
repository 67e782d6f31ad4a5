//! The settings of a user's server. They are the same for every command that starts it.

use indexmap::IndexMap;

use super::{UserServerDir, start};
use crate::config::{self, Agent, AgentKind, LogFormat, Options, Socket};

/// Returns the settings of the user's server: those of the user's configuration file, otherwise the
/// built-in agents.
///
/// A relative path of the store begins in the server's folder.
///
/// # Errors
/// If the configuration file is not valid.
pub fn user_options(dir: &UserServerDir) -> Result<Options, config::Error> {
    let mut options = match start::config_file() {
        Some(file) => config::load(&file)?.options,
        None => Options { agents: built_in_agents(), ..Options::default() },
    };
    if let Some(path) = options.store.url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
        options.store.url = format!("sqlite:{}", dir.folder().join(path).display());
    }
    // Its log is a file for people, which `trilogue logs` shows, with a configuration file or without one.
    if options.log.format == LogFormat::Auto {
        options.log.format = LogFormat::Text;
    }
    options.server.socket = Socket::On;
    Ok(options)
}

/// The agents that need no configuration.
#[must_use]
pub fn built_in_agents() -> IndexMap<String, Agent> {
    let agent = Agent::of(AgentKind::Builtin);
    crate::BUILTIN_AGENTS.iter().map(|name| ((*name).to_owned(), agent.clone())).collect()
}
