//! The versions of the known agents on this machine, beside those that their descriptions are about.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use trilogue::config::Options;
use trilogue::local::agent_catalog::AgentCatalog;
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents::{self, KnownAgent};
use trilogue::local::start_folder;

use crate::command::probe::{ProbeFinding, Severity};

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

/// Asks every known agent that is installed outside of the checkout.
pub(super) async fn findings(
    options: Option<&Options>,
    catalog: &AgentCatalog,
    checkout: &Checkout,
) -> Vec<ProbeFinding> {
    let installed = known_agents::all().iter().filter_map(|(name, agent)| {
        let program = agent.command.first()?;
        Some((name, agent, program_of(program, options, checkout)?))
    });
    let asking: Vec<_> = installed
        .map(|(name, agent, program)| {
            finding(name, agent, agent.newest(catalog), program, checkout)
        })
        .collect();
    let fetched: Vec<_> = options.map(|options| fetched(options, catalog)).unwrap_or_default();
    let is_used = !asking.is_empty() || !fetched.is_empty();
    let mut found = vec![state(catalog, is_used, Timestamp::now())];
    found.extend(join_all(asking).await);
    found.extend(fetched);
    found
}

/// The versions that the commands of the configuration fetch.
fn fetched(options: &Options, catalog: &AgentCatalog) -> Vec<ProbeFinding> {
    let found = options.agents.iter().filter_map(|(name, settings)| {
        let command = &settings.command.0;
        let agent = known_agents::of_command(command)?;
        let version = agent.fetched_version(command)?;
        let finding =
            judge(format!("agents.{name}.command"), agent, agent.newest(catalog), version);
        Some(match finding.severity {
            Severity::Ok => finding,
            _ => finding.hint("name the newest version in the command"),
        })
    });
    found.collect()
}

/// Compares a version with what the agent's description fits, and with the newest one.
fn judge(
    subject: String,
    agent: &KnownAgent,
    newest: Option<String>,
    version: &str,
) -> ProbeFinding {
    let wanted = &agent.at_least;
    if let Some(why) = agent.broken.get(version) {
        let detail = format!("version {version} does not work: {why}");
        return ProbeFinding::warning(subject, detail).hint(agent.install_hint());
    }
    if numbers(version) < numbers(wanted) {
        let detail = format!("version {version} is older than {wanted}, which it needs at least");
        return ProbeFinding::warning(subject, detail).hint(agent.install_hint());
    }
    match newest.filter(|newest| numbers(version) < numbers(newest)) {
        Some(newest) => {
            let detail = format!("version {version} is outdated: the newest is {newest}");
            ProbeFinding::warning(subject, detail).hint(agent.install_hint())
        }
        None => ProbeFinding::ok(subject, format!("version {version}")),
    }
}

/// The catalog itself: newer versions than its own are unknown.
fn state(catalog: &AgentCatalog, is_used: bool, now: Timestamp) -> ProbeFinding {
    const SUBJECT: &str = "agent registry";
    let refresh = "read it again with `trilogue agents known --refresh`";
    if let Some(problem) = &catalog.problem {
        return ProbeFinding::warning(SUBJECT, problem.clone()).hint(refresh);
    }
    let detail = format!("newest versions of agents are from {}", catalog.source);
    match is_used && catalog.is_old(now) {
        true => ProbeFinding::warning(SUBJECT, detail).hint(refresh),
        false => ProbeFinding::ok(SUBJECT, detail),
    }
}

/// Returns the program that the configuration names, otherwise the one in the search path.
fn program_of(program: &str, options: Option<&Options>, checkout: &Checkout) -> Option<PathBuf> {
    let agents = options.into_iter().flat_map(|options| options.agents.values());
    let configured = agents.filter_map(|agent| agent.command.0.first()).find(|command| {
        command.contains('/') && Path::new(command).file_name() == Some(OsStr::new(program))
    });
    let path = std::env::var("PATH").ok();
    let configured = configured.map(PathBuf::from);
    let configured =
        configured.filter(|file| file.is_absolute() && file.is_file() && !checkout.has(file));
    let path = path.unwrap_or_default();
    configured.or_else(|| checkout.find_outside(program, &path))
}

async fn finding(
    name: &str,
    agent: &KnownAgent,
    newest: Option<String>,
    program: PathBuf,
    checkout: &Checkout,
) -> ProbeFinding {
    let subject = format!("{name} ({})", program.display());
    let wanted = &agent.at_least;
    let printed = printed_version(&program, checkout).await;
    match version_in(&printed.output) {
        Some(version) => judge(subject, agent, newest, &version),
        None => {
            let detail = format!("it does not say its version; it needs at least {wanted}");
            ProbeFinding::ok(subject, format!("{detail}{}", printed.tail()))
        }
    }
}

/// Returns the output of a program for `--version`.
async fn printed_version(program: &Path, checkout: &Checkout) -> PrintedVersion {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Some programs read settings of the folder in which they start before they print anything.
    let Ok(folder) = start_folder::prepare() else { return PrintedVersion::default() };
    command.current_dir(folder).env_remove("PATH");
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
        let checkout = Checkout::around(Path::new("/"));
        let found =
            finding("goose", known_agents::find("goose").unwrap(), None, program, &checkout).await;
        let ends = "; its standard error ends with: no license; its standard output ends with: usage: agent";
        assert!(found.detail.ends_with(ends), "{}", found.detail);
    }

    #[tokio::test]
    async fn an_outdated_and_a_broken_version_are_warnings() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agent");
        std::fs::write(&program, "#!/bin/sh\necho 1.9.0\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let checkout = Checkout::around(Path::new("/"));
        let mut goose = known_agents::find("goose").unwrap().clone();
        let look = async |goose: &KnownAgent, newest: &str| {
            finding("goose", goose, Some(newest.to_owned()), program.clone(), &checkout).await
        };
        let current = look(&goose, "1.9.0").await;
        assert_eq!((current.severity, &current.detail[..]), (Severity::Ok, "version 1.9.0"));
        let outdated = look(&goose, "1.10.0").await;
        assert_eq!(outdated.severity, Severity::Warning);
        assert_eq!(outdated.detail, "version 1.9.0 is outdated: the newest is 1.10.0");
        assert!(outdated.hint.is_some_and(|hint| hint.starts_with("install it")));
        goose.broken.insert("1.9.0".to_owned(), "it loses answers".to_owned());
        let broken = look(&goose, "1.9.0").await;
        assert_eq!(broken.detail, "version 1.9.0 does not work: it loses answers");
    }

    #[test]
    fn an_old_catalog_is_a_warning_if_an_agent_is_installed() {
        let catalog = AgentCatalog::built_in();
        let at = |text: &str| text.parse().unwrap();
        let severity = |is_used, now| state(catalog, is_used, at(now)).severity;
        assert_eq!(severity(true, "2026-12-01T00:00:00Z"), Severity::Ok);
        assert_eq!(severity(true, "2036-12-01T00:00:00Z"), Severity::Warning);
        assert_eq!(severity(false, "2036-12-01T00:00:00Z"), Severity::Ok);
        let mut damaged = catalog.clone();
        damaged.problem = Some("damaged".to_owned());
        assert_eq!(state(&damaged, false, at("2026-12-01T00:00:00Z")).severity, Severity::Warning);
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
