//! Counts the bytes of a message while it arrives, among those of all request bodies.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use trilogue_domain::{Principal, lock};

use crate::http::receive::{BodyBudget, HeldBytes};

/// The bytes of a message that has not arrived as a whole.
#[derive(Debug)]
pub(super) struct ArrivingBytes {
    budget: Arc<BodyBudget>,
    principal: Principal,
    held: Mutex<HeldBytes>,
    /// Whether what arrives is dropped, so that it no longer counts.
    has_ended: AtomicBool,
}

/// A stream whose bytes count when they arrive.
#[derive(Debug)]
pub(super) struct CountedStream<S> {
    pub(super) stream: S,
    pub(super) arriving: Arc<ArrivingBytes>,
}

// === impl ArrivingBytes ===

impl ArrivingBytes {
    pub(super) fn new(budget: &Arc<BodyBudget>, principal: &Principal) -> Arc<Self> {
        Arc::new(Self {
            budget: Arc::clone(budget),
            principal: principal.clone(),
            held: Mutex::new(HeldBytes::of(budget, principal)),
            has_ended: AtomicBool::new(false),
        })
    }

    /// Gives the bytes back, because the message has arrived.
    pub(super) fn release(&self) {
        *lock(&self.held) = HeldBytes::of(&self.budget, &self.principal);
    }

    /// Gives the bytes back and counts no more, because what arrives from now on is dropped.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.release();
    }

    fn grow(&self, bytes: usize) -> io::Result<()> {
        if self.has_ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let grown = lock(&self.held).grow(bytes);
        grown.map_err(|spent| io::Error::new(io::ErrorKind::QuotaExceeded, spent))
    }
}

// === impl CountedStream ===

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    /// Fails with [`io::ErrorKind::QuotaExceeded`] if the budget is spent.
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.arriving.grow(buffer.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
