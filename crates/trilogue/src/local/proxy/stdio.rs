//! The streams to the editor.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixStream, unix::pipe};

/// Standard input and output of this process. Pipes and sockets are used without a thread between.
pub struct Stdio {
    pub(super) input: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) output: Box<dyn AsyncWrite + Send + Unpin>,
    _flags: [Flags; 2],
}

/// The earlier flags of a stream, restored at the end because other programs may share it.
struct Flags(Option<(OwnedFd, OFlags)>);

// === impl Stdio ===

impl Stdio {
    /// Takes the streams of this process. Needs a Tokio runtime.
    #[must_use]
    pub fn open() -> Self {
        let flags = [Flags::of(io::stdin()), Flags::of(io::stdout())];
        Self {
            input: input().unwrap_or_else(|_| Box::new(tokio::io::stdin())),
            output: output().unwrap_or_else(|_| Box::new(tokio::io::stdout())),
            _flags: flags,
        }
    }
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdio").finish_non_exhaustive()
    }
}

fn input() -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
    let fd = io::stdin().as_fd().try_clone_to_owned()?;
    match kind(&fd)? {
        FileType::Fifo => Ok(Box::new(pipe::Receiver::from_owned_fd(fd)?)),
        FileType::Socket => Ok(Box::new(socket(fd)?)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn output() -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
    let fd = io::stdout().as_fd().try_clone_to_owned()?;
    match kind(&fd)? {
        FileType::Fifo => Ok(Box::new(pipe::Sender::from_owned_fd(fd)?)),
        FileType::Socket => Ok(Box::new(socket(fd)?)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

// === impl Flags ===

impl Flags {
    fn of(stream: impl AsFd) -> Self {
        let fd = stream.as_fd().try_clone_to_owned().ok();
        Self(fd.and_then(|fd| fcntl_getfl(&fd).ok().map(|flags| (fd, flags))))
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        if let Some((fd, flags)) = &self.0 {
            // An error is harmless: a closed stream needs no flags.
            let _ = fcntl_setfl(fd, *flags);
        }
    }
}
