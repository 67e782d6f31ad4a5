//! The keys of a session's properties in its thread's metadata.

use trilogue_domain::Json;
use trilogue_store::rows::ThreadRow;

/// The agent of the session.
pub(super) const AGENT: &str = "trilogue.agent";
/// The agent's working directory.
pub(super) const CWD: &str = "trilogue.cwd";
/// Further directories that the agent may use.
pub(super) const ADDITIONAL_DIRECTORIES: &str = "trilogue.additional_directories";
/// The configuration of the session's runs.
pub(super) const CONFIG: &str = "trilogue.config";
/// Whether lists hide the session.
pub(super) const ARCHIVED: &str = "trilogue.archived";
/// In a run's metadata: the client that prompted it, if the client can reconnect.
pub(super) const CLIENT: &str = "trilogue.client";

/// Returns a folder as it is stored and compared: a slash at the end makes no other folder.
pub(super) fn without_trailing_slash(folder: &str) -> &str {
    match folder.trim_end_matches('/') {
        "" if folder.starts_with('/') => "/",
        folder => folder,
    }
}

/// Returns the configuration of the thread's runs.
pub(super) fn config_of(thread: &ThreadRow) -> Option<Json> {
    config_in(&thread.metadata)
}

/// Returns the configuration in this thread metadata.
pub(super) fn config_in(metadata: &Json) -> Option<Json> {
    let metadata = metadata.to_value();
    let config = metadata.get(CONFIG).filter(|config| config.is_object());
    config.map(Json::from_value)
}
