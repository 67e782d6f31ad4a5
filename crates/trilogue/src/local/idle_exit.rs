//! The exit of a server that nothing uses.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use trilogue_store::Store;

const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct IdleExit {
    pub(crate) connections: watch::Receiver<usize>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limit: Duration,
}

// === impl IdleExit ===

impl IdleExit {
    /// Returns when no program was connected for the limit and no run is open. A run that waits for an answer counts as open: the answer needs the server.
    pub(crate) async fn wait(mut self) {
        let mut pause = self.limit;
        loop {
            if self.connections.wait_for(|count| *count == 0).await.is_err() {
                // The server is stopping anyway.
                return std::future::pending().await;
            }
            if tokio::time::timeout(pause, self.connections.changed()).await.is_ok() {
                pause = self.limit;
                continue;
            }
            let open = self.store.open_threads().await;
            // A program may have connected meanwhile.
            if self.connections.has_changed().unwrap_or(false) {
                pause = self.limit;
                continue;
            }
            match open {
                Ok(open) if open.is_empty() => return,
                // An error of the store does not end the server.
                _ => pause = self.limit.min(MAX_CHECK_INTERVAL),
            }
        }
    }
}
