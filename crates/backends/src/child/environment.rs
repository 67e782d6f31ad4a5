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

/// The names of variables whose values are secrets as a rule hold one of these words.
const SECRET_WORDS: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];
/// A value that is shorter, in bytes, is no secret that could be found again.
const MIN_SECRET_BYTES: usize = 8;

/// All variables of a child.
pub(super) fn of(program: Program<'_>, instance: Uuid) -> Vec<(String, String)> {
    let mut all = BTreeMap::new();
    let inherited = INHERITED.iter().copied().chain(program.inherit.iter().map(String::as_str));
    for name in inherited {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.to_owned(), value);
        }
    }
    all.extend(program.env.iter().cloned());
    all.insert(MARKER.to_owned(), instance.to_string());
    all.into_iter().collect()
}

/// The values that must not be shown.
pub(super) fn secrets(env: &[(String, String)]) -> Vec<String> {
    let is_secret = |name: &str| {
        let name = name.to_ascii_uppercase();
        SECRET_WORDS.iter().any(|word| name.contains(word))
    };
    let secrets =
        env.iter().filter(|(name, value)| is_secret(name) && value.len() >= MIN_SECRET_BYTES);
    secrets.map(|(_, value)| value.clone()).collect()
}
