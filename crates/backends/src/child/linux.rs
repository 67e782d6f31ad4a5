//! Processes on Linux: `/proc` lists them, and a descriptor pins the process that gets a signal.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::child::PeerSocket;
use crate::child::identity::{Identity, ProcessStatus};
use crate::child::tcp_sockets::{self, TcpSocket};

/// Whether all processes can be listed. Without this, only the existence of a group can be checked.
pub(in crate::child) const SEES_PROCESSES: bool = true;

/// The flag of the kernel's threads in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// How often the variables of a process are read while it becomes another program, with a pause after each time.
const MAX_ENVIRONMENT_READS: usize = 500;
/// How often the room for the variables must be found empty before they are known to be none.
const MIN_EMPTY_LOOKS: usize = 5;
/// The size of the first buffer for the variables of a process, and of the last one, in bytes. The kernel's own limit is 6 MiB.
const FIRST_READ_BYTES: usize = 16 * 1024;
const MAX_READ_BYTES: usize = 16 * 1024 * 1024;
const ENVIRONMENT_PAUSE: Duration = Duration::from_millis(1);

pub(in crate::child) fn pids() -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(in crate::child) fn status(pid: u32) -> Option<ProcessStatus> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat_fields(&text)?;
    Some(ProcessStatus {
        is_dead: is_dead(&fields),
        is_stopped: matches!(fields.first(), Some(&("T" | "t"))),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

/// Returns the resident memory of a process, in bytes.
pub(in crate::child) fn resident_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes.saturating_mul(1024))
}

/// Returns the variables of a process, separated by zero bytes. `None` if they cannot be read, such as for another user's process.
///
/// A process that becomes another program has no variables for a moment. It must not be taken for one without any, so this waits for the new program.
pub(in crate::child) fn environment(pid: u32) -> Option<Vec<u8>> {
    let mut empty_looks = 0;
    for _ in 0..MAX_ENVIRONMENT_READS {
        let variables = read_at_once(&format!("/proc/{pid}/environ")).ok()?;
        if !variables.is_empty() {
            return Some(variables);
        }
        match variables_room(pid)? {
            VariablesRoom::NoProgram => return Some(variables),
            VariablesRoom::Empty => empty_looks += 1,
            VariablesRoom::Unknown => {}
        }
        if empty_looks == MIN_EMPTY_LOOKS {
            return Some(variables);
        }
        std::thread::sleep(ENVIRONMENT_PAUSE);
    }
    None
}

/// Reads a file by one call: the rest of a process's variables is gone when it becomes another program between two calls.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut size = FIRST_READ_BYTES;
    loop {
        let mut text = vec![0; size];
        let count = File::open(path)?.read(&mut text)?;
        if count < size || size >= MAX_READ_BYTES {
            text.truncate(count);
            return Ok(text);
        }
        size *= 4;
    }
}

/// The part of a process's memory for its variables.
enum VariablesRoom {
    /// The process is a thread of the kernel, or has ended.
    NoProgram,
    /// It has no byte. A new program's room begins so too, before its size is known.
    Empty,
    /// It has variables, or the program is not complete.
    Unknown,
}

fn variables_room(pid: u32) -> Option<VariablesRoom> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat_fields(&text)?;
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let (start, end) = (number(47)?, number(48)?);
    if is_dead(&fields) || number(6)? & KERNEL_THREAD != 0 {
        return Some(VariablesRoom::NoProgram);
    }
    let is_empty = end != 0 && start == end;
    Some(if is_empty { VariablesRoom::Empty } else { VariablesRoom::Unknown })
}

/// Returns the fields of `/proc/PID/stat` after the program's name, which is in parentheses and may hold anything. The first one is the state.
fn stat_fields(text: &str) -> Option<Vec<&str>> {
    Some(text.rsplit_once(')')?.1.split_ascii_whitespace().collect())
}

fn is_dead(fields: &[&str]) -> bool {
    matches!(fields.first(), Some(&("Z" | "X" | "x")))
}

/// Returns the identity of a process that runs, or has exited but is not reaped.
pub(in crate::child) fn identity(pid: u32) -> Option<Identity> {
    status(pid).map(|status| Identity { pid, start: status.start })
}

/// Returns the ids of the boot and of the process id namespace. Empty if they are unknown.
pub(crate) fn machine() -> (String, String) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    (boot.trim().to_owned(), namespace.to_string_lossy().into_owned())
}

/// Finds the processes that hold the peer's end of a connection to this server.
pub(in crate::child) fn peer_of(peer: SocketAddr, server: SocketAddr) -> PeerSocket {
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
pub(in crate::child) fn has_descriptors_in_flight() -> bool {
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
pub(in crate::child) fn is_of_other_user(pid: u32) -> bool {
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
pub(in crate::child) fn send(process: Identity, pid: Pid, signal: Signal) -> Result<(), Errno> {
    // Open the descriptor first: it pins the process. Then check the identity, so that the id cannot be reused in between.
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) if process.is_alive() => pidfd_send_signal(descriptor, signal),
        Err(Errno::NOSYS) if process.is_alive() => kill_process(pid, signal),
        Ok(_) | Err(_) => Ok(()),
    }
}
