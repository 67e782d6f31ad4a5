//! Counts the bytes of a message while it arrives, among those of all request bodies, and reads ahead while much arrives.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use trilogue_domain::{Principal, lock};

use crate::http::receive::{BodyBudget, HeldBytes};

/// How many bytes are read at a time once a read has filled its buffer. A quiet connection holds no such buffer, so its own can be small.
const AHEAD_BYTES: usize = 32 * 1024;

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
    stream: S,
    arriving: Arc<ArrivingBytes>,
    /// What was read ahead. Its bytes count when they are taken.
    ahead: Bytes,
    /// Whether more has probably arrived than the last read took.
    has_more: bool,
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

impl<S: AsyncRead + Unpin> CountedStream<S> {
    pub(super) fn new(stream: S, arriving: Arc<ArrivingBytes>) -> Self {
        Self { stream, arriving, ahead: Bytes::new(), has_more: false }
    }

    fn poll_read_uncounted(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() && !self.has_more {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            self.has_more = buffer.remaining() == 0;
            return Poll::Ready(Ok(()));
        }
        if self.ahead.is_empty() {
            self.has_more = false;
            let mut room = vec![0; AHEAD_BYTES];
            let mut read = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            let length = read.filled().len();
            self.has_more = length == AHEAD_BYTES;
            room.truncate(length);
            self.ahead = room.into();
        }
        let taken = self.ahead.split_to(self.ahead.len().min(buffer.remaining()));
        buffer.put_slice(&taken);
        if self.ahead.is_empty() {
            // An empty rest would keep the buffer.
            self.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    /// Fails with [`io::ErrorKind::QuotaExceeded`] if the budget is spent.
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll_read_uncounted(context, buffer))?;
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::access::schemes::nobody;

    use super::*;

    #[tokio::test]
    async fn what_is_read_ahead_counts_when_it_is_taken_and_leaves_no_buffer() {
        const BUFFER: usize = 1024;
        let budget = BodyBudget::anonymous(usize::MAX >> 8);
        let arriving = ArrivingBytes::new(&budget, &nobody().unwrap());
        let (mut client, server) = tokio::io::duplex(4 * AHEAD_BYTES);
        let mut stream = CountedStream::new(server, arriving);
        let sent: Vec<u8> = (0..3 * AHEAD_BYTES).map(|at| (at % 251) as u8).collect();
        client.write_all(&sent).await.unwrap();
        let (mut received, mut room) = (Vec::new(), [0; BUFFER]);
        while received.len() < sent.len() {
            let read = stream.read(&mut room).await.unwrap();
            assert!(read > 0);
            received.extend_from_slice(&room[..read]);
            assert_eq!(budget.held_bytes(), received.len());
        }
        assert_eq!(received, sent);
        client.write_all(b"end").await.unwrap();
        assert_eq!(stream.read(&mut room).await.unwrap(), 3);
        assert_eq!((stream.ahead.len(), stream.has_more), (0, false));
        drop(client);
        assert_eq!(stream.read(&mut room).await.unwrap(), 0);
    }
}
