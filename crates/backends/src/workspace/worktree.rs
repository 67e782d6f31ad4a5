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

const GIT_TIMEOUT: Duration = Duration::from_secs(120);
/// The most output of git that is read, in bytes.
const MAX_OUTPUT_BYTES: u64 = 16 * 1024;
/// The most of it that an error repeats, in characters.
const MAX_SHOWN_CHARS: usize = 500;
/// Git runs no program that an agent may have put into the repository.
const SAFE_OPTIONS: [&str; 4] = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"];

/// A repository of which an agent's threads have worktrees.
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

    /// Adds a worktree, unless it exists. It continues a branch that exists.
    pub(super) async fn add(&self, folder: &Path, thread: &str) -> Result<()> {
        if self.has(folder).await? {
            return Ok(());
        }
        // Git forgets folders that were removed by hand only when it is asked to.
        self.git(&self.path, &["worktree", "prune"]).await?;
        let (branch, place) = (self.branch(thread), folder.to_string_lossy());
        let reference = format!("refs/heads/{branch}");
        let known = ["rev-parse", "--verify", "--quiet", &reference];
        let run = if self.git(&self.path, &known).await?.status.success() {
            self.git(&self.path, &["worktree", "add", "--", &place, &branch]).await?
        } else {
            self.git(&self.path, &["worktree", "add", "-b", &branch, "--", &place]).await?
        };
        if run.status.success() {
            return Ok(());
        }
        let hint = "check `worktree` of the agent: it must be a git repository with a commit, and nothing else may be at its `cwd`";
        Err(self.failed(&format!("git could not create the worktree '{place}'"), &run).hint(hint))
    }

    /// Removes a worktree without changes. Commits that are nowhere else stay on its branch.
    pub(super) async fn remove(&self, folder: &Path, thread: &str) -> Result<Removal> {
        if !folder.exists() {
            self.git(&self.path, &["worktree", "prune"]).await?;
            return Ok(Removal::Gone);
        }
        let place = folder.to_string_lossy();
        let run = self.git(&self.path, &["worktree", "remove", "--", &place]).await?;
        if !run.status.success() {
            return Ok(Removal::Kept(run.error_line()));
        }
        // Git keeps a branch with unmerged commits.
        self.git(&self.path, &["branch", "--delete", "--", &self.branch(thread)]).await?;
        Ok(Removal::Gone)
    }

    /// Whether the folder is a worktree of this repository, and not of another.
    async fn has(&self, folder: &Path) -> Result<bool> {
        if !folder.join(".git").is_file() {
            return Ok(false);
        }
        let common = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let (here, there) =
            (self.git(folder, &common).await?, self.git(&self.path, &common).await?);
        Ok(here.status.success() && there.status.success() && here.out == there.out)
    }

    fn branch(&self, thread: &str) -> String {
        format!("trilogue/{}/{thread}", self.agent)
    }

    async fn git(&self, place: &Path, arguments: &[&str]) -> Result<GitOutput> {
        let not_run = |error: &io::Error| {
            let message = format!("git cannot be run for '{}': {error}", self.path.display());
            Error::new(Code::AgentFailed, message)
                .hint("install git, or remove `worktree` from the agent's settings")
        };
        let mut command = Command::new("git");
        command.arg("-C").arg(place).args(SAFE_OPTIONS).args(arguments);
        for (name, _) in std::env::vars_os() {
            // The server's own variables are about another repository.
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        command
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| not_run(&error))?;
        let (out, error) = (child.stdout.take(), child.stderr.take());
        let work = async { tokio::try_join!(child.wait(), read(out), read(error)) };
        match timeout(GIT_TIMEOUT, work).await {
            Ok(Ok((status, out, error))) => Ok(GitOutput { status, out, error }),
            Ok(Err(error)) => Err(not_run(&error)),
            Err(_) => Err(not_run(&io::ErrorKind::TimedOut.into())),
        }
    }

    fn failed(&self, what: &str, run: &GitOutput) -> Error {
        let message = format!("{what} of '{}': {}", self.path.display(), run.error_line());
        Error::new(Code::AgentFailed, message)
    }
}

/// Reads a stream to its end and keeps the beginning.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<String> {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(MAX_OUTPUT_BYTES).read_to_end(&mut kept).await?;
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
