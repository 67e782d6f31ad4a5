//! The folders and files that the server keeps from the agents that it hosts.

use std::path::PathBuf;

use trilogue_backends::network::KeySource;
use trilogue_backends::workspace::PrivatePaths;

use crate::config::Options;
use crate::local::token_file;

/// The state folder with the tokens, and the [files](private_files).
pub(crate) fn private_paths(options: &Options) -> PrivatePaths {
    private_files(options).into_iter().fold(of_state(), PrivatePaths::with_file)
}

/// The store, the file of the settings, and the files with secrets that they name.
#[must_use]
pub fn private_files(options: &Options) -> Vec<PathBuf> {
    let store = trilogue_store::file_of_url(&options.store.url);
    let named = |file: &Option<String>| file.as_ref().map(PathBuf::from);
    let secrets = [
        named(&options.store.password_file),
        options.store.blobs.as_ref().and_then(|blobs| named(&blobs.secret_file)),
        named(&options.cluster.nats_file),
    ];
    let of_agents = options.agents.values().filter_map(|agent| named(&agent.token_file));
    let of_keys =
        options.agents.values().flat_map(|agent| agent.keys.values()).filter_map(|key| match &key
            .from
        {
            KeySource::File(path) => Some(path.clone()),
            KeySource::Variable(_) => None,
        });
    let of_headers = options.telemetry.otlp.header_files.values().map(PathBuf::from);
    let files = store.into_iter().chain(options.file.clone()).chain(secrets.into_iter().flatten());
    let here = std::env::current_dir().unwrap_or_default();
    files
        .chain(of_agents)
        .chain(of_keys)
        .chain(of_headers)
        .chain(options.private_files.iter().cloned())
        .map(|file| here.join(file))
        .collect()
}

/// The state folder only, for a server without settings.
pub(crate) fn of_state() -> PrivatePaths {
    let state = token_file::state_dir().ok();
    state.map_or_else(PrivatePaths::default, |state| PrivatePaths::default().with_folder(state))
}
