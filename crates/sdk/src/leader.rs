//! A child process that keeps its process id until it is reaped.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// How long reaping may take. It normally returns at once.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// A child process that leads its own process group. Until [`Leader::reap`], no other process or group gets its id, even after it has exited.
///
/// If you drop it before that, its group is killed.
#[derive(Debug)]
pub struct Leader {
    spawned: Child,
    pid: Pid,
    is_reaped: bool,
}

// === impl Leader ===

impl Leader {
    /// Spawns a command as the leader of a new group.
    /// Fails if the command cannot be spawned.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let spawned = command.process_group(0).spawn()?;
        let pid = spawned.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the process has been reaped already"))?;
        Ok(Self { spawned, pid, is_reaped: false })
    }

    /// Returns the process id, which is also the id of the group.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Takes the standard input, if it is a pipe and was not taken before.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.spawned.stdin.take()
    }

    /// Takes the standard output, under the same conditions.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.spawned.stdout.take()
    }

    /// Takes the standard error, under the same conditions.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.spawned.stderr.take()
    }

    /// Waits until the process has exited and returns its status, or `None` if the status is unknown. Does not reap the process.
    pub async fn wait_for_exit(&self) -> Option<ExitStatus> {
        // Subscribe to exits before the first check, so that none is missed.
        let mut exits = signal(SignalKind::child()).ok()?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pid(self.pid), options) {
                Ok(Some(status)) => return status_of(&status),
                Ok(None) => exits.recv().await?,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Leaves the process to itself: it is not killed when this is dropped.
    pub fn leave(mut self) {
        self.is_reaped = true;
    }

    /// Sends a signal to the process group, which may be empty.
    pub fn signal_group(&self, signal: Signal) {
        // An empty group needs no signal, so the error does not matter.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Reaps the process; afterwards another process can get its id. Returns `false` if the process did not exit within a second: it is then killed, and reaped when it exits.
    pub async fn reap(mut self) -> bool {
        let reaped = timeout(REAP_TIMEOUT, self.spawned.wait()).await;
        self.is_reaped = reaped.is_ok();
        self.is_reaped
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal_group(Signal::KILL);
        }
    }
}

/// Converts the status to the type of the standard library.
fn status_of(status: &WaitIdStatus) -> Option<ExitStatus> {
    if let Some(code) = status.exit_status() {
        return Some(ExitStatus::from_raw((code & 0xff) << 8));
    }
    status.terminating_signal().map(ExitStatus::from_raw)
}
