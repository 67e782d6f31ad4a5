//! A socket with a time limit for writes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;

/// Fails a write that made no progress for `limit`: the peer is gone, or does not read.
#[derive(Debug)]
pub(crate) struct Stall<S> {
    socket: S,
    limit: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Records whether a write waits.
    activity: Option<Arc<Activity>>,
}

// === impl Stall ===

impl<S> Stall<S> {
    pub(crate) fn new(socket: S, limit: Duration) -> Self {
        Self { socket, limit, waiting: None, activity: None }
    }

    /// Also records in `activity` whether a write waits.
    pub(crate) fn with_activity(mut self, activity: &Arc<Activity>) -> Self {
        self.activity = Some(Arc::clone(activity));
        self
    }

    fn set_waiting(&mut self, waiting: Option<Pin<Box<Sleep>>>) {
        if let Some(activity) = &self.activity {
            activity.set_write_waiting(waiting.is_some());
        }
        self.waiting = waiting;
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            if self.waiting.is_some() {
                self.set_waiting(None);
            }
            return done;
        }
        if self.waiting.is_none() {
            self.set_waiting(Some(Box::pin(sleep(self.limit))));
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(context));
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.watch(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.watch(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.socket).poll_flush(context);
        self.watch(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.socket).poll_shutdown(context);
        self.watch(context, done)
    }
}
