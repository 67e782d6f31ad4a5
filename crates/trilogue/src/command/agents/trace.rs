//! `trilogue agents trace`.
//!
//! | file | what it does |
//! |---|---|
//! | `traced_run.rs` | one run of the agent, without a sandbox and under `strace` |
//! | `line.rs`, `calls.rs` | what its processes did, out of the output of `strace` |
//! | `rules.rs` | the rules that it needs beyond its policy |
//! | `report.rs` | the output |

mod calls;
mod line;
mod report;
mod rules;
mod traced_run;

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use trilogue::config::{self, Agent, AgentKind, Options, Span};
use trilogue::local::checkout::Checkout;
use trilogue::local::{known_agents, start};
use trilogue_backends::child::{ChildTrace, SandboxMode};
use trilogue_sandbox::SandboxPolicy;

use self::calls::CallReader;
use self::report::RuleReport;
use self::rules::{MAX_USES, SandboxRules, Surroundings, TracedUses};
use self::traced_run::TracedRun;
use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::command::server_config::{self, ConfigSource};
use crate::conversation::run_settings::SettingArguments;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{ask, print, safe};

/// How long `strace` may take for a program that does nothing.
const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// Run an agent of the configuration without its sandbox, and print the rules that its sandbox would need.
///
/// It needs `strace`, on Linux. A temporary server sends the agent one prompt, and watches what its processes open, change, execute and connect to. Give a prompt that makes the agent do its usual work. The rules are a proposal: read them before you use them.
#[derive(Args, Debug)]
pub(crate) struct TraceCommand {
    /// The agent, by its name in the configuration.
    agent: String,
    /// The prompt.
    #[arg(default_value = "Hello")]
    prompt: String,
    /// The configuration file. By default the one that the running server names, otherwise the one that this user's server reads.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Allow these kinds of tools without a question: read, edit, delete, move, search, execute, think, fetch, switch_mode or other.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    allow: Vec<String>,
    /// End the run after this time, such as 90s or 10m.
    #[arg(long, value_name = "TIME", default_value = "10m")]
    timeout: Span,
    /// Run the agent without a sandbox, without asking.
    #[arg(long)]
    yes: bool,
}

// === impl TraceCommand ===

impl TraceCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        globals.require_users_server("an agent is traced on its own machine, not on", "")?;
        let settings = SettingArguments::allowing(&self.allow).config(None)?;
        let here = std::env::current_dir()
            .map_err(|error| CliError::failure(format!("cannot find the folder: {error}")))?;
        let options = self.options()?;
        let agent = self.agent(&options)?;
        let own = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new()
            .permissions(own)
            .tempdir()
            .map_err(|error| CliError::failure(format!("cannot make a folder: {error}")))?;
        let trace = ChildTrace { program: strace()?, folder: folder.path().to_owned() };
        check_strace(&trace).await?;
        let name = safe::visible(&self.agent);
        print::note(&format!(
            "'{name}' runs WITHOUT a sandbox: it can do all that you can, until this command ends"
        ));
        if !self.yes && !ask::confirm(&format!("run '{name}' without a sandbox?"), "--yes").await? {
            return Err(CliError::new(ExitStatus::Interrupted, "nothing was run"));
        }
        let started = SystemTime::now();
        let run = TracedRun {
            options: traced_options(&options, &self.agent, &here, &trace),
            agent: &self.agent,
            prompt: &self.prompt,
            settings,
            limit: self.timeout.0,
        };
        #[cfg(target_os = "linux")]
        let orphans = orphans()?;
        let ended = Box::pin(run.execute(globals, &trace)).await;
        // Also those that hide from the server: no sandbox holds them.
        #[cfg(target_os = "linux")]
        drop(tokio::task::spawn_blocking(move || orphans.end()).await);
        let around = Surroundings { started, workspaces: workspaces(&options, &self.agent) };
        let home = agent.home();
        let read = tokio::task::spawn_blocking(move || rules(&trace, &around, home.as_deref()));
        let (rules, skipped) = read
            .await
            .map_err(|_| CliError::failure("the calls of the agent could not be read"))?
            .map_err(|error| {
                CliError::failure(format!("the calls of the agent cannot be read: {error}"))
            })?;
        let report = RuleReport::new(&self.agent, agent, rules, ended.is_ok());
        if ended.is_err() {
            print::note("the run did not complete: these rules are for what the agent did so far");
        }
        if skipped {
            print::note(&format!(
                "not all is compared: the agent used more than {MAX_USES} different things, or names that are too long"
            ));
        }
        report.print(globals.json)?;
        ended.map_err(|error| match error.exit {
            // The temporary server has ended, with the question.
            ExitStatus::Waiting => CliError::new(error.exit, "the agent asks a question")
                .hint("answer it on a terminal, or allow the kind of tool with --allow"),
            _ => error,
        })
    }

    /// The settings. Relative paths in them begin where they do for their server, so this process enters that folder.
    fn options(&self) -> Result<Options> {
        let dir = user_server_dir()?;
        let record = start::running(&dir);
        let read = server_config::read(self.config.as_deref(), &dir, record.as_ref())?;
        let Some((options, source)) = read else {
            return Err(CliError::usage("the running server does not name its configuration")
                .hint("name the file with --config"));
        };
        let of_server = record.and_then(|record| record.folder);
        let folder = match (&self.config, source) {
            (Some(_), _) => None,
            (None, ConfigSource::File(_)) => of_server.or_else(|| Some(dir.folder().to_owned())),
            (None, ConfigSource::BuiltIn) => None,
        };
        if let Some(folder) = folder {
            std::env::set_current_dir(&folder).map_err(|error| {
                CliError::failure(format!(
                    "the server's folder {} cannot be entered: {error}",
                    safe::visible(&folder.display().to_string())
                ))
            })?;
        }
        config::check(&options)?;
        Ok(options)
    }

    fn agent<'a>(&self, options: &'a Options) -> Result<&'a Agent> {
        let name = safe::visible(&self.agent);
        let Some(agent) = options.agents.get(&self.agent) else {
            let message = format!("the configuration has no agent '{name}'");
            let hint = match known_agents::find(&self.agent) {
                Some(_) => format!("add it first: trilogue agents add {name}"),
                None => "list the agents with: trilogue agents".to_owned(),
            };
            return Err(CliError::new(ExitStatus::NotFound, message).hint(hint));
        };
        if agent.kind != AgentKind::AgentClient || agent.command.0.is_empty() {
            return Err(CliError::usage(format!(
                "the agent '{name}' has no process here to trace"
            ))
            .hint("trace an agent of the kind `agent-client` with a `command`"));
        }
        Ok(agent)
    }
}

