//! A process of ours, and when its number may be another's.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};
use tokio::process::Child as Spawned;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// How long one that has ended may take to be reaped: no time at all, as a rule.
const REAPED_WITHIN: Duration = Duration::from_secs(1);

/// A process that was started as the head of a group of its own, and that is not reaped before somebody says so: as long as it is not,
/// its number, which is its group's too, is nobody else's, even if it has ended.
///
/// Dropping it before that kills its group.
#[derive(Debug)]
pub struct Leader {
    spawned: Spawned,
    pid: Pid,
    is_reaped: bool,
}

// === impl Leader ===

impl Leader {
    /// Takes a process that has just been started.
    ///
    /// # Errors
    /// When it has been reaped already.
    pub fn of(spawned: Spawned) -> io::Result<Self> {
        let pid = spawned.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the process is not there any more"))?;
        Ok(Self { spawned, pid, is_reaped: false })
    }

    /// Its number, which is that of its group too.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns when it has ended, with how it did; `None` where that cannot be told. It stays there to be reaped.
    pub async fn ended(&self) -> Option<ExitStatus> {
        // It is listened for ends before it is looked, so that none goes by.
        let mut ends = signal(SignalKind::child()).ok()?;
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        loop {
            match waitid(WaitId::Pid(self.pid), how) {
                Ok(Some(status)) => return status_of(&status),
                Ok(None) => ends.recv().await?,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends its group a signal. There may be nobody left in it.
    pub fn signal_group(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.pid, signal) {
            tracing::trace!(%error, "a group of processes could not be sent a signal");
        }
    }

    /// Reaps it. From now on its number may be another's. One that has not ended is killed, and reaped whenever it ends.
    pub async fn reap(mut self) {
        let reaped = timeout(REAPED_WITHIN, self.spawned.wait()).await;
        self.is_reaped = reaped.is_ok();
        if reaped.is_err() {
            tracing::warn!("a process does not end");
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal_group(Signal::KILL);
        }
    }
}

/// How a process ended, as the standard library has it.
fn status_of(status: &WaitIdStatus) -> Option<ExitStatus> {
    if let Some(code) = status.exit_status() {
        return Some(ExitStatus::from_raw((code & 0xff) << 8));
    }
    status.terminating_signal().map(ExitStatus::from_raw)
}
