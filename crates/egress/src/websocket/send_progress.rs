//! Finds out whether the other side still takes our output.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

/// Counts the bytes that the other side has taken.
#[derive(Clone, Default, Debug)]
pub(super) struct TakenBytes(Arc<AtomicU64>);

/// A connection whose written bytes are counted.
#[derive(Debug)]
pub(super) struct CountedOutput<S> {
    pub(super) stream: S,
    pub(super) taken: TakenBytes,
}

// === impl TakenBytes ===

impl TakenBytes {
    /// Returns what this returns; `None` as soon as the other side has taken nothing for this long. A long message takes longer on a slow line.
    pub(super) async fn unless_stalled<T>(
        &self,
        limit: Duration,
        sending: impl Future<Output = T>,
    ) -> Option<T> {
        let mut sending = pin!(sending);
        loop {
            let before = self.0.load(Ordering::Relaxed);
            match timeout(limit, &mut sending).await {
                Ok(sent) => return Some(sent),
                Err(_) if self.0.load(Ordering::Relaxed) == before => return None,
                Err(_) => {}
            }
        }
    }

    fn note(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// === impl CountedOutput ===

impl<S: AsyncRead + Unpin> AsyncRead for CountedOutput<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedOutput<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.taken.note(written);
        Poll::Ready(Ok(written))
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn only_a_side_that_takes_nothing_stalls() {
        let (near, mut far) = duplex(4);
        let taken = TakenBytes::default();
        let mut near = CountedOutput { stream: near, taken: taken.clone() };
        let begin = Instant::now();
        // The other side is slow.
        let reading = async {
            let mut bytes = [0; 4];
            for _ in 0..10 {
                sleep(LIMIT / 2).await;
                far.read_exact(&mut bytes).await.unwrap();
            }
        };
        let sending = taken.unless_stalled(LIMIT, near.write_all(&[7; 40]));
        let (sent, ()) = tokio::join!(sending, reading);
        assert!(sent.unwrap().is_ok());
        assert!(begin.elapsed() > LIMIT * 4);
        // Now it reads no more.
        let stalled = taken.unless_stalled(LIMIT, near.write_all(&[7; 40])).await;
        assert!(stalled.is_none());
    }
}