/// Makes this process the parent of what the agent starts and leaves behind.
#[cfg(target_os = "linux")]
fn orphans() -> Result<trilogue_sandbox::Descendants> {
    trilogue_sandbox::Descendants::adopt_orphans()
        .map_err(|error| CliError::failure(format!("processes cannot be followed: {error}")))
}

/// The settings of a temporary server with this agent, which is watched in place of its sandbox.
fn traced_options(options: &Options, name: &str, here: &Path, trace: &ChildTrace) -> Options {
    let mut traced = Options::in_memory();
    traced.file.clone_from(&options.file);
    traced.private_files = trilogue::local::private_files(options);
    traced.egress.clone_from(&options.egress);
    traced.network.clone_from(&options.network);
    let Some(mut agent) = options.agents.get(name).cloned() else { return traced };
    // The policy is that of `auto`: it is not applied, and the layers of this machine do not count.
    agent.sandbox = SandboxMode::Auto;
    agent.trace = Some(trace.clone());
    agent.outlive = false;
    if agent.cwd.is_none() {
        // A brace would begin a template; then it works in the folder of the server.
        agent.cwd = here.to_str().filter(|here| !here.contains('{')).map(str::to_owned);
    }
    traced.agents.insert(name.to_owned(), agent);
    traced
}

/// The folders of other agents, and of the other threads of this one.
fn workspaces(options: &Options, name: &str) -> Vec<(PathBuf, String)> {
    let here = std::env::current_dir().unwrap_or_default();
    let of_agents = options.agents.iter().filter_map(|(other, agent)| {
        let cwd = agent.cwd.as_ref()?;
        let what = match (other == name, cwd.split_once('{')) {
            (true, None) => return None,
            (true, Some(_)) => "it is the folder of another thread".to_owned(),
            (false, _) => format!("it is a folder of the agent '{}'", safe::visible(other)),
        };
        let folder = match cwd.split_once('{') {
            Some((before, _)) => here.join(before.rsplit_once('/')?.0),
            None => here.join(cwd),
        };
        Some((folder.canonicalize().ok()?, what))
    });
    // A folder that has everything in it says nothing.
    of_agents.filter(|(folder, _)| folder.parent().is_some() && *folder != here).collect()
}

/// Compares the calls of all processes with their policies. Returns whether something was skipped too. Blocks on the file system.
fn rules(
    trace: &ChildTrace,
    around: &Surroundings,
    home: Option<&Path>,
) -> io::Result<(SandboxRules, bool)> {
    let mut uses: BTreeMap<PathBuf, TracedUses> = BTreeMap::new();
    let mut skipped = 0;
    for files in trace.files()? {
        let uses = uses.entry(files.policy).or_default();
        let lines = BufReader::new(File::open(files.calls)?);
        skipped += CallReader::read(lines, |found| uses.add(found))?;
    }
    let mut rules = SandboxRules::default();
    for (policy, uses) in &uses {
        rules.add(uses, &SandboxPolicy::load(policy)?, around);
    }
    rules.group(home.and_then(|home| home.canonicalize().ok()).as_deref());
    Ok((rules, skipped > 0 || uses.values().any(|uses| uses.is_cut)))
}

/// The path of `strace`, which is not looked for in a checkout.
fn strace() -> Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    Checkout::around_here().find_outside("strace", &path).ok_or_else(|| {
        let hint = match cfg!(target_os = "linux") {
            true => "install it: apt-get install strace, dnf install strace, or apk add strace",
            false => "trace the agent on Linux, where agents have a sandbox",
        };
        CliError::failure("the program 'strace' is not found").hint(hint)
    })
}

/// Watches a program that does nothing.
async fn check_strace(trace: &ChildTrace) -> Result {
    let words = trace.words_into(Path::new("/dev/null"));
    let [program, arguments @ ..] = &words[..] else { return Ok(()) };
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).arg("true").stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(CHECK_LIMIT, command.output()).await;
    let why = match output {
        Ok(Ok(output)) if output.status.success() => return Ok(()),
        Ok(Ok(output)) => safe::line(&String::from_utf8_lossy(&output.stderr)),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it does not end within {CHECK_LIMIT:?}"),
    };
    Err(CliError::failure(format!("'strace' cannot watch programs here: {why}")).hint(
        "it needs strace 5.3 or newer; a container needs the capability SYS_PTRACE, and a system kernel.yama.ptrace_scope below 3",
    ))
}
