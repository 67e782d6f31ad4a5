//! `trilogue doctor`.

mod agent_versions;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Parser as _};
use futures_util::future::join_all;
use rustix::process::{Resource, getrlimit};
use trilogue::config::{self, Options};
use trilogue::local::agent_catalog::AgentCatalog;
use trilogue::local::checkout::Checkout;
use trilogue::local::token_file;
use trilogue::local::{ServerRecord, StartedBy, UserServerDir, built_in_agents, start};
use trilogue_sandbox::{Layers, layers_of_machine};
use trilogue_sdk::client::{ClientError, Page};
use trilogue_wire::native::{Agent, AgentDifference, Node, Status, StoreState};

use super::node_text;
use super::server_config::{self, ConfigSource};
use super::status::{count_text, counted_are, lost_commits};
use crate::command::arguments::{Arguments, CliCommand};
use crate::command::globals::Globals;
use crate::command::probe::{self, ProbeFinding, Severity};
use crate::command::server_command::user_server_dir;
use crate::conversation::remote;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::print;

/// Free space below which the store may soon take no writes, in bytes.
const LOW_SPACE: u64 = 512 * 1024 * 1024;
/// How far the state may be ahead of the clock.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// How many open files a busy server needs.
const LOW_FILES: u64 = 4_096;

/// Check this user's set-up, and say what to do.
///
/// It looks at the configuration file, the state folder and its permissions, the running server, its addresses and agents, the versions of coding agents, processes that a killed server left, the disk and the clock. It changes nothing. In a bucket for large content it writes a small object and removes it.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// The configuration file. By default the one that the running server names, otherwise the one that this user's server reads.
    #[arg(long, value_name = "FILE", env = "TRILOGUE_CONFIG")]
    config: Option<PathBuf>,
}

// === impl Doctor ===

impl Doctor {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let dir = user_server_dir()?;
        let mut found = variables();
        let record = start::running(&dir);
        // Neither the caller's folder nor the server's decides which programs are started.
        let mut checkout = Checkout::around_here();
        // Relative paths of a server's settings begin in its folder. This command writes nothing.
        if self.config.is_none()
            && let Some(folder) = record.as_ref().and_then(|record| record.folder.as_ref())
        {
            checkout = checkout.and(Checkout::around(folder));
            if let Err(error) = std::env::set_current_dir(folder) {
                let detail =
                    format!("the server's folder {} cannot be entered: {error}", folder.display());
                found.push(ProbeFinding::warning("server's folder", detail));
            }
        }
        let options = self.configuration(&dir, record.as_ref(), &mut found);
        found.extend(permissions(&dir));
        found.extend(server(globals, record.as_ref()).await);
        if let Some(options) = &options {
            if record.is_none() {
                found.extend(probe::listeners(options));
            }
            found.extend(probe::agents(options).await);
            found.extend(probe::limits(options, record.as_ref().map(|record| record.pid)));
            found.extend(probe::notify(options).await);
            found.extend(probe::cluster(options));
            found.extend(bucket(options).await);
        }
        found.extend(disk(&dir, record.as_ref(), options.as_ref()));
        let settings = options.as_ref().map(|options| options.agent_registry.clone());
        let catalog = AgentCatalog::load(&settings.unwrap_or_default(), dir.folder());
        found.extend(agent_versions::findings(options.as_ref(), &catalog, &checkout).await);
        found.extend([strays(&dir), clock(&dir), open_files(), sandbox()]);
        if globals.json {
            print::json(&found)?;
        } else {
            print::report(&found.iter().map(ProbeFinding::render).collect::<String>())?;
        }
        match found.iter().filter(|it| it.severity == Severity::Problem).count() {
            0 => Ok(()),
            1 => Err(CliError::new(ExitStatus::Failed, "1 problem was found")),
            count => Err(CliError::new(ExitStatus::Failed, format!("{count} problems were found"))),
        }
    }

    fn configuration(
        &self,
        dir: &UserServerDir,
        record: Option<&ServerRecord>,
        found: &mut Vec<ProbeFinding>,
    ) -> Option<Options> {
        let subject = "configuration";
        let (options, source) = match server_config::read(self.config.as_deref(), dir, record) {
            Ok(Some((mut options, source))) => {
                if let (None, Some(record)) = (&self.config, record) {
                    apply_command_line(record, &mut options, found);
                }
                (options, source)
            }
            Ok(None) => {
                let detail = "the running server does not name its configuration file, so its settings were not checked";
                found.push(ProbeFinding::warning(subject, detail).hint("name it with --config"));
                return None;
            }
            Err(error) => {
                let hint = error.hint.clone().unwrap_or_default();
                found.push(ProbeFinding::problem(subject, error.to_string()).hint(hint));
                return None;
            }
        };
        let checked = trilogue::check(&options).map_err(CliError::from);
        if let Err(error) = checked.and_then(|()| config::check(&options).map_err(CliError::from)) {
            let problem = ProbeFinding::problem(subject, error.message);
            found.push(ProbeFinding { hint: error.hint.map(Into::into), ..problem });
            return Some(options);
        }
        let detail = match source {
            ConfigSource::File(file) => format!("{} is valid", file.display()),
            ConfigSource::BuiltIn => {
                let names: Vec<_> = built_in_agents().into_keys().collect();
                format!("there is no file, so the server has the agents {}", names.join(", "))
            }
        };
        found.push(ProbeFinding::ok(subject, detail));
        Some(options)
    }
}

