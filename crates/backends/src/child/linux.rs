//! Processes on Linux: `/proc` lists them, and a descriptor pins the process that gets a signal.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::PeerSocket;
use super::identity::{Identity, ProcessStatus};
use super::tcp_sockets::{self, TcpSocket};

/// Whether all processes can be listed. Without this, only the existence of a group can be checked.
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
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

/// Returns the resident memory of a process, in bytes.
pub(super) fn resident_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// Returns the variables of a process, separated by zero bytes. `None` if they cannot be read, such as for another user's process.
pub(super) fn environment(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/environ")).ok()
}

/// Returns the identity of a process that runs, or has exited but is not reaped.
pub(super) fn identity(pid: u32) -> Option<Identity> {
    status(pid).map(|status| Identity { pid, start: status.start })
}

/// Returns the ids of the boot and of the process id namespace. Empty if they are unknown.
pub(crate) fn machine() -> (String, String) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    (boot.trim().to_owned(), namespace.to_string_lossy().into_owned())
}

/// Finds the processes that hold the peer's end of a connection to this server.
pub(super) fn peer_of(peer: SocketAddr, server: SocketAddr) -> PeerSocket {
    let found = tcp_sockets::find(peer, server);
    let own = rustix::process::geteuid();
    let inode = match found {
        // An agent that runs as root can give its sockets and processes to any user, so the user of a socket proves nothing then.
        TcpSocket::Open(owner) if owner.uid == own.as_raw() || own.is_root() => owner.inode,
        TcpSocket::Open(_) | TcpSocket::Elsewhere => return PeerSocket::Elsewhere,
        // A socket of this machine without an owner: its process has closed it.
        TcpSocket::Closed => return PeerSocket::Gone,
        TcpSocket::Unknown => return PeerSocket::Unknown,
    };
    let name = format!("socket:[{inode}]");
    let mut unreadable = Vec::new();
    // A process can pass the socket on to one that is started while the others are read, and a thread can have descriptors of its own. The second look, which
    // is seldom needed, reads those of all threads.
    for reads_threads in [false, true] {
        let mut holders = Vec::new();
        unreadable.clear();
        for pid in pids() {
            match holds(pid, &name, reads_threads) {
                Some(true) => holders.push(pid),
                Some(false) => {}
                None if own.is_root() || is_of_user(pid, own.as_raw()) => {
                    // A process that is gone holds nothing.
                    let is_running = status(pid).is_some_and(|status| !status.is_dead);
                    unreadable.extend(is_running.then_some(pid));
                }
                None => {}
            }
        }
        if !holders.is_empty() {
            return PeerSocket::HeldBy(holders);
        }
    }
    if unreadable.is_empty() { PeerSocket::Gone } else { PeerSocket::HeldByOneOf(unreadable) }
}

/// Returns whether a process that can be read has a socket with descriptors in its queue, which no process holds until it takes them.
pub(super) fn has_descriptors_in_flight() -> bool {
    let is_queued = |text: &str| {
        let count = text.lines().find_map(|line| line.strip_prefix("scm_fds:"));
        count.is_some_and(|count| count.trim() != "0")
    };
    pids().into_iter().any(|pid| {
        let folders = descriptor_folders(pid, "fdinfo", true).into_iter();
        let mut all = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        all.any(|one| fs::read_to_string(one.path()).is_ok_and(|text| is_queued(&text)))
    })
}

/// Returns whether a process runs as another user than this one.
pub(super) fn is_of_other_user(pid: u32) -> bool {
    status(pid).is_some() && !is_of_user(pid, rustix::process::geteuid().as_raw())
}

/// Returns whether a process runs as this user. Reads its status, because root owns the `/proc` folder of a process that protects itself.
fn is_of_user(pid: u32, user: u32) -> bool {
    // A process that is gone holds nothing.
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.is_some_and(|users| users.split_ascii_whitespace().any(|it| it.parse() == Ok(user)))
}

/// Returns whether a process has this socket open. `None` if its descriptors cannot be read: it is gone, or protects itself.
fn holds(pid: u32, socket: &str, reads_threads: bool) -> Option<bool> {
    let mut is_read = false;
    for folder in descriptor_folders(pid, "fd", reads_threads) {
        let Ok(open) = fs::read_dir(folder) else { continue };
        is_read = true;
        let mut links = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        if links.any(|link| link.as_os_str() == socket) {
            return Some(true);
        }
    }
    is_read.then_some(false)
}

/// Returns the folders with the descriptors of a process, or of each of its threads, which usually share them.
fn descriptor_folders(pid: u32, name: &str, of_threads: bool) -> Vec<PathBuf> {
    if !of_threads {
        return vec![format!("/proc/{pid}/{name}").into()];
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path().join(name)).collect()
}

/// Sends a signal to this process, and never to another process with the same id. Does nothing if the process is gone.
pub(super) fn send(process: Identity, pid: Pid, signal: Signal) -> Result<(), Errno> {
    // Open the descriptor first: it pins the process. Then check the identity, so that the id cannot be reused in between.
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) if process.is_alive() => pidfd_send_signal(descriptor, signal),
        Err(Errno::NOSYS) if process.is_alive() => kill_process(pid, signal),
        Ok(_) | Err(_) => Ok(()),
    }
}
