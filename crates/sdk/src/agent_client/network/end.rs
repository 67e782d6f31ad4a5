//! The end of a connection that has no end of a library.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Reports why a connection ended, and ends it.
#[derive(Clone, Debug)]
pub(super) struct StreamEnd {
    reason: watch::Receiver<Option<String>>,
    ended: CancellationToken,
}

/// The same for the tasks of the connection.
#[derive(Clone, Debug)]
pub(super) struct StreamEnder {
    reason: watch::Sender<Option<String>>,
    /// Cancelled with the connection.
    pub(super) ended: CancellationToken,
}

// === impl StreamEnd ===

impl StreamEnd {
    pub(super) fn new() -> (StreamEnder, Self) {
        let (sender, reason) = watch::channel(None);
        let ended = CancellationToken::new();
        let ender = StreamEnder { reason: sender, ended: ended.clone() };
        (ender, Self { reason, ended })
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }

    pub(super) async fn wait(&self) -> String {
        let mut reason = self.reason.clone();
        let ended = reason.wait_for(Option::is_some).await;
        ended.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }

    pub(super) fn abort(&self) {
        self.ended.cancel();
    }
}

// === impl StreamEnder ===

impl StreamEnder {
    /// Ends the connection. Only the first reason counts.
    pub(super) fn end(&self, reason: String) {
        self.reason.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(reason);
            is_first
        });
        self.ended.cancel();
    }
}
