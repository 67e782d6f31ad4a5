//! The versions of the known agents on this machine, beside those that their descriptions are about.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use trilogue::config::Options;
use trilogue::find_program;
use trilogue::known_agents::{self, KnownAgent};

use crate::probe::ProbeFinding;

/// How long a program may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// How much of what it says is read, in bytes.
const MAX_VERSION_BYTES: u64 = 16 * 1024;

/// Asks every known agent that is installed.
pub(super) async fn findings(options: Option<&Options>) -> Vec<ProbeFinding> {
    let installed = known_agents::all().iter().filter_map(|(name, agent)| {
        let program = agent.command.first()?;
        Some((name, agent, program_of(program, options)?))
    });
    join_all(installed.map(|(name, agent, program)| finding(name, agent, program))).await
}

/// The program as the configuration names it, else the one in the search path.
fn program_of(program: &str, options: Option<&Options>) -> Option<PathBuf> {
    let agents = options.into_iter().flat_map(|options| options.agents.values());
    let configured = agents.filter_map(|agent| agent.command.0.first()).find(|command| {
        command.contains('/') && Path::new(command).file_name() == Some(OsStr::new(program))
    });
    let path = std::env::var("PATH").ok();
    let here = std::env::current_dir().unwrap_or_default();
    let program = configured.map_or(program, String::as_str);
    find_program(program, &here, path.as_deref()).filter(|found| found.is_file())
}

async fn finding(name: &str, agent: &KnownAgent, program: PathBuf) -> ProbeFinding {
    let subject = format!("{name} ({})", program.display());
    let wanted = &agent.at_least;
    match version_of(&program).await {
        Some(version) if numbers(&version) >= numbers(wanted) => {
            ProbeFinding::ok(subject, format!("version {version}"))
        }
        Some(version) => {
            let detail =
                format!("version {version} is older than {wanted}, which it needs at least");
            ProbeFinding::warning(subject, detail).hint(agent.install_hint())
        }
        None => {
            let detail = format!("it does not say its version; it needs at least {wanted}");
            ProbeFinding::ok(subject, detail)
        }
    }
}

/// What the program says to `--version`, if that has a version.
async fn version_of(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.kill_on_drop(true).spawn().ok()?;
    let stdout = child.stdout.take()?;
    let mut text = Vec::new();
    let read = async move {
        stdout.take(MAX_VERSION_BYTES).read_to_end(&mut text).await.ok()?;
        Some(text)
    };
    let text = tokio::time::timeout(VERSION_LIMIT, read).await.ok()??;
    version_in(&String::from_utf8_lossy(&text))
}

/// The first word with two numbers or more that are separated by dots.
fn version_in(text: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches('.'));
    words.filter(|word| word.contains('.')).map(str::to_owned).next()
}

/// The numbers of a version, of which the first that differs decides.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_programs_say() {
        for (text, version) in [
            ("1.2.3\n", Some("1.2.3")),
            ("goose  v1.8.0 (abc123)", Some("1.8.0")),
            ("codex-acp 0.50.1-beta.2", Some("0.50.1")),
            ("2026.01.17-d239e66.", Some("2026.01.17")),
            ("usage: agent", None),
            ("", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("1.10.0") > numbers("1.9.3"));
        assert!(numbers("2026.01.17") > numbers("2026.01"));
        assert!(numbers("0.9") < numbers("0.9.1"));
        for agent in known_agents::all().values() {
            assert_eq!(version_in(&agent.at_least).as_ref(), Some(&agent.at_least));
        }
    }
}
