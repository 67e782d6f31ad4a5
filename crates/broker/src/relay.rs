//! Copies bytes both ways, until both sides are done or nothing moves any more.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

/// The bytes of one copy.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// The bytes that a relay has copied.
#[derive(Debug, Default)]
pub(crate) struct RelayedBytes {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// When something moved last, in milliseconds since the start.
struct Activity {
    start: Instant,
    last_ms: AtomicU64,
}

/// Copies between a client and a host. Ends when both have ended, one fails, or nothing has moved for `idle`.
pub(crate) async fn relay(
    client: impl AsyncRead + AsyncWrite + Unpin,
    host: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
    bytes: &RelayedBytes,
) {
    let (client_read, client_write) = tokio::io::split(client);
    let (host_read, host_write) = tokio::io::split(host);
    let activity = Activity { start: Instant::now(), last_ms: AtomicU64::new(0) };
    let up = copy(client_read, host_write, (&activity, idle), &bytes.sent);
    let down = copy(host_read, client_write, (&activity, idle), &bytes.received);
    // Either error ends both: the other side learns it by the end of its connection.
    let _ = tokio::try_join!(up, down);
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (activity, idle): (&Activity, Duration),
    count: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = match timeout(idle, from.read(&mut buffer)).await {
            Ok(read) => read?,
            // The other direction may still move.
            Err(_) if activity.is_idle(idle) => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => continue,
        };
        activity.record();
        let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else {
            return to.shutdown().await;
        };
        match timeout(idle, to.write_all(piece)).await {
            Ok(written) => written?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        count.fetch_add(read as u64, Ordering::Relaxed);
        activity.record();
    }
}

// === impl Activity ===

impl Activity {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn record(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn is_idle(&self, idle: Duration) -> bool {
        let since = self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed));
        u128::from(since) >= idle.as_millis()
    }
}
