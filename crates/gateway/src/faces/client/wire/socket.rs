//! The halves of a local socket.
//!
//! The system reports a local socket as writable whenever its other end has read something, which wakes the writer once per message.
//! So writability is watched only while a write waits.

use std::io::{self, Write};
use std::mem;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::task::coop;

/// The read half of a local socket.
#[derive(Debug)]
pub struct LocalReader(pipe::Receiver);

/// The write half of a local socket. Dropping it closes this direction.
#[derive(Debug)]
pub struct LocalWriter(WriteMode);

#[derive(Debug)]
enum WriteMode {
    /// Writability is not watched.
    Unwatched(UnixStream),
    /// Writability is watched, because a write waits.
    Watched(pipe::Sender),
    /// Watching failed.
    Lost,
}

/// Splits a local socket.
///
/// # Errors
/// If the process or the system has no free file descriptor.
pub fn split_local(stream: tokio::net::UnixStream) -> io::Result<(LocalReader, LocalWriter)> {
    let socket = stream.into_std()?;
    // Tokio's pipe receiver watches only for readability, and reads any stream.
    let reader = pipe::Receiver::from_owned_fd_unchecked(socket.try_clone()?.into())?;
    Ok((LocalReader(reader), LocalWriter(WriteMode::Unwatched(socket))))
}

// === impl LocalReader ===

impl AsyncRead for LocalReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

// === impl LocalWriter ===

impl LocalWriter {
    fn watch(&mut self) -> io::Result<()> {
        if let WriteMode::Unwatched(socket) = mem::replace(&mut self.0, WriteMode::Lost) {
            self.0 = WriteMode::Watched(pipe::Sender::from_owned_fd_unchecked(socket.into())?);
        }
        Ok(())
    }

    fn unwatch(&mut self) -> io::Result<()> {
        match mem::replace(&mut self.0, WriteMode::Lost) {
            WriteMode::Watched(sender) => {
                self.0 = WriteMode::Unwatched(sender.into_nonblocking_fd()?.into())
            }
            mode => self.0 = mode,
        }
        Ok(())
    }

    fn shut(&mut self) -> io::Result<()> {
        self.unwatch()?;
        match &self.0 {
            WriteMode::Unwatched(socket) => socket.shutdown(Shutdown::Write),
            WriteMode::Watched(_) | WriteMode::Lost => Ok(()),
        }
    }
}

impl AsyncWrite for LocalWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let WriteMode::Unwatched(socket) = &mut this.0 {
            let progress = ready!(coop::poll_proceed(context));
            match socket.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => this.watch()?,
                written => {
                    progress.made_progress();
                    return Poll::Ready(written);
                }
            }
        }
        let WriteMode::Watched(sender) = &mut this.0 else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let written = ready!(Pin::new(sender).poll_write(context, bytes));
        this.unwatch()?;
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().shut())
    }
}

impl Drop for LocalWriter {
    fn drop(&mut self) {
        // The other end may be gone.
        let _ = self.shut();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    /// The time limit of each step.
    const LIMIT: Duration = Duration::from_secs(60);

    fn pair() -> ((LocalReader, LocalWriter), (LocalReader, LocalWriter)) {
        let (one, other) = tokio::net::UnixStream::pair().unwrap();
        (split_local(one).unwrap(), split_local(other).unwrap())
    }

    #[tokio::test]
    async fn everything_comes_in_order_however_little_the_socket_takes_at_once() {
        let ((_keep, mut writer), (mut reader, _other)) = pair();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let copy = sent.clone();
        let writing = tokio::spawn(async move {
            for piece in copy.chunks(100_001) {
                writer.write_all(piece).await.unwrap();
            }
        });
        let mut got = Vec::new();
        timeout(LIMIT, reader.read_to_end(&mut got)).await.unwrap().unwrap();
        writing.await.unwrap();
        assert!(got == sent);
    }

    #[tokio::test]
    async fn short_lines_go_back_and_forth() {
        let ((mut from_other, mut to_other), (mut from_one, mut to_one)) = pair();
        let answering = tokio::spawn(async move {
            let mut line = [0; 4];
            while from_one.read_exact(&mut line).await.is_ok() {
                to_one.write_all(&line).await.unwrap();
            }
        });
        for turn in 0..1_000_u32 {
            let mut answer = [0; 4];
            to_other.write_all(&turn.to_be_bytes()).await.unwrap();
            timeout(LIMIT, from_other.read_exact(&mut answer)).await.unwrap().unwrap();
            assert_eq!(u32::from_be_bytes(answer), turn);
        }
        drop(to_other);
        timeout(LIMIT, answering).await.unwrap().unwrap();
        assert_eq!(timeout(LIMIT, from_other.read(&mut [0; 4])).await.unwrap().unwrap(), 0);
    }

    #[tokio::test]
    async fn a_write_ends_when_the_reader_is_gone() {
        let ((_keep, mut writer), other) = pair();
        let writing = tokio::spawn(async move {
            let piece = [0; 64 * 1024];
            loop {
                if let Err(error) = writer.write_all(&piece).await {
                    return error;
                }
            }
        });
        tokio::task::yield_now().await;
        drop(other);
        let error = timeout(LIMIT, writing).await.unwrap().unwrap();
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(gone.contains(&error.kind()), "{error}");
    }
}
