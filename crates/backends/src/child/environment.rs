use std::collections::BTreeMap;

use uuid::Uuid;

use super::{MARKER, Program, join_folders, search_folders};

/// The server's variables that every child gets: the folders of programs, homes and temporary files, and the language. None is secret,
/// and none names a folder with the server's tokens or sockets.
pub const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "TZ",
    "TERM",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
];

/// The prefix of variables about the server itself: its address, its token, its secrets.
pub const SERVER_PREFIX: &str = "TRILOGUE_";

/// Variables that a shell sets itself. They are not secret, and their values occur in many messages.
const SHELL_VARIABLES: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];

/// Returns the variables of [`INHERITED`] that are set, with their values.
pub fn inherited() -> impl Iterator<Item = (String, String)> {
    INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
}

pub(super) fn of(program: Program<'_>, instance: Uuid) -> Vec<(String, String)> {
    let mut all: BTreeMap<_, _> = inherited().collect();
    for name in program.inherit {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.clone(), value);
        }
    }
    all.extend(program.env.iter().cloned());
    // Drop relative folders, so that neither the program nor programs that it starts by name come from its working folder.
    if let Some(path) = all.remove("PATH") {
        let folders: Vec<_> = search_folders(&path).collect();
        if let Some(path) = join_folders(&folders) {
            all.insert("PATH".to_owned(), path);
        }
    }
    // Some wrappers trust PWD instead of asking the system for the working folder.
    if let (Some(pwd), Some(cwd)) = (all.get_mut("PWD"), program.cwd.to_str()) {
        cwd.clone_into(pwd);
    }
    all.insert(MARKER.to_owned(), instance.to_string());
    all.into_iter().collect()
}

/// Returns the values that may be secret: those of all variables that not every child has. A name does not show whether its value is secret.
pub(super) fn secrets(env: &[(String, String)]) -> impl Iterator<Item = &str> {
    let is_public =
        |name: &str| name == MARKER || INHERITED.contains(&name) || SHELL_VARIABLES.contains(&name);
    env.iter().filter(move |(name, _)| !is_public(name)).map(|(_, value)| value.as_str())
}
