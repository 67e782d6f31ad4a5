//! What a child knows of the server's environment.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{MARKER, Program};

/// The server's own variables that every child gets, where they are set: where programs, people and temporary files are, and in what
/// language they speak. No secret is among them.
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
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
];

/// What a shell says of itself, which is no secret and stands in many a message.
const PLAIN: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];

/// Those of the server's own variables that every child gets, [`INHERITED`], with their values.
pub fn inherited() -> impl Iterator<Item = (String, String)> {
    INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
}

/// All variables of a child.
pub(super) fn of(program: Program<'_>, instance: Uuid) -> Vec<(String, String)> {
    let mut all: BTreeMap<_, _> = inherited().collect();
    for name in program.inherit {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.clone(), value);
        }
    }
    all.extend(program.env.iter().cloned());
    all.insert(MARKER.to_owned(), instance.to_string());
    all.into_iter().collect()
}

/// The values that must not be shown: of everything that a child does not have as every child has it. Nobody can tell by its name what
/// is a secret.
pub(super) fn secrets(env: &[(String, String)]) -> impl Iterator<Item = &str> {
    let is_plain =
        |name: &str| name == MARKER || INHERITED.contains(&name) || PLAIN.contains(&name);
    env.iter().filter(move |(name, _)| !is_plain(name)).map(|(_, value)| value.as_str())
}
