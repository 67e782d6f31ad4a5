//! The versions of the known agents on this machine, beside those that their descriptions are about.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use trilogue::config::Options;
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents::{self, KnownAgent};
use trilogue::local::start_folder;

use crate::command::probe::ProbeFinding;

/// How long a program may take to say its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// The most output that is read, in bytes.
const MAX_VERSION_BYTES: u64 = 16 * 1024;

/// How much of the end of each output a finding shows, in bytes.
const MAX_TAIL_BYTES: usize = 256;

/// The output of a program for `--version`, on both of its streams.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct PrintedVersion {
    output: String,
    error: String,
}

/// Asks every known agent that is installed.
pub(super) async fn findings(options: Option<&Options>) -> Vec<ProbeFinding> {
    let installed = known_agents::all().iter().filter_map(|(name, agent)| {
        let program = agent.command.first()?;
        Some((name, agent, program_of(program, options)?))
    });
    join_all(installed.map(|(name, agent, program)| finding(name, agent, program))).await
}

/// Returns the program that the configuration names, otherwise the one in the search path.
fn program_of(program: &str, options: Option<&Options>) -> Option<PathBuf> {
    let agents = options.into_iter().flat_map(|options| options.agents.values());
    let configured = agents.filter_map(|agent| agent.command.0.first()).find(|command| {
        command.contains('/') && Path::new(command).file_name() == Some(OsStr::new(program))
    });
    let path = std::env::var("PATH").ok();
    let configured = configured.map(PathBuf::from).filter(|file| file.is_file());
    let path = path.unwrap_or_default();
    configured.or_else(|| Checkout::around_here().find_outside(program, &path))
}

async fn finding(name: &str, agent: &KnownAgent, program: PathBuf) -> ProbeFinding {
    let subject = format!("{name} ({})", program.display());
    let wanted = &agent.at_least;
    let printed = printed_version(&program).await;
    match version_in(&printed.output) {
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
            ProbeFinding::ok(subject, format!("{detail}{}", printed.tail()))
        }
    }
}

/// Returns the output of a program for `--version`.
async fn printed_version(program: &Path) -> PrintedVersion {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Some programs read settings of the folder in which they start before they print anything.
    let Ok(folder) = start_folder::prepare() else { return PrintedVersion::default() };
    command.current_dir(folder).env_remove("PATH");
    let checkout = Checkout::around_here();
    if let Some(path) = checkout.outer_path_of_process() {
        command.env("PATH", path);
    }
    for name in checkout.loaded_of_process() {
        command.env_remove(name);
    }
    let Ok(mut child) = command.kill_on_drop(true).spawn() else {
        return PrintedVersion::default();
    };
    let (output, error) = (child.stdout.take(), child.stderr.take());
    let read = async { tokio::join!(read(output), read(error)) };
    let printed = tokio::time::timeout(VERSION_LIMIT, read).await;
    printed.map(|(output, error)| PrintedVersion { output, error }).unwrap_or_default()
}

async fn read(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // The bytes before an error count.
        let _ = from.take(MAX_VERSION_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

// === impl PrintedVersion ===

impl PrintedVersion {
    /// The ends of both outputs, each by its name.
    fn tail(&self) -> String {
        let mut text = String::new();
        for (stream, printed) in [("error", &self.error), ("output", &self.output)] {
            let from = printed.len().saturating_sub(MAX_TAIL_BYTES);
            let tail = printed.get(printed.ceil_char_boundary(from)..).unwrap_or_default();
            if !tail.is_empty() {
                text.push_str(&format!("; its standard {stream} ends with: {tail}"));
            }
        }
        text
    }
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

    #[tokio::test]
    async fn what_a_program_without_a_version_prints_is_named_by_its_output() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agent");
        std::fs::write(&program, "#!/bin/sh\necho usage: agent\necho no license >&2\nexit 1\n")
            .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let found = finding("goose", known_agents::find("goose").unwrap(), program).await;
        let ends = "; its standard error ends with: no license; its standard output ends with: usage: agent";
        assert!(found.detail.ends_with(ends), "{}", found.detail);
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
