//! Reads and writes that do not wait: one thread serves all sides of the holder.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;

/// The most bytes of one read or write.
pub(super) const TRANSFER_BYTES: usize = 64 * 1024;

/// What a read or a write has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transfer {
    /// This number of bytes, which is not 0.
    Bytes(usize),
    /// Nothing: the other side has to act first.
    Blocked,
    /// Nothing: the other side is gone.
    Closed,
}

/// Makes reads and writes return at once.
pub(super) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Reads once. After an error the other side counts as gone.
pub(super) fn read(fd: impl AsFd, bytes: &mut [u8]) -> Transfer {
    transfer(rustix::io::read(fd, bytes))
}

/// Writes once. After an error the other side counts as gone.
pub(super) fn write(fd: impl AsFd, bytes: &[u8]) -> Transfer {
    let part = bytes.get(..TRANSFER_BYTES).unwrap_or(bytes);
    transfer(rustix::io::write(fd, part))
}

fn transfer(result: Result<usize, Errno>) -> Transfer {
    match result {
        Ok(0) => Transfer::Closed,
        Ok(bytes) => Transfer::Bytes(bytes),
        // `poll` reports it again after an interrupted call.
        Err(Errno::AGAIN | Errno::INTR) => Transfer::Blocked,
        Err(_) => Transfer::Closed,
    }
}
