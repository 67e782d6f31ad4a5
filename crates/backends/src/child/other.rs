//! Processes on systems without `/proc`: only process groups can be found.

use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::child::PeerSocket;
use crate::child::identity::{Identity, ProcessStatus};

/// Whether all processes can be listed. Without this, only the existence of a group can be checked.
pub(in crate::child) const SEES_PROCESSES: bool = false;

pub(in crate::child) fn pids() -> Vec<u32> {
    Vec::new()
}

pub(in crate::child) fn status(_pid: u32) -> Option<ProcessStatus> {
    None
}

pub(in crate::child) fn resident_bytes(_pid: u32) -> Option<u64> {
    None
}

pub(in crate::child) fn environment(_pid: u32) -> Option<Vec<u8>> {
    None
}

/// Returns the identity of a process that runs, or has exited but is not reaped. Its start time is unknown and set to 0.
pub(in crate::child) fn identity(pid: u32) -> Option<Identity> {
    Some(Identity { pid, start: 0 })
}

/// Returns the ids of the boot and of the process id namespace. They are unknown here, so both are empty.
pub(crate) fn machine() -> (String, String) {
    (String::new(), String::new())
}

pub(in crate::child) fn peer_of(_peer: SocketAddr, _server: SocketAddr) -> PeerSocket {
    PeerSocket::Elsewhere
}

pub(in crate::child) fn has_descriptors_in_flight() -> bool {
    false
}

pub(in crate::child) fn is_of_other_user(_pid: u32) -> bool {
    false
}

pub(in crate::child) fn send(_process: Identity, pid: Pid, signal: Signal) -> Result<(), Errno> {
    kill_process(pid, signal)
}
