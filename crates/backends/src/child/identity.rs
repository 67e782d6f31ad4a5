//! Process identities that survive the reuse of process ids.

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::platform;

/// A process id with its start time. The start time tells the process from a later one with the same id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// When it was started, in the system's own unit, counted from boot.
    pub(crate) start: u64,
}

#[derive(Clone, Copy)]
pub(super) struct ProcessStatus {
    pub(super) parent: u32,
    pub(super) group: u32,
    /// The process id of its session's leader. The leader may have ended.
    pub(super) session: u32,
    pub(super) start: u64,
    /// Whether it has exited but is not reaped.
    pub(super) is_dead: bool,
    /// Whether a signal has stopped it.
    pub(super) is_stopped: bool,
}

// === impl Identity ===

impl Identity {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        platform::identity(pid)
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "pid": self.pid, "start": self.start })
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let pid = value.get("pid")?.as_u64().and_then(|pid| u32::try_from(pid).ok())?;
        Some(Self { pid, start: value.get("start")?.as_u64()? })
    }

    pub(crate) fn is_alive(self) -> bool {
        platform::status(self.pid)
            .is_some_and(|status| status.start == self.start && !status.is_dead)
    }

    pub(super) fn signal(self, signal: Signal) {
        let Some(pid) = raw_pid(self.pid) else { return };
        if let Err(error) = platform::send(self, pid, signal) {
            tracing::debug!(pid = self.pid, %error, "a process could not be signalled");
        }
    }
}

pub(super) fn raw_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
