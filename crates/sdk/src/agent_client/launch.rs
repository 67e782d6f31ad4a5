use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use trilogue_domain::lock;

use super::Error;
use crate::leader::Leader;

const KEPT_BYTES: usize = 16 * 1024;

/// The command of an agent program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    inherits: bool,
    cwd: Option<PathBuf>,
}

/// A launched program. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct Child {
    /// `None` after the program was ended.
    leader: tokio::sync::Mutex<Option<Leader>>,
    stderr_tail: Arc<Mutex<VecDeque<u8>>>,
}

// === impl Command ===

impl Command {
    /// Returns a command without arguments, with the environment of this process.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        let (arguments, variables) = (Vec::new(), Vec::new());
        Self { program: program.into(), arguments, variables, inherits: true, cwd: None }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Clears the environment: the program inherits no variables of this process.
    #[must_use]
    pub fn env_clear(mut self) -> Self {
        self.inherits = false;
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = Some(path.into());
        self
    }
}

// === impl Child ===

impl Child {
    pub(super) fn start(command: Command) -> Result<(Self, ChildStdout, ChildStdin), Error> {
        let mut process = tokio::process::Command::new(&command.program);
        if !command.inherits {
            process.env_clear();
        }
        if let Some(cwd) = &command.cwd {
            process.current_dir(cwd);
        }
        process
            .args(&command.arguments)
            .envs(command.variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let program = command.program;
        let failed = |error| Error::Launch { program: program.clone(), error };
        let mut leader = Leader::spawn(&mut process).map_err(failed)?;
        let piped = || failed(std::io::Error::other("it has no pipes"));
        let (read, write) = (leader.take_stdout(), leader.take_stdin());
        let (read, write) = (read.ok_or_else(piped)?, write.ok_or_else(piped)?);
        let stderr_tail = Arc::new(Mutex::default());
        if let Some(stderr) = leader.take_stderr() {
            tokio::spawn(listen(stderr, Arc::clone(&stderr_tail)));
        }
        let leader = tokio::sync::Mutex::new(Some(leader));
        Ok((Self { leader, stderr_tail }, read, write))
    }

    pub(super) fn stderr_tail(&self) -> String {
        let kept = lock(&self.stderr_tail);
        String::from_utf8_lossy(&kept.iter().copied().collect::<Vec<_>>()).into_owned()
    }

    /// Waits until the program has exited: first by itself, then after a signal. Kills its whole group in the end. Reaps the program after
    /// that, so that no signal reaches another group with the same id.
    pub(super) async fn end(&self, grace: Duration) {
        let mut running = self.leader.lock().await;
        let Some(leader) = running.take() else { return };
        if tokio::time::timeout(grace, leader.wait_for_exit()).await.is_err() {
            leader.signal_group(Signal::TERM);
            // The kill below ends the group, even if the program ignored the signal.
            drop(tokio::time::timeout(grace, leader.wait_for_exit()).await);
        }
        leader.signal_group(Signal::KILL);
        // A program that hangs in the kernel is reaped when it exits.
        let _ = leader.reap().await;
    }
}

async fn listen(mut from: ChildStderr, stderr_tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut piece = [0; 4_096];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let mut kept = lock(&stderr_tail);
        kept.extend(piece.iter().take(length));
        let excess = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..excess);
    }
}
