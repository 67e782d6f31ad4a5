//! File descriptors: how many this process can have, and how many connections can use.

use std::fs::{File, read_dir};
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit that a server requests. A higher limit would slow down child processes that close every descriptor up to it.
const WANTED_DESCRIPTORS: u64 = 65_536;
/// The descriptors that connections leave to agents, local sockets, the store and backups; at most half of the limit.
const RESERVED_DESCRIPTORS: u64 = 1_024;

/// Raises the process's soft limit of open files up to its hard limit. Child processes inherit it.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED_DESCRIPTORS, |most| most.min(WANTED_DESCRIPTORS));
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// Returns how many connections the process can have at once if the configuration allows this many.
pub(crate) fn connection_cap(configured: usize) -> usize {
    let Some(limit) = soft_limit() else { return configured };
    let cap = cap_within(limit, configured);
    if cap < configured {
        tracing::warn!(
            descriptors = limit,
            configured,
            connections = cap,
            "the limit of open files allows fewer connections than `server.limits.max_connections`: raise it, such as with `ulimit -n` or `LimitNOFILE`"
        );
    }
    cap
}

fn cap_within(descriptors: u64, configured: usize) -> usize {
    let free = descriptors - RESERVED_DESCRIPTORS.min(descriptors / 2);
    configured.min(usize::try_from(free).unwrap_or(usize::MAX))
}

/// Returns how many files the process can have open, or `None` without a limit.
pub(crate) fn soft_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns how many files the process has open, or `None` if the system does not report it.
pub(crate) fn open_count() -> Option<u64> {
    match read_dir("/dev/fd") {
        // Reading the folder uses one descriptor itself.
        Ok(entries) => Some((entries.count() as u64).saturating_sub(1)),
        Err(error) if is_exhausted(&error) => soft_limit(),
        Err(_) => None,
    }
}

/// Whether the process can open another file.
pub(crate) fn is_one_free() -> bool {
    !File::open("/dev/null").is_err_and(|error| is_exhausted(&error))
}

/// Whether an error means that the process or the system has no free descriptor.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_our_own_work() {
        for (descriptors, configured, cap) in [
            (65_536, 4_096, 4_096),
            (65_536, 100_000, 64_512),
            (4_096, 4_096, 3_072),
            (1_024, 4_096, 512),
            (100, 4_096, 50),
            (100, 40, 40),
        ] {
            assert_eq!(cap_within(descriptors, configured), cap, "{descriptors} {configured}");
        }
    }
}