/// Applies the command line of the running server to the settings of its file.
fn apply_command_line(record: &ServerRecord, options: &mut Options, found: &mut Vec<ProbeFinding>) {
    // The arguments of other programs have a meaning of their own.
    if record.started_by == StartedBy::Library {
        return;
    }
    let mut words = record.arguments.clone();
    let mut parsed = Arguments::try_parse_from(&words);
    if let (Err(_), Some(file)) = (&parsed, &record.config) {
        // The server has its file from a variable.
        words.extend(["--config".to_owned(), file.display().to_string()]);
        parsed = Arguments::try_parse_from(&words);
    }
    let Ok(arguments) = parsed else {
        // A server of another version can have other options.
        let detail =
            "the command line of the running server is not known, so its options were not applied";
        found.push(ProbeFinding::warning("command line", detail));
        return;
    };
    let overrides = match &arguments.command {
        CliCommand::Serve(serve) => serve.overrides(),
        CliCommand::Demo(demo) => demo.overrides(),
        _ => return,
    };
    let flags: Vec<_> = overrides.apply(options).into_iter().map(|(_, flag)| flag).collect();
    if !flags.is_empty() {
        let detail = format!("the running server has {}", flags.join(", "));
        found.push(ProbeFinding::ok("command line", detail));
    }
}

/// Variables that change which server commands reach.
fn variables() -> Vec<ProbeFinding> {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let found = ["TRILOGUE_URL", "TRILOGUE_TOKEN"].into_iter().filter(set).map(|name| {
        ProbeFinding::warning(
            name,
            "it is set, and has precedence over what your server saved for you",
        )
        .hint(format!("unset {name} to use your own server"))
    });
    found.collect()
}

/// Secrets that others can read, and folders of others.
fn permissions(dir: &UserServerDir) -> Vec<ProbeFinding> {
    let folder = dir.folder();
    if let Err(error) = token_file::check_owner(folder) {
        return vec![
            ProbeFinding::problem("state folder", error.to_string())
                .hint("set XDG_STATE_HOME to a folder that only this user can read"),
        ];
    }
    let tokens = fs::read_dir(folder.join("tokens")).into_iter().flatten().flatten();
    let mut files: Vec<_> = tokens.map(|entry| entry.path()).collect();
    files.extend([folder.to_owned(), dir.log(), dir.record(), folder.join("trilogue.db")]);
    let open = files.iter().filter(|path| {
        fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
    });
    let mut found: Vec<_> = open
        .map(|path| {
            ProbeFinding::problem("permissions", format!("others can read {}", path.display()))
                .hint(format!("take that right away: chmod go-rwx '{}'", path.display()))
        })
        .collect();
    if found.is_empty() {
        let detail = format!("only you can read {}", folder.display());
        found.push(ProbeFinding::ok("permissions", detail));
    }
    found
}

async fn server(globals: &Globals, record: Option<&ServerRecord>) -> Vec<ProbeFinding> {
    let Some(record) = record else {
        return vec![
            ProbeFinding::warning("server", "no server of this user runs")
                .hint("start it with `trilogue demo`; an editor starts it too"),
        ];
    };
    let mut found = vec![ProbeFinding::ok("server", record.to_string())];
    if record.version != env!("CARGO_PKG_VERSION") {
        let detail = format!(
            "the server has version {}, and this program {}",
            record.version,
            env!("CARGO_PKG_VERSION")
        );
        found.push(ProbeFinding::warning("version", detail).hint("restart it: `trilogue stop`"));
    }
    let client = match remote::open(globals) {
        Ok(client) => client,
        Err(error) => {
            found.push(ProbeFinding::problem("address", error.message));
            return found;
        }
    };
    match client.status().await {
        Ok(status) => {
            found.extend(store(&status.store, status.store_problem.as_deref()));
            found.extend(nodes(&status));
            found.extend(unreachable_nodes(&status).await);
            for name in &status.dangerously {
                found.push(ProbeFinding::warning(name.clone(), "this protection is switched off"));
            }
        }
        Err(error) => {
            found.push(failed_request("address", error));
            return found;
        }
    }
    match client.agents(&Page::default()).await {
        Ok(agents) => found.extend(agents.items.iter().map(agent_state)),
        Err(error) => found.push(failed_request("agents", error)),
    }
    found
}

