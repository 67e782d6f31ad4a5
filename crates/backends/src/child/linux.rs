//! Processes on Linux: `/proc` lists them, and a descriptor pins the one that a signal is for.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::identity::{Identity, ProcessStatus};

/// Whether all processes can be seen, and not only whether a group has any.
pub(super) const SEES_PROCESSES: bool = true;

pub(super) fn pids() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(super) fn status(pid: u32) -> Option<ProcessStatus> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(ProcessStatus {
        is_dead: matches!(fields.first().copied()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

/// The variables of a process, separated by zeros; `None` for a process of another user.
pub(super) fn environment(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// A process that runs, or has exited and is not reaped.
pub(super) fn identity(pid: u32) -> Option<Identity> {
    status(pid).map(|status| Identity { pid, start: status.start })
}

/// The boot and the namespace of process ids; empty if they are unknown.
pub(super) fn machine() -> (String, String) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    (boot.trim().to_owned(), namespace.to_string_lossy().into_owned())
}

/// Sends a signal to this process, and never to another with the same id.
pub(super) fn send(process: Identity, pid: Pid, signal: Signal) -> Result<(), Errno> {
    // The descriptor pins the process. After that its identity is checked once more.
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) if process.is_alive() => pidfd_send_signal(descriptor, signal),
        Err(Errno::NOSYS) if process.is_alive() => kill_process(pid, signal),
        Ok(_) | Err(_) => Ok(()),
    }
}
