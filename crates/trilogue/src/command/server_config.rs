//! The configuration of the server that a local command is about.

use std::path::{Path, PathBuf};

use trilogue::config::{self, Options};
use trilogue::local::{ServerRecord, StartedBy, UserServerDir, start, user_options};

/// Where the settings come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ConfigSource {
    File(PathBuf),
    /// No file: the settings of this user's server without one.
    BuiltIn,
}

/// Returns the named file, otherwise the one that the running server names, otherwise the one that this user's server reads.
pub(crate) fn file(named: Option<&Path>, record: Option<&ServerRecord>) -> Option<PathBuf> {
    let named = named.map(Path::to_owned);
    named.or_else(|| record.and_then(|record| record.config.clone())).or_else(start::config_file)
}

/// Reads the settings. `None` if the running server has others and does not name their file.
///
/// # Errors
/// If the configuration file is not valid.
pub(crate) fn read(
    named: Option<&Path>,
    dir: &UserServerDir,
    record: Option<&ServerRecord>,
) -> Result<Option<(Options, ConfigSource)>, config::Error> {
    let of_server = record.and_then(|record| record.config.as_deref());
    let is_of_user = record
        .is_none_or(|record| matches!(record.started_by, StartedBy::Demo | StartedBy::OnDemand));
    if let (Some(file), true) = (named.or(of_server), named.is_some() || !is_of_user) {
        let options = config::load(file)?.options;
        return Ok(Some((options, ConfigSource::File(file.to_owned()))));
    }
    if !is_of_user {
        return Ok(None);
    }
    let source = start::config_file().map_or(ConfigSource::BuiltIn, ConfigSource::File);
    Ok(Some((user_options(dir)?, source)))
}