fn failed_request(subject: &str, error: ClientError) -> ProbeFinding {
    let error = CliError::from(error);
    let problem = ProbeFinding::problem(subject, error.message);
    ProbeFinding { hint: error.hint.map(Into::into), ..problem }
}

fn agent_state(agent: &Agent) -> ProbeFinding {
    let subject = format!("agent {}", agent.name);
    if let Some(failure) = &agent.last_failure {
        let detail = format!("it failed at {}: {}", failure.at, failure.reason);
        return ProbeFinding::problem(subject, detail).hint(format!(
            "correct its settings or its program, then run it: `trilogue run {}`",
            agent.name
        ));
    }
    match &agent.unavailable {
        Some(why) => ProbeFinding::warning(subject, format!("it cannot be used now: {why}")),
        None if agent.version.is_empty() => {
            ProbeFinding::ok(subject, "it has not reported its version yet")
        }
        None => ProbeFinding::ok(subject, format!("version {}", agent.version)),
    }
}

/// Returns the problems of the store.
fn store(state: &StoreState, write_problem: Option<&str>) -> Vec<ProbeFinding> {
    let problem = |detail| ProbeFinding::problem("store", detail);
    let mut found = Vec::new();
    if let Some(why) = write_problem {
        found.push(
            problem(format!("it takes no writes: {why}")).hint("see why with `trilogue logs`"),
        );
    }
    let damaged = state.quarantined;
    if state.lost_commits > 0 {
        found.push(problem(lost_commits(state)).hint(match damaged {
            0 => "restore a backup, if you need what is lost: no thread is damaged",
            _ => "restore a backup, or erase the damaged threads: `trilogue threads` lists them",
        }));
    }
    if damaged > 0 {
        let detail = format!("{} damaged", counted_are(damaged, "thread"));
        found.push(problem(detail).hint("restore a backup: see docs/cli.md"));
    }
    found
}

/// The live servers whose addresses accept no connection from here. Requests that others forward to them fail.
async fn unreachable_nodes(status: &Status) -> Vec<ProbeFinding> {
    let looks = status.nodes.iter().filter(|node| node.alive).map(|node| {
        let hint = "correct cluster.address of that server, or the way to it: the other servers send requests there";
        probe::address(format!("node {}", node.name), &node.address, hint)
    });
    let found = join_all(looks).await;
    found.into_iter().filter(|finding| finding.severity != Severity::Ok).collect()
}

/// The servers that share the store, and the agents that they do not agree about.
fn nodes(status: &Status) -> Vec<ProbeFinding> {
    let node = |node: &Node| {
        let (state, open) = (node_text::state(node), count_text(node.open_threads, "open thread"));
        let detail = format!("{state}, {open}, at {}", node.address);
        let subject = format!("node {}", node.name);
        match node.alive {
            true => ProbeFinding::ok(subject, detail),
            false => ProbeFinding::warning(subject, detail)
                .hint("start it again; the other servers take its threads over"),
        }
    };
    let difference = |found: &AgentDifference| {
        let subject = format!("agent {}", found.agent);
        ProbeFinding::warning(subject, node_text::difference(found))
            .hint("give all servers that share the store the same agents")
    };
    let differences = status.agent_differences.iter().map(difference);
    status.nodes.iter().map(node).chain(differences).collect()
}

/// The room for the store of the running server, otherwise for that of the configuration.
fn disk(
    dir: &UserServerDir,
    record: Option<&ServerRecord>,
    options: Option<&Options>,
) -> Option<ProbeFinding> {
    let url = match record.and_then(|record| record.store.as_deref()) {
        Some(url) => url,
        None => &options?.store.url,
    };
    let path = url.strip_prefix("sqlite:").map(Path::new)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    let folder = if parent.is_dir() { parent } else { dir.folder() };
    let stat = rustix::fs::statvfs(folder).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let detail = format!("{} MiB are free for {}", free / (1024 * 1024), path.display());
    Some(if free < LOW_SPACE {
        ProbeFinding::problem("disk", detail).hint("make room, or move the store with store.url")
    } else {
        ProbeFinding::ok("disk", detail)
    })
}

