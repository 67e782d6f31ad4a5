use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use trilogue_domain::lock;

use super::Error;

const KEPT_BYTES: usize = 16 * 1024;

/// A program that is an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    inherits: bool,
    cwd: Option<PathBuf>,
}

/// A started program. Everything in its process group is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Child {
    group: Option<Pid>,
    process: tokio::sync::Mutex<tokio::process::Child>,
    stderr_tail: Arc<Mutex<VecDeque<u8>>>,
}

// === impl Command ===

impl Command {
    /// A program without arguments, with the environment of this process.
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

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Gives it nothing of this process's environment.
    #[must_use]
    pub fn env_clear(mut self) -> Self {
        self.inherits = false;
        self
    }

    /// Starts it there.
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
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let program = command.program;
        let failed = |error| Error::Launch { program: program.clone(), error };
        let mut process = process.spawn().map_err(failed)?;
        let piped = || failed(std::io::Error::other("it has no pipes"));
        let (read, write) = (process.stdout.take(), process.stdin.take());
        let (read, write) = (read.ok_or_else(piped)?, write.ok_or_else(piped)?);
        let stderr_tail = Arc::new(Mutex::default());
        if let Some(stderr) = process.stderr.take() {
            tokio::spawn(listen(stderr, Arc::clone(&stderr_tail)));
        }
        let id = process.id().and_then(|id| i32::try_from(id).ok());
        let group = id.and_then(Pid::from_raw);
        let process = tokio::sync::Mutex::new(process);
        Ok((Self { group, process, stderr_tail }, read, write))
    }

    pub(super) fn stderr_tail(&self) -> String {
        let kept = lock(&self.stderr_tail);
        String::from_utf8_lossy(&kept.iter().copied().collect::<Vec<_>>()).into_owned()
    }

    /// Waits until it has ended, first by itself, then asked to by a signal; kills its whole group in the end.
    pub(super) async fn end(&self, grace: Duration) {
        let mut process = self.process.lock().await;
        if tokio::time::timeout(grace, process.wait()).await.is_err() {
            self.signal(Signal::TERM);
            // Whether it listens or not, nothing of it is left afterwards.
            drop(tokio::time::timeout(grace, process.wait()).await);
        }
        self.signal(Signal::KILL);
        drop(process.wait().await);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group without processes is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
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
