//! When a server that nobody needs ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use trilogue_store::Store;

/// How often at least a server looks whether it is still needed, where runs and not connections kept it.
const LOOK: Duration = Duration::from_secs(60);

/// Waits until nobody needs the server.
#[derive(Debug)]
pub(crate) struct Idle {
    /// How many programs are connected.
    pub(crate) connections: watch::Receiver<usize>,
    /// Knows the open runs.
    pub(crate) store: Arc<dyn Store>,
    /// How long nobody must have needed it.
    pub(crate) limit: Duration,
}

// === impl Idle ===

impl Idle {
    /// Returns when for the limit nobody was connected, and no run is open: none that waits for an answer either, which could not be given to a server that is gone.
    pub(crate) async fn wait(mut self) {
        let mut pause = self.limit;
        loop {
            if self.connections.wait_for(|count| *count == 0).await.is_err() {
                // The server is ending by itself.
                return std::future::pending().await;
            }
            if tokio::time::timeout(pause, self.connections.changed()).await.is_ok() {
                pause = self.limit;
                continue;
            }
            let open = self.store.open_threads().await;
            // Somebody may have come while the store was asked.
            if self.connections.has_changed().unwrap_or(false) {
                pause = self.limit;
                continue;
            }
            match open {
                Ok(open) if open.is_empty() => return,
                // A store that cannot say is no reason to end.
                _ => pause = self.limit.min(LOOK),
            }
        }
    }
}