/// The bucket for large content: writes a small object there and removes it.
async fn bucket(options: &Options) -> Option<ProbeFinding> {
    let url = &options.store.blobs.as_ref()?.url;
    let store = match options.store.to_options() {
        Ok(store) => store,
        Err(error) => {
            // The variables of the server's secrets need not be set here.
            let hint = error.hint_text().unwrap_or_default().to_owned();
            return Some(ProbeFinding::warning("bucket", error.message().to_owned()).hint(hint));
        }
    };
    Some(match trilogue_store::check_bucket(&store).await {
        Ok(()) => ProbeFinding::ok("bucket", format!("{url} takes content")),
        Err(error) => {
            let hint = error.hint_text().unwrap_or_default().to_owned();
            ProbeFinding::problem("bucket", error.message().to_owned()).hint(hint)
        }
    })
}

/// Processes of agents that a killed server left. The next start of a server ends them.
fn strays(dir: &UserServerDir) -> ProbeFinding {
    let servers = fs::read_dir(dir.folder().join("children")).into_iter().flatten().flatten();
    let left = servers.filter(|server| {
        let lock = fs::File::open(server.path().join("lock"));
        lock.is_ok_and(|lock| lock.try_lock_shared().is_ok())
    });
    let records = left.flat_map(|server| fs::read_dir(server.path()).into_iter().flatten());
    let count = records.flatten().filter(|record| record.file_name() != "lock").count();
    match count {
        0 => ProbeFinding::ok("strays", "no killed server has left processes of agents"),
        count => {
            let detail = format!("a killed server may have left {count} processes of agents");
            ProbeFinding::warning("strays", detail).hint("the next start of your server ends them")
        }
    }
}

/// A clock that went back gives new events an earlier time than old ones.
fn clock(dir: &UserServerDir) -> ProbeFinding {
    let files = fs::read_dir(dir.folder()).into_iter().flatten().flatten();
    let newest = files.filter_map(|file| file.metadata().ok()?.modified().ok()).max();
    let now = SystemTime::now();
    let ahead = newest.and_then(|newest| newest.duration_since(now).ok()).unwrap_or_default();
    if ahead > CLOCK_TOLERANCE {
        let detail = format!("it is {} seconds behind the newest file", ahead.as_secs());
        return ProbeFinding::problem("clock", detail).hint("set the clock, for example with NTP");
    }
    ProbeFinding::ok("clock", "it is not behind the stored state")
}

fn open_files() -> ProbeFinding {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
    let detail = format!("a server of yours can open {most} files");
    if limit.maximum.is_some_and(|most| most < LOW_FILES) {
        return ProbeFinding::warning("open files", detail)
            .hint("raise the hard limit, for example with LimitNOFILE= of its service");
    }
    ProbeFinding::ok("open files", detail)
}

/// The layers of this machine, which agents with `sandbox = "auto"` get.
fn sandbox() -> ProbeFinding {
    let has = layers_of_machine();
    let detail = format!("hosted agents get the layers: {has}");
    match has.missing(Layers::ALL) {
        Some((layer, hint)) => {
            let detail = format!("{detail}; this machine does not have the layer '{layer}'");
            ProbeFinding::warning("sandbox", detail).hint(hint)
        }
        None => ProbeFinding::ok("sandbox", detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_about_damaged_threads_is_given_only_where_there_are_some() {
        let found = |lost_commits, quarantined| {
            let lost_at = Some("today".to_owned());
            let state = StoreState { lost_commits, lost_at, quarantined, ..StoreState::default() };
            let text =
                |it: ProbeFinding| format!("{} / {}", it.detail, it.hint.unwrap_or_default());
            store(&state, None).into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(found(0, 0), Vec::<String>::new());
        assert_eq!(
            found(1, 0),
            ["1 acknowledged change is lost: the write-ahead log was damaged (found today) \
              / restore a backup, if you need what is lost: no thread is damaged"]
        );
        let backup = "restore a backup: see docs/cli.md";
        assert_eq!(
            found(2, 1),
            [
                "2 acknowledged changes are lost: the write-ahead log was damaged (found today) \
                 / restore a backup, or erase the damaged threads: `trilogue threads` lists them"
                    .to_owned(),
                format!("1 thread is damaged / {backup}")
            ]
        );
        assert_eq!(found(0, 2), [format!("2 threads are damaged / {backup}")]);
    }
}
