//! Worktrees of a git repository, created and removed by git itself.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, safe};

use super::Removal;
use super::worktree_paths::common_folder;
use crate::child::Leader;
use crate::child::tree::Tree;

const GIT_TIMEOUT: Duration = Duration::from_secs(120);
/// The most output of git that is read, in bytes.
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
/// The most of git's output that an error repeats, in characters.
const MAX_SHOWN_CHARS: usize = 500;
/// The server's variables that git gets: they locate git and the user's settings.
const INHERITED: [&str; 3] = ["PATH", "HOME", "XDG_CONFIG_HOME"];
/// Settings that keep git from running a program that an agent may have put into the repository.
const SAFE_SETTINGS: [(&str, &str); 8] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", "true"),
    ("core.sshCommand", "false"),
    ("credential.helper", ""),
    ("diff.external", "true"),
    ("submodule.recurse", "false"),
];
/// The sections of settings whose members are programs. Only the repository knows the names in each.
const PROGRAM_SECTIONS: &str = r"^(filter|hook|diff|merge)\..*\.";
/// The members of these sections, without a program.
const WITHOUT_PROGRAM: [(&str, &[(&str, &str)]); 4] = [
    ("filter", &[("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]),
    ("hook", &[("command", "true"), ("enabled", "false")]),
    ("diff", &[("command", "true"), ("textconv", "cat")]),
    ("merge", &[("driver", "false")]),
];

/// A repository with worktrees for an agent's threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Repository {
    path: PathBuf,
    /// The agent's name in branches.
    agent: String,
}

struct GitOutput {
    status: ExitStatus,
    out: String,
    error: String,
}

// === impl Repository ===

impl Repository {
    pub(super) fn new(path: &Path, agent: &AgentName) -> Self {
        Self { path: path.to_owned(), agent: agent.as_str().replace('.', "-") }
    }

    /// Adds a worktree, unless it exists. It continues an existing branch.
    pub(super) async fn add(&self, folder: &Path, thread: &str) -> Result<()> {
        if self.has(folder).await? {
            return Ok(());
        }
        // Git keeps entries of folders that were removed by hand until it prunes them.
        self.git(&self.path, &["worktree", "prune"]).await?;
        let (branch, place) = (self.branch(thread), folder.to_string_lossy());
        let reference = format!("refs/heads/{branch}");
        let known = ["rev-parse", "--verify", "--quiet", &reference];
        self.check_references()?;
        // Without the files: only in the worktree git says which programs its settings name.
        let add: &[&str] = if self.git(&self.path, &known).await?.status.success() {
            &["worktree", "add", "--no-checkout", "--", &place, &branch]
        } else {
            &["worktree", "add", "--no-checkout", "-b", &branch, "--", &place]
        };
        let mut run = self.git(&self.path, add).await?;
        if run.status.success() {
            run = self.git(folder, &["reset", "--hard", "--quiet"]).await?;
        }
        if run.status.success() {
            return Ok(());
        }
        let hint = "check `worktree` of the agent: it must be a git repository with a commit, and nothing else may be at its `cwd`";
        Err(self
            .git_error(&format!("git could not create the worktree '{place}'"), &run)
            .hint(hint))
    }

    /// Removes a worktree without changes. Commits that no other branch has stay on its branch.
    pub(super) async fn remove(&self, folder: &Path, thread: &str) -> Result<Removal> {
        if !folder.exists() {
            self.git(&self.path, &["worktree", "prune"]).await?;
            return Ok(Removal::Gone);
        }
        let place = folder.to_string_lossy();
        // Git looks for changes in the worktree, with its settings, but keeps a folder in which it runs.
        let settings = self.settings_without_programs(folder).await?;
        let run = self.run(&self.path, &settings, &["worktree", "remove", "--", &place]).await?;
        if !run.status.success() {
            return Ok(Removal::Kept(run.error_line()));
        }
        // Git keeps a branch with unmerged commits.
        self.git(&self.path, &["branch", "--delete", "--", &self.branch(thread)]).await?;
        Ok(Removal::Gone)
    }

    /// Whether the folder is a worktree of this repository.
    async fn has(&self, folder: &Path) -> Result<bool> {
        if !folder.join(".git").is_file() {
            return Ok(false);
        }
        let common = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let (here, there) =
            (self.git(folder, &common).await?, self.git(&self.path, &common).await?);
        Ok(here.status.success() && there.status.success() && here.out == there.out)
    }

    /// Refuses a repository whose references lead elsewhere: agents change them, and git would follow.
    fn check_references(&self) -> Result<()> {
        for kind in ["refs", "logs/refs"] {
            let heads = common_folder(&self.path).join(kind).join("heads/trilogue");
            let folders = [heads.join(&self.agent), heads.clone()];
            let parents = heads.ancestors().skip(1).take(3).map(Path::to_owned);
            if let Some(link) = folders.into_iter().chain(parents).find(|it| it.is_symlink()) {
                let message = format!("'{}' is a link", link.display());
                return Err(Error::new(Code::AgentFailed, message)
                    .hint("look who has put it there, and remove it"));
            }
        }
        Ok(())
    }

    fn branch(&self, thread: &str) -> String {
        format!("trilogue/{}/{thread}", self.agent)
    }

    /// Runs git in a folder of the repository, with the settings of the repository but without the programs in them.
    async fn git(&self, place: &Path, arguments: &[&str]) -> Result<GitOutput> {
        let settings = self.settings_without_programs(place).await?;
        self.run(place, &settings, arguments).await
    }

    /// Returns the settings that remove the programs from the settings that hold in a folder of the repository.
    async fn settings_without_programs(&self, place: &Path) -> Result<Vec<(String, &'static str)>> {
        let listing = ["config", "--null", "--name-only", "--get-regexp", PROGRAM_SECTIONS];
        let listed = self.run(place, &[], &listing).await?;
        if listed.out.len() >= MAX_OUTPUT_BYTES {
            return Err(self.git_error("the settings are too long", &listed));
        }
        Ok(without_programs(&listed.out))
    }

    /// Runs git with these settings, and with no other variable of the server's environment.
    async fn run(
        &self,
        place: &Path,
        settings: &[(String, &str)],
        arguments: &[&str],
    ) -> Result<GitOutput> {
        let not_run = |error: &io::Error| {
            let message = format!("git cannot be run for '{}': {error}", self.path.display());
            Error::new(Code::AgentFailed, message)
                .hint("install git, or remove `worktree` from the agent's settings")
        };
        let mut command = Command::new("git");
        command.arg("--no-pager").arg("-C").arg(place).args(arguments);
        command
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            // It fetches nothing, because a protocol may be a program.
            .env("GIT_ALLOW_PROTOCOL", "")
            .env("GIT_NO_LAZY_FETCH", "1");
        let safe = SAFE_SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let all: Vec<_> = safe.chain(settings.iter().cloned()).collect();
        // Otherwise a file of the worktree, which its agent can write, says where the settings are. One question is just about that.
        if !arguments.contains(&"--git-common-dir") {
            command.env("GIT_COMMON_DIR", common_folder(&self.path));
        }
        // Passed as variables, because a name may contain a `=`.
        command.env("GIT_CONFIG_COUNT", all.len().to_string());
        for (number, (name, value)) in all.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{number}"), name);
            command.env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut leader = Leader::spawn(&mut command).map_err(|error| not_run(&error))?;
        let tree = Tree::default().with_group(leader.pid());
        let (out, error) = (leader.take_stdout(), leader.take_stderr());
        let work = async { tokio::join!(leader.wait_for_exit(), read(out), read(error)) };
        let done = timeout(GIT_TIMEOUT, work).await;
        // No process that it started may continue.
        if !tree.is_gone().await {
            tree.kill().await;
        }
        // A process that hangs in the kernel is reaped when it exits.
        let _ = leader.reap().await;
        match done {
            Ok((Some(status), Ok(out), Ok(error))) => Ok(GitOutput { status, out, error }),
            Ok((_, Err(error), _) | (_, _, Err(error))) => Err(not_run(&error)),
            Ok((None, ..)) => Err(not_run(&io::ErrorKind::Interrupted.into())),
            Err(_) => Err(not_run(&io::ErrorKind::TimedOut.into())),
        }
    }

    fn git_error(&self, what: &str, run: &GitOutput) -> Error {
        let message = format!("{what} of '{}': {}", self.path.display(), run.error_line());
        Error::new(Code::AgentFailed, message)
    }
}

/// The settings that remove the programs from the given names, which are separated by zeros.
fn without_programs(names: &str) -> Vec<(String, &'static str)> {
    let mut sections: Vec<&str> =
        names.split('\0').filter_map(|name| Some(name.rsplit_once('.')?.0)).collect();
    sections.sort_unstable();
    sections.dedup();
    let mut settings = Vec::new();
    for section in sections {
        let kind = section.split('.').next().unwrap_or_default();
        let found = WITHOUT_PROGRAM.iter().find(|(name, _)| *name == kind);
        for (member, value) in found.into_iter().flat_map(|(_, members)| *members) {
            settings.push((format!("{section}.{member}"), *value));
        }
    }
    settings
}

/// Reads a stream to its end and keeps the beginning.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(MAX_OUTPUT_BYTES as u64).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

// === impl GitOutput ===

impl GitOutput {
    /// The error on one line.
    fn error_line(&self) -> String {
        let error = safe::line(&self.error);
        let words: Vec<_> = error.split_whitespace().collect();
        words.join(" ").chars().take(MAX_SHOWN_CHARS).collect()
    }
}
