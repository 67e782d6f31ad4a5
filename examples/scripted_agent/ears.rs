//! Standard input, which can be kept in a file, and which an agent may stop listening to.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf, Stdin};

/// Whether the agent listens no more, ever.
static IS_DEAF: AtomicBool = AtomicBool::new(false);

/// What the agent hears with.
#[derive(Debug)]
pub(crate) struct Ears {
    stdin: Stdin,
    kept: Option<std::fs::File>,
}

/// From now on nothing is read any more: whoever writes waits.
pub(crate) fn stop_listening() {
    IS_DEAF.store(true, Ordering::Release);
}

// === impl Ears ===

impl Ears {
    /// Keeps what is heard in this file, byte for byte.
    pub(crate) fn new(kept: Option<&PathBuf>) -> std::io::Result<Self> {
        let kept = kept.map(std::fs::File::create).transpose()?;
        Ok(Self { stdin: tokio::io::stdin(), kept })
    }
}

impl AsyncRead for Ears {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if IS_DEAF.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stdin).poll_read(context, buffer))?;
        let heard = buffer.filled().get(before..).unwrap_or_default();
        if let Some(kept) = &mut self.kept {
            std::io::Write::write_all(kept, heard)?;
        }
        Poll::Ready(Ok(()))
    }
}
